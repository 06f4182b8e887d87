"""Triton's `Compiler`, for the targets of every vendor and with artifacts kept in memory and on disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

import triton
from triton import knobs

from nbx_registry import environment
from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact
from nbx_triton import pipeline, targets
from nbx_triton.compiler import Options, Source
from nbx_triton.store import Store


class Triton:
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
        self._keep = keep
        self._kept: OrderedDict[tuple[Source, str, Options, str], Artifact] = OrderedDict()
        self._lock = threading.Lock()
        self._store = store

    @property
    def toolkit(self) -> str:
        """``triton`` and its version."""
        return f"triton {triton.__version__}"

    def compile(self, source: Source, target: str, options: Options) -> Artifact:
        """Compile ``source``, or return what was made before, in this process or another.

        Raises `NbxError` for a target of neither vendor and for code that wants scratch memory from its launcher;
        whatever Triton raises for a source that does not compile.
        """
        # 1, 1.0 and True are equal as dictionary keys but not as constants, nor are 0.0 and -0.0; NaN is, and equals
        # nothing. Their texts tell which is which.
        key = (replace(source, constants=()), target, options, repr(source.constants))
        # Held while compiling too: an equal request waits for this one, and LLVM's options are those of the process.
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._compile(source, target, options)
                self._kept[key] = found
                if len(self._kept) > self._keep:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
        return found

    def _compile(self, source: Source, target: str, options: Options) -> Artifact:
        made_for = targets.of(target)
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
        if made.metadata.get("profile_scratch_size"):
            raise NbxError(f"kernel {entry!r} wants memory for a profile from its launcher, which gives none")
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
            scratch_bytes=made.metadata.get("global_scratch_size") or 0,
        )


TRITON = Triton()
"""The process's compiler, shared by all kernels."""
