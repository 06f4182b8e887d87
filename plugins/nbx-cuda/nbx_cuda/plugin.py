"""What nbx-cuda brings: the runtime ``cuda``, by reference. Imports no toolkit."""

from nbx_registry.hookspecs import hookimpl
from nbx_registry.runtimespec import RuntimeSpec

NBX_HOOKS = 1


@hookimpl
def nbx_register_runtimes() -> list[RuntimeSpec]:
    """Register the CUDA runtime."""
    # What is missing, driver or package, and how it is installed, the runtime tells: `CudaRuntime.why_absent`.
    return [RuntimeSpec(name="cuda", factory="nbx_cuda.runtime:create")]
