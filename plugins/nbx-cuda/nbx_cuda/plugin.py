"""What nbx-cuda brings: the runtime ``cuda``, by reference. Imports no toolkit."""

from nbx_registry.hookspecs import hookimpl
from nbx_registry.runtime import RuntimeSpec

NBX_HOOKS = 1


@hookimpl
def nbx_register_runtimes() -> list[RuntimeSpec]:
    """Register the CUDA runtime."""
    return [RuntimeSpec(name="cuda", factory="nbx_cuda.runtime:create", install="pip install nbx-registry[cuda]")]
