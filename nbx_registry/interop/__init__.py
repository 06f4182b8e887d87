"""Array libraries, read without importing them: NumPy, torch, CuPy, nbx.Tensor, and anything that speaks DLPack."""

from nbx_registry.interop.base import Adapter
from nbx_registry.interop.lookup import adapter, not_a_tensor, only_read

__all__ = ["Adapter", "adapter", "not_a_tensor", "only_read"]
