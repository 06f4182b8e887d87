"""The CUDA runtime. Importing this imports no toolkit; `create` does nothing until it is asked for devices."""

from nbx_cuda.runtime.errors import CudaError
from nbx_cuda.runtime.runtime import CudaRuntime, create

__all__ = ["CudaError", "CudaRuntime", "create"]
