"""Ops of this hardware."""

from nbx_acme.contracts.scale_shift import scale_shift

__all__ = ["scale_shift"]
