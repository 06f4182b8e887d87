"""Cases: what a kernel is tried on, as data, in YAML files, one for each op.

A file holds the op's id and its workloads; a workload is a template over the lists in its ``each``::

    op: softmax@1
    workloads:
      - name: awkward
        from: "specs/cases.md 12, 26: sizes that fill no block"
        size: smoke
        each: {F: [float32, float16], N: [63, 127, 1000]}
        tensors: {x: "{F}[5, {N}]"}
        attributes: {axis: -1}
        values: {x: normal}

gives the cases ``awkward-f32-N63``, ``awkward-f16-N63``, and so on. A key of ``each`` may name several things that
change together (``"M, K": [[63, 127], [1000, 129]]``). Beside ``op`` the head of a file may give ``batch``, ``part``
and ``cost`` for all its workloads; a workload that gives its own (or null) has that instead. ``without`` names the
kinds of `nbx_conformance.cases.kinds` that have no meaning for the op (or ``batch``, where it has no such axis), each
with the reason.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, cast

from nbx_conformance.cases import layouts, values
from nbx_registry import dtypes, spec, yamlfile
from nbx_registry.errors import DuplicateError, FileError, NbxError, nearest
from nbx_registry.spec import TensorSpec

Size = Literal["smoke", "full", "large"]
SIZES: Final[tuple[Size, ...]] = ("smoke", "full", "large")
"""Each holds the cases of those before it. Tensors of large cases pass 2^31 elements."""

FOLDER: Final = Path(__file__).parent
"""The cases of the core's ops."""

MAX_CASES: Final = 500
"""Of one workload: more is a mistake in its ``each``."""

COSTS: Final = ("flops", "bytes_read", "bytes_written", "least_flops", "least_bytes")
"""Fields of a cost whose closed forms a case may give."""

Scalar = bool | int | float


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload of one op, with every size settled.

    Attributes
    ----------
    op
        The op's id, ``softmax@1``.
    id
        Unique for the op.
    tensors
        By parameter: a spec, a Python scalar (weak in promotion), or a tuple of specs for a list parameter.
    values
        By parameter, the strategy that fills it; `values.Strategy`.
    refuses
        The code of the error that must come, before anything is launched; None where the op must be computed.
    says
        What that error's message must contain.
    runtime
        The only runtime the case is for, where it is not for all.
    source
        Where the case comes from.
    kinds
        Names of what it is there to find, beside those that its shapes and values show; `nbx_conformance.cases.kinds`.
    batch
        By parameter and output, the axis along which the op treats what lies there independently, so that a part of the
        inputs gives that part of the outputs. Tensors not named are shared by all parts, and so are those broadcast
        along it: of extent 1, or with too few axes for a negative one.
    part
        By attribute, what a part is given instead: an expression over ``first`` and ``count``, the part's first index
        and how many it has, and what the whole's axes, attributes and tensors are; or a list of such.
    cost
        By field of `nbx_registry.cost.Cost`, its closed form: an expression over axes, attributes and tensors.
    grows
        By parameter, integers all of them, what is added to each of its elements from one step to the next, so that a
        captured run is replayed while lengths grow; `nbx_conformance.problems.problem.STEPS`.
    """

    op: str
    id: str
    size: Size
    tensors: Mapping[str, TensorSpec | Scalar | tuple[TensorSpec, ...]]
    attributes: Mapping[str, Any]
    values: Mapping[str, values.Strategy]
    seed: int
    source: str
    refuses: str | None = None
    says: tuple[str, ...] = ()
    runtime: str | None = None
    kinds: tuple[str, ...] = ()
    batch: Mapping[str, int] = field(default_factory=dict[str, int])
    part: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cost: Mapping[str, str] = field(default_factory=dict[str, str])
    grows: Mapping[str, int] = field(default_factory=dict[str, int])
    file: Path = field(default=Path(), compare=False)

    def strategy(self, name: str) -> values.Strategy:
        """Return the value strategy of a parameter, ``normal`` where none is given."""
        return self.values.get(name, "normal")

    @property
    def contiguous(self) -> bool:
        """Whether every tensor is dense, from the start of its buffer."""
        return all(s.contiguous and not s.offset for s in self.specs())

    def specs(self) -> Iterator[TensorSpec]:
        """Yield the specs of all tensors."""
        for value in self.tensors.values():
            if isinstance(value, TensorSpec):
                yield value
            elif isinstance(value, tuple):
                yield from value

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """What a case file holds: the cases of one op, and why some kinds are not among them."""

    path: Path
    op: str
    cases: tuple[Case, ...]
    without: Mapping[str, str]


class CaseTable:
    """The cases of every op, by op id, from folders of case files."""

    def __init__(self, folders: Iterable[Path]) -> None:
        found: dict[str, CaseFile] = {}
        for folder in sorted(set(folders)):
            for file in sorted(folder.glob("*.yml")):
                stamp = file.stat()
                loaded = _loaded(file, stamp.st_mtime_ns, stamp.st_size)
                if loaded.op in found:
                    raise DuplicateError(
                        f"{file} and {found[loaded.op].path} both hold the cases of {loaded.op}, which come"
                        f" with the op: remove those of the other plugin, or block it (NBX_BLOCK)"
                    )
                found[loaded.op] = loaded
        self.files = [file.path for file in found.values()]
        self._found = found

    @property
    def ops(self) -> frozenset[str]:
        """Ids of the ops that have cases."""
        return frozenset(self._found)

    def of(self, op: str, size: Size = "full") -> tuple[Case, ...]:
        """Return the cases of an op up to a size. Raises `FileError` where it has none."""
        return tuple(case for case in self._file(op).cases if SIZES.index(case.size) <= SIZES.index(size))

    def without(self, op: str) -> Mapping[str, str]:
        """Return why an op has no cases of some kinds, by kind. Raises `FileError` where it has no cases at all."""
        return self._file(op).without

    def _file(self, op: str) -> CaseFile:
        found = self._found.get(op)
        if found is None:
            raise FileError(
                f"op {op} has no conformance cases{nearest(op, self._found)}; "
                "a plugin that brings an op brings cases for it: nbx_register_cases"
            )
        return found


_HEAD: Final = frozenset({"op", "batch", "part", "cost", "without", "workloads"})


@lru_cache(maxsize=256)
def _loaded(file: Path, _modified: int, _size: int) -> CaseFile:
    # A process makes several tables of the same files, which say the same as long as they are the same.
    return load(file)


def load(file: Path) -> CaseFile:
    """Read one case file. Raises `FileError` naming file, workload and what is wrong."""
    head = _mapping(yamlfile.load(file), f"{file}", _HEAD, {"op", "workloads"})
    op = head["op"]
    if not isinstance(op, str) or not re.fullmatch(r"(\w+::)?\w+@[0-9]+", op):
        raise FileError(f"{file}: op {op!r} must be an op's id with its version, like softmax@1")
    if not isinstance(head["workloads"], list):
        raise FileError(f"{file}: workloads must be a list")
    cases: list[Case] = []
    seen: set[str] = set()
    for number, workload in enumerate(cast("list[Any]", head["workloads"])):
        shared = {key: head[key] for key in ("batch", "part", "cost") if key in head}
        for case in _expand(op, shared, workload, file, number):
            if case.id in seen:
                raise FileError(f"{file}: case {case.id!r} occurs twice; give one of the workloads another name")
            seen.add(case.id)
            cases.append(case)
    if not cases:
        raise FileError(f"{file} holds no cases")
    without = _mapping(head.get("without", {}), f"{file}: without")
    return CaseFile(path=file, op=op, cases=tuple(cases), without={k: str(v or "") for k, v in without.items()})


_KEYS: Final = frozenset(
    (
        *("name", "from", "size", "each", "tensors", "attributes", "layouts", "values", "seed", "refuses", "says"),
        *("runtime", "kinds", "batch", "part", "cost", "grows"),
    )
)


def _expand(op: str, shared: Mapping[str, Any], workload: object, file: Path, number: int) -> Iterator[Case]:
    given = _mapping(workload, f"{file}: workload {number}", _KEYS, {"name", "from", "tensors"})
    content = {**shared, **given}
    name = content["name"]
    where = f"{file}: workload {name!r}"
    size = content.get("size", "smoke")
    if size not in SIZES:
        raise FileError(f"{where}: size {size!r} is none of {', '.join(SIZES)}")
    for choice, label in _choices(content.get("each", {}), where):
        identifier = "-".join([str(name), *label])
        if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,80}", identifier):
            raise FileError(f"{where}: {identifier!r} is no readable id: letters, digits and _.+- only, at most 80")
        here = f"{where}, case {identifier!r}"
        filled = {k: _fill(v, choice, here) for k, v in content.items() if k != "each"}
        try:
            yield _case(op, identifier, filled, file, here)
        except NbxError as error:
            raise FileError(f"{here}: {error}") from None


def _case(op: str, identifier: str, content: dict[str, Any], file: Path, where: str) -> Case:
    known = _mapping(content["tensors"], f"{where}: tensors")
    layout = _mapping(content.get("layouts", {}), f"{where}: layouts", known)
    strategies = _mapping(content.get("values", {}), f"{where}: values", known)
    for strategy in strategies.values():
        values.split(strategy)
    tensors: dict[str, TensorSpec | Scalar | tuple[TensorSpec, ...]] = {}
    for name, value in known.items():
        if isinstance(value, str):
            tensors[name] = layouts.apply(spec.parse(value), layout.get(name, "contiguous"))
        elif isinstance(value, bool | int | float):
            tensors[name] = value
        elif isinstance(value, list):
            tensors[name] = tuple(
                layouts.apply(spec.parse(str(item)), layout.get(name, "contiguous"))
                for item in cast("list[Any]", value)
            )
        elif value is not None:
            raise FileError(f"{where}: tensor {name!r} must be a spec string, a number, a list or null, not {value!r}")
    refuses = content.get("refuses")
    return Case(
        op=op,
        id=identifier,
        size=content.get("size", "smoke"),
        tensors=tensors,
        attributes=_mapping(content.get("attributes", {}), f"{where}: attributes"),
        values=strategies,
        seed=int(content.get("seed", 0)),
        source=str(content["from"]),
        refuses=refuses,
        says=_texts(content.get("says"), f"{where}: says"),
        runtime=content.get("runtime"),
        kinds=_texts(content.get("kinds"), f"{where}: kinds"),
        batch=_integers(content.get("batch"), f"{where}: batch"),
        part=_mapping(content.get("part") or {}, f"{where}: part"),
        cost={k: str(v) for k, v in _mapping(content.get("cost") or {}, f"{where}: cost", COSTS).items()},
        grows=_growing(content.get("grows"), tensors, f"{where}: grows"),
        file=file,
    )


def _texts(value: object, where: str) -> tuple[str, ...]:
    # A hole may have been filled with a number.
    found = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(item, str | int | float) for item in found):
        raise FileError(f"{where} must be a string or a list of strings, not {value!r}")
    return tuple(map(str, found))


def _integers(value: object, where: str) -> dict[str, int]:
    # null takes back what the head of the file says.
    found = _mapping(value or {}, where)
    for name, number in found.items():
        if not isinstance(number, int) or isinstance(number, bool):
            raise FileError(f"{where}: that of {name!r} is {number!r}; it must be an integer")
    return found


def _growing(value: object, tensors: Mapping[str, Any], where: str) -> dict[str, int]:
    found = _integers(value, where)
    for name in found:
        given = tensors.get(name)
        if not isinstance(given, TensorSpec) or not given.dtype.integral:
            known = [n for n, t in tensors.items() if isinstance(t, TensorSpec) and t.dtype.integral]
            raise FileError(f"{where}: {name!r} is no tensor of integers{nearest(name, known)}")
    return found


def _choices(each: object, where: str) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield every combination of a workload's lists, with the parts of the id that tell them apart."""
    axes: list[list[dict[str, Any]]] = []
    for key, options in _mapping(each, f"{where}: each").items():
        names = [name.strip() for name in key.split(",")]
        if not _list(options):
            raise FileError(f"{where}: each {key!r} must be a list that is not empty")
        rows: list[dict[str, Any]] = []
        for option in _list(options):
            items = _list(option) if len(names) > 1 else [option]
            if len(items) != len(names):
                raise FileError(f"{where}: each {key!r} has {len(names)} names, but an entry is {option!r}")
            rows.append(dict(zip(names, items, strict=True)))
        axes.append(rows)
    count = 1
    for rows in axes:
        count *= len(rows)
    if count > MAX_CASES:
        raise FileError(f"{where} makes {count} cases; at most {MAX_CASES}")
    for combination in itertools.product(*axes):
        choice = {name: value for row in combination for name, value in row.items()}
        yield choice, [_label(name, value) for name, value in choice.items()]


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _label(name: str, value: object) -> str:
    if isinstance(value, str):
        return dtypes.TABLE[value].key if value in dtypes.TABLE else value
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    if value is None:
        return f"{name}-none"
    if isinstance(value, list):
        return name + "x".join(str(item) for item in cast("list[Any]", value)) if value else f"{name}-none"
    if isinstance(value, dict):
        inner = cast("dict[str, Any]", value)
        return "-".join(key if isinstance(item, dict) else _label(key, item) for key, item in inner.items())
    return f"{name}{value}"


_HOLE: Final = re.compile(r"\{(\w+)\}")


def _fill(value: Any, choice: Mapping[str, Any], where: str) -> Any:
    """Put the chosen values into a template; a string that is one hole becomes the value itself."""
    if isinstance(value, str):
        whole = _HOLE.fullmatch(value)
        if whole:
            return _chosen(whole[1], choice, where)
        return _HOLE.sub(lambda hole: str(_chosen(hole[1], choice, where)), value)
    if isinstance(value, dict):
        return {k: _fill(v, choice, where) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_fill(item, choice, where) for item in cast("list[Any]", value)]
    return value


def _chosen(name: str, choice: Mapping[str, Any], where: str) -> Any:
    if name not in choice:
        raise FileError(f"{where}: {{{name}}} is not in each{nearest(name, choice)}")
    return choice[name]


def _mapping(
    value: object, where: str, known: Iterable[str] | None = None, needed: Sequence[str] | set[str] = ()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"{where} must be a mapping, not {value!r}")
    content = cast("dict[str, Any]", value)
    for key in content:
        if known is not None and key not in known:
            raise FileError(f"{where}: unknown key {key!r}{nearest(key, known)}")
    for key in sorted(needed):
        if key not in content:
            raise FileError(f"{where} lacks {key!r}")
    return content
