"""The dtype of this hardware."""

from nbx_registry.dtypes import DType

ACME_FIXED8 = DType(name="acme_fixed8", kind="int", bits=8, numpy_name="numpy:int8", key="acmefx8")
"""Signed fixed point with 4 fractional bits, kept in an int8: the value is a sixteenth of the integer."""
