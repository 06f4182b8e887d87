"""What a request names, as specs: spec strings, specs, arrays of any library, Python scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from nbx_registry import interop
from nbx_registry.signature import Operand
from nbx_registry.spec import TensorSpec, parse, weak_spec

WEAK = (bool, int, float, complex)
"""Types of Python scalars, which stand beside arrays."""


def describe(what: str, value: Any, places: set[str], is_list: bool) -> Operand:
    """Return what stands for a tensor in a signature; where it is an array, note its place."""
    if is_list and isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        # Whether each item may stand in a list, the contract says.
        return tuple(describe(f"{what}[{i}]", v, places, False) for i, v in enumerate(items))  # pyright: ignore[reportReturnType]
    if isinstance(value, str):
        return parse(value)
    if value is None or isinstance(value, TensorSpec):
        return value
    # NumPy's float64 is one of Python's floats too, and an array of rank 0 all the same.
    if type(value) in WEAK:
        return weak_spec(value)
    adapter = interop.adapter(value)
    if adapter is None:
        raise interop.not_a_tensor(value, what)
    value = adapter.take(value)
    places.add(adapter.place(value))
    spec = adapter.spec(value, measure_align=True)
    # As a call finds it, which looks no further than 16 bytes. What has no elements has no address.
    return spec.aligned(min(16, spec.align) if spec.size else 16)
