"""From a binder's arguments to a `Launch`: types, constants and alignment of each argument, compiled and loaded.

Every kernel of this distribution launches through `launch`, on a GPU and in the interpreter alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from triton.runtime.interpreter import InterpretedFunction

from nbx_registry.dtypes import DType
from nbx_registry.errors import NbxError
from nbx_registry.launch import NULL, Artifact, BindContext, Launch, Scalar, ScalarOf
from nbx_triton import targets
from nbx_triton.compiler import THREADS_PER_WARP, TYPES, Options, Path, Source, Type
from nbx_triton.triton_compiler import TRITON

MAX_PROGRAMS = 2**31 - 1
"""Programs along the first axis of a grid; the only axis used here."""

SCRATCH_BYTES = 512
"""Of a launch's scratch, what each program has: room for four descriptions of tensors."""

_DIVISIBLE_BY = 16
_MAX_HIDDEN = 4


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that is the address of an operand."""

    name: str
    """The parameter, output or workspace."""
    dtype: DType | str
    """What it points to, by name; another dtype than the operand's to copy bits."""
    align: int = 16
    """Bytes that the address is a multiple of."""


Argument = str | int | None | Pointer | Scalar | ScalarOf | tuple["Argument", ...]
"""A name is the operand of that name with its own dtype; None stands for an absent optional one."""


def launch(
    ctx: BindContext,
    function: Any,
    *,
    programs: int,
    arguments: Mapping[str, Argument],
    constants: Mapping[str, Any],
    options: Options,
    scratch: str | None = None,
    early: bool = False,
) -> Launch:
    """Compile ``function`` for these arguments and return its launch.

    Parameters
    ----------
    ctx : BindContext
    function
        Decorated by ``triton.jit``.
    programs : int
        Programs of the grid, all along its first axis.
    arguments : mapping
        Run-time arguments by name. As in Triton's own launcher an integer 1 becomes a constant and multiples of 16
        are marked, so that loads along an axis of stride 1 are seen to be contiguous.
    constants : mapping
        Compile-time arguments by name.
    options : Options
    scratch : str, optional
        A workspace of `SCRATCH_BYTES` for each program, where code keeps the descriptions of tensors that it makes.
    early : bool
        As of `Launch`.

    Raises
    ------
    NbxError
        When a name is no parameter of the function, one of its parameters has no value, the grid is too large, or code
        wants scratch memory that it is not given.
    """
    names = list(function.arg_names)
    given = {**arguments, **constants}
    if unknown := sorted(given.keys() - set(names)):
        raise NbxError(f"kernel function {function.__name__!r} has no parameter {unknown[0]!r}; it has {names}")
    if missing := [name for name in names if name not in given]:
        raise NbxError(f"kernel function {function.__name__!r} was given no value for its parameter {missing[0]!r}")
    if not 0 < programs <= MAX_PROGRAMS:
        raise NbxError(f"a grid of {programs} programs for {function.__name__!r}; 1 to {MAX_PROGRAMS} are possible")
    signature: list[tuple[str, Type]] = []
    fixed: list[tuple[Path, Any]] = []
    divisible: list[Path] = []
    passed: list[str | Scalar | ScalarOf] = []
    for position, name in enumerate(names):
        if name in constants:
            signature.append((name, "constexpr"))
            fixed.append(((position,), constants[name]))
        else:
            kind = _classify(ctx, arguments[name], (position,), fixed, divisible, passed)
            signature.append((name, kind))
    source = Source(function, tuple(signature), tuple(fixed), tuple(divisible))
    if _is_interpreted(function):
        artifact = _interpreted(source, ctx, options)
    else:
        artifact = TRITON.compile(source, ctx.device.arch, options)
    assert artifact.threads is not None
    hidden = (artifact.parameters or 0) - len(passed)
    if not 0 <= hidden <= _MAX_HIDDEN:
        raise NbxError(
            f"compiled kernel {artifact.entry!r} takes {artifact.parameters} parameters where {len(passed)} are passed"
        )
    room = 0 if scratch is None else SCRATCH_BYTES
    if artifact.scratch_bytes > room:
        raise NbxError(
            f"kernel {artifact.entry!r} wants {artifact.scratch_bytes} bytes of scratch memory for each program from"
            f" its launcher, which gives {room}"
        )
    # Of the hidden parameters the first points to scratch memory.
    unseen = tuple(scratch if scratch and i == 0 else NULL for i in range(hidden))
    return Launch(
        function=ctx.load(artifact),
        args=(*passed, *unseen),
        grid=(programs, 1, 1),
        block=(artifact.threads, 1, 1),
        shared_bytes=artifact.shared_bytes,
        early=early,
    )


def _classify(
    ctx: BindContext,
    value: Argument,
    path: Path,
    fixed: list[tuple[Path, Any]],
    divisible: list[Path],
    passed: list[str | Scalar | ScalarOf],
) -> Type:
    """Return the type of one argument, noting it as a constant or as passed, and whether it is a multiple of 16."""
    if isinstance(value, tuple):
        return tuple(_classify(ctx, item, (*path, i), fixed, divisible, passed) for i, item in enumerate(value))
    if value is None or (isinstance(value, int) and value == 1):
        fixed.append((path, value))
        return "constexpr"
    if isinstance(value, int):
        ctype = "int32" if -(2**31) <= value < 2**31 else "int64"
        passed.append(Scalar(value, ctype))
        if value % _DIVISIBLE_BY == 0:
            divisible.append(path)
        return TYPES[ctype]
    if isinstance(value, Scalar | ScalarOf):
        passed.append(value)
        return TYPES[value.ctype]
    pointer = operand(ctx, value) if isinstance(value, str) else value
    passed.append(pointer.name)
    if pointer.align % _DIVISIBLE_BY == 0:
        divisible.append(path)
    name = pointer.dtype if isinstance(pointer.dtype, str) else pointer.dtype.name
    if name not in TYPES:
        raise NbxError(f"operand {pointer.name!r} has dtype {name}, which Triton lacks")
    return f"*{TYPES[name]}"


def operand(ctx: BindContext, name: str) -> Pointer:
    """Return the pointer to a parameter, output or workspace, with its dtype and alignment."""
    for workspace in ctx.kernel.workspace:
        if workspace.name == name:
            return Pointer(name, workspace.dtype)
    spec = ctx.signature.tensor(name)
    return Pointer(name, spec.dtype, spec.align)


def has_matrix_unit(ctx: BindContext) -> bool:
    """Whether Triton makes products of 16-bit floats with the matrix unit: from sm_80 on; on AMD's if stated."""
    capability = targets.capability(ctx.device.arch)
    return ctx.device.has("matrix.float16") if capability is None else capability >= 80


def waits_by_itself(ctx: BindContext, function: Any) -> bool:
    """Whether code can wait for the launch before it, and so be launched early: from sm_90 on, where it is compiled."""
    capability = targets.capability(ctx.device.arch)
    return capability is not None and capability >= 90 and not _is_interpreted(function)


def takes_ptx(ctx: BindContext, function: Any) -> bool:
    """Whether code may have PTX in it: not the interpreter's, nor AMD's."""
    return targets.capability(ctx.device.arch) is not None and not _is_interpreted(function)


def _is_interpreted(function: Any) -> bool:
    return isinstance(function, InterpretedFunction)


def _interpreted(source: Source, ctx: BindContext, options: Options) -> Artifact:
    """Describe the call for the interpreter, which finds the function by its module and name."""
    function = source.function.fn
    image = {
        "function": f"{function.__module__}:{function.__name__}",
        "signature": source.signature,
        "constants": source.constants,
    }
    return Artifact(
        image=json.dumps(image).encode(),
        kind="python",
        entry=function.__name__,
        arch=ctx.device.arch,
        toolkit=TRITON.toolkit,
        threads=options.num_warps * THREADS_PER_WARP,
        parameters=sum(1 for _, kind in source.signature for leaf in leaves(kind) if leaf != "constexpr"),
    )


def leaves(kind: Type) -> Iterator[str]:
    """Yield the types in an argument's type, depth first: the order in which they are passed."""
    if isinstance(kind, str):
        yield kind
    else:
        for inner in kind:
            yield from leaves(inner)
