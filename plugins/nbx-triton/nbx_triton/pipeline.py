"""Triton's stages, from a function to a binary, without Triton's cache, launcher, driver or hooks.

`triton.compile` writes everything it makes into its own cache and serves what lies there without a look at it. Here the
same stages run in the same order, and nothing of the process that other users of Triton share is read or changed but
the options that they too compile under (`fingerprint` holds those).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars, ir
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from nbx_registry.errors import NbxError
from nbx_triton.compiler import Options, Source
from nbx_triton.targets import Target


@dataclass(frozen=True, slots=True)
class Made:
    """What the stages gave."""

    image: bytes
    metadata: Mapping[str, Any]
    """Triton's own: ``name``, ``shared``, ``num_warps``, ..."""


def run(source: Source, target: Target, options: Options) -> Made:
    """Compile. Raises what Triton raises for a source that does not compile, `NbxError` for options it did not take."""
    backend = make_backend(target.triton)
    ast = _ast(source)
    wanted, taken = target.options(options), _options(backend, target, options)
    environment = get_cache_invalidating_env_vars()
    metadata = {"target": target.triton, **taken.__dict__, **environment, "triton_version": triton.__version__}
    for name, value in wanted.items():
        # An older Triton lacks some of a newer one's options, and needs them not.
        if metadata.get(name, value) != value:
            raise NbxError(
                f"Triton {triton.__version__} compiles {source.function.__name__!r} with {name}={metadata[name]!r} "
                f"where {value!r} was asked for"
            )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, taken, ast.language)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = ast.make_ir(
        target.triton, taken, backend.get_codegen_implementation(taken), backend.get_module_map(), context
    )
    # One that comes before those of a source (gluon's) is not its own.
    first = list(stages).index(ast.ext)
    for stage in list(stages.values())[first:]:
        module = stage(module, metadata)
    return Made(bytes(module), metadata)


def fingerprint(source: Source, target: Target, options: Options) -> tuple[str, ...]:
    """Return everything that decides what `run` gives, as text.

    Source and every function it calls, the constants it reads, types, constants with their types, alignment, target,
    every option, Triton with its libraries and assemblers, the environment that Triton compiles under, and this
    package's own code that asks it.
    """
    backend = make_backend(target.triton)
    taken = _options(backend, target, options)
    return (
        source.function.cache_key,
        repr(source.signature),
        repr([(path, type(value).__name__, value) for path, value in source.constants]),
        repr(sorted(source.divisible)),
        repr((target.name, target.triton)),
        repr(sorted(taken.__dict__.items())),
        backend.hash(),
        repr(_installed()),
        _own(),
        repr(sorted(get_cache_invalidating_env_vars().items())),
        repr(list(_knobs())),
    )


def _ast(source: Source) -> ASTSource:
    kind = ASTSource
    if source.function.is_gluon():
        # Few kernels are, and its import takes a third as long as Triton's.
        from triton.experimental.gluon._runtime import GluonASTSource

        kind = GluonASTSource
    return kind(
        source.function,
        dict(source.signature),
        constexprs=dict(source.constants),
        attrs={path: [["tt.divisibility", 16]] for path in source.divisible},
    )


def _options(backend: Any, target: Target, options: Options) -> Any:
    return backend.parse_options(target.options(options))


@cache
def _installed() -> tuple[str, ...]:
    """Return Triton's version and the size and time of each of its files that takes part in compiling.

    Their contents are half a gigabyte.
    """
    folder = Path(triton.__file__).parent
    parts = ("_C", "backends", "compiler", "experimental", "language", "runtime")
    files = sorted(
        path
        for part in parts
        for path in folder.joinpath(part).rglob("*")
        if path.suffix in {".py", ".so", ".bc"} or path.parent.name == "bin"
    )
    stats = ((path.relative_to(folder), path.stat()) for path in files)
    version = importlib.metadata.version("triton")
    return (triton.__version__, version, *(f"{path} {found.st_size} {found.st_mtime_ns}" for path, found in stats))


@cache
def _own() -> str:
    """Return a digest of the code here that decides how Triton is asked and what is said of its answer."""
    hasher = hashlib.sha256()
    for name in ("compiler", "targets", "pipeline", "triton_compiler", "elf", "cubin", "hsaco"):
        hasher.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return hasher.hexdigest()


def _knobs() -> Iterator[tuple[str, str, str | None, str]]:
    """Yield every knob of Triton that compiling may read: what the environment and what the process sets it to."""
    for group in ("compilation", "language", "nvidia", "amd"):
        found = getattr(knobs, group)
        for name, knob in sorted(found.knob_descriptors.items()):
            if knob.key in os.environ or name in found.__dict__:
                yield group, name, os.environ.get(knob.key), repr(found.__dict__.get(name))
