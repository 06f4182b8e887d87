"""The process's compiler, for the targets of every vendor and with artifacts kept on disk.

`ready` puts it where every kernel looks for its compiler. It stands beside `nbx_triton.compiler`, whose definitions are
part of what the evidence of each kernel binds to.
"""

from __future__ import annotations

from triton import knobs

from nbx_registry import environment
from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact, BindContext
from nbx_triton import compiler, launching, pipeline, targets
from nbx_triton.compiler import Options, Source, Triton
from nbx_triton.store import Store

_on_nvidia = launching.has_matrix_unit


class Portable(Triton):
    """Triton's compiler for NVIDIA's and AMD's targets.

    Tested with Triton 3.6.0 and 3.9.0 on Python 3.11 and 3.12.

    Parameters
    ----------
    keep : int
        Artifacts kept in memory; the least recently used go first.
    store : Store, optional
        Where artifacts are kept for other processes; by default ``triton`` in the folder that ``NBX_CACHE_DIR`` names.
    """

    def __init__(self, keep: int = 2048, store: Store | None = None) -> None:
        super().__init__(keep)
        self._store = store

    def _compile(self, source: Source, target: str, options: Options) -> Artifact:
        made_for = targets.of(target)
        if made_for.kind == "cubin" and (knobs.compilation.override or knobs.compilation.dump_ir):
            # Somebody looks at what Triton does, or has it take other code, which it alone can do: not for keeping.
            return super()._compile(source, target, options)
        store = self._store or Store(environment.cache_dir() / "triton")
        key = pipeline.fingerprint(source, made_for, options)
        found = None if knobs.compilation.always_compile else store.get(key)
        if found is None:
            found = self._made(source, made_for, options)
            store.put(key, found)
        return found

    def _made(self, source: Source, target: targets.Target, options: Options) -> Artifact:
        for each in target.variants(options):
            made = pipeline.run(source, target, each)
            if target.fits(made.metadata["shared"]):
                break
        entry = made.metadata["name"]
        if made.metadata.get("global_scratch_size") or made.metadata.get("profile_scratch_size"):
            raise NbxError(f"kernel {entry!r} wants scratch memory from its launcher, which gives none")
        facts = target.read(made.image, entry)
        return Artifact(
            image=made.image,
            kind=target.kind,
            entry=entry,
            arch=target.name,
            toolkit=self.toolkit,
            shared_bytes=made.metadata["shared"],
            registers=facts.registers,
            spills=facts.spills,
            # Warp specialisation may add warps to those asked for.
            threads=made.metadata["num_warps"] * target.triton.warp_size,
            parameters=facts.parameters,
        )


PORTABLE = Portable()
"""The process's compiler."""


def has_matrix_unit(ctx: BindContext) -> bool:
    """Whether Triton makes products of 16-bit floats with the device's matrix unit; AMD's device files state it."""
    return _on_nvidia(ctx) if ctx.device.arch.startswith("sm_") else ctx.device.has("matrix.float16")


def ready() -> None:
    """Have kernels launch through `PORTABLE`. Called before any module of kernels takes names from `launching`."""
    compiler.TRITON = launching.TRITON = PORTABLE
    launching.has_matrix_unit = has_matrix_unit
