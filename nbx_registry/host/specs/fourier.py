"""The host's fourier kernels, as data."""

from __future__ import annotations

from nbx_registry.kernel import Kernel

KERNELS: tuple[Kernel, ...] = ()
