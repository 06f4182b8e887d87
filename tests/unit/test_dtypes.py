"""The dtype table: read when asked for, its codes against DLPack's header and the safetensors library."""

from __future__ import annotations

import json
import pickle
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
import torch

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import DuplicateError, SpecError, UnknownName

CODES = {"int": "kDLInt", "uint": "kDLUInt", "float": "kDLFloat", "complex": "kDLComplex", "bool": "kDLBool"}
"""What DLPack's header calls a kind, where a dtype has no code of its own."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(dtypes._table, "rows", dict(dtypes._table.read()))


def test_the_table_is_read_when_a_dtype_is_asked_for() -> None:
    code = (
        "import sys; from nbx_registry import dtypes, spec, expr, schema\n"
        "before = 'yaml' in sys.modules; dtypes.get('int4'); print(before, 'yaml' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


def test_loading_a_registry_asks_for_none() -> None:
    code = "import sys, nbx_registry; nbx_registry.load(); print('yaml' in sys.modules)"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_threads_that_ask_first_see_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = dtypes._Table()
    seen: list[DType] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        seen.append(fresh["int4"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert all(dtype is seen[0] for dtype in seen)


def test_the_codes_are_those_of_the_dlpack_header() -> None:
    header = (Path(torch.__file__).parent / "include/ATen/dlpack.h").read_text()
    codes = {name: int(value) for name, value in re.findall(r"(kDL\w+) = (\d+)U,", header)}
    assert codes["kDLInt"] == 0
    for name, dtype in dtypes.TABLE.items():
        # kDLBfloat is the one named after no width; the narrow formats carry their whole name.
        own = {"bfloat16": "kDLBfloat"}.get(name, f"kDL{name.capitalize()}")
        assert dtype.dlpack == (codes.get(own, codes[CODES[dtype.kind]]), dtype.bits), name


@pytest.mark.parametrize("name", [name for name, dtype in dtypes.TABLE.items() if dtype.safetensors])
def test_the_safetensors_library_knows_each_code_and_its_width(name: str) -> None:
    dtype = dtypes.get(name)
    nbytes = dtype.nbytes(6)
    header = json.dumps({"x": {"dtype": dtype.safetensors, "shape": [6], "data_offsets": [0, nbytes]}}).encode()
    read = dict(safetensors.deserialize(struct.pack("<Q", len(header)) + header + bytes(nbytes)))
    assert len(read["x"]["data"]) == nbytes


def test_only_integers_of_four_bits_have_no_safetensors_code() -> None:
    assert {name for name, dtype in dtypes.TABLE.items() if dtype.safetensors is None} == {"int4", "uint4"}


@pytest.mark.parametrize("name", dtypes.TABLE)
def test_names_and_widths_are_numpys(name: str) -> None:
    dtype = dtypes.get(name)
    assert dtypes.of_numpy(dtype.numpy) is dtype
    assert dtype.numpy.name == name
    assert dtype.numpy.itemsize == dtype.itemsize
    if dtype.floating:
        assert ml_dtypes.finfo(dtype.numpy).bits == dtype.bits
    if dtype.integral:
        assert ml_dtypes.iinfo(dtype.numpy).bits == dtype.bits


def test_packed_dtypes_fill_bytes() -> None:
    assert [dtypes.get("int4").nbytes(n) for n in (0, 1, 2, 63, 64)] == [0, 1, 1, 32, 32]
    assert {name for name, dtype in dtypes.TABLE.items() if dtype.packed} == {"int4", "uint4", "float4_e2m1fn"}


def test_unknown_names_are_told_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"'bfloat61'.*did you mean 'bfloat16'.*dtypes\.yml"):
        dtypes.get("bfloat61")
    with pytest.raises(UnknownName, match="complex128"):
        dtypes.of_numpy(np.dtype(np.complex128))
    with pytest.raises(UnknownName):
        dtypes.of_numpy(np.dtype(">f4"))
    assert dtypes.of_dlpack(3, 64) is None


def test_dtypes_are_the_same_object_after_pickling() -> None:
    assert pickle.loads(pickle.dumps(dtypes.get("float8_e5m2"))) is dtypes.get("float8_e5m2")


def made(**facts: object) -> DType:
    return DType(**{"name": "acme6", "kind": "float", "bits": 6, "key": "acme6", **facts})  # type: ignore[arg-type]


def test_a_plugin_adds_a_dtype_for_every_registry_of_the_process(table: None) -> None:
    theirs = made(dlpack=(200, 6))
    dtypes.register(theirs)
    assert dtypes.get("acme6") is theirs
    assert dtypes.of_dlpack(200, 6) is theirs
    with pytest.raises(SpecError, match="acme6 has no NumPy dtype"):
        theirs.numpy  # noqa: B018
    # Once more, as another load does: the first object stays the dtype.
    dtypes.register(made(dlpack=(200, 6)))
    assert dtypes.get("acme6") is theirs


@pytest.mark.parametrize("name", ["ml_dtypes:acme6", "nowhere_at_all:acme6", "math:pi", "numpy:acme6"])
def test_a_numpy_type_that_is_not_there_is_told_and_hides_no_other(name: str, table: None) -> None:
    theirs = made(numpy_name=name)
    dtypes.register(theirs)
    with pytest.raises(SpecError, match=f"dtype acme6: '{name}' is no NumPy scalar type"):
        theirs.numpy  # noqa: B018
    with pytest.raises(UnknownName, match="complex128"):
        dtypes.of_numpy(np.dtype(np.complex128))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"name": "int4"}, "'int4' is already in the table with other facts"),
        ({"key": "f16"}, "repeats the key 'f16' of 'float16'"),
        ({"dlpack": (4, 16)}, r"repeats the DLPack type \(4, 16\) of 'bfloat16'"),
        ({"safetensors": "BF16"}, "repeats the safetensors name 'BF16' of 'bfloat16'"),
    ],
    ids=["name", "key", "dlpack", "safetensors"],
)
def test_a_dtype_that_would_be_mistaken_for_another_is_refused(
    facts: dict[str, object], words: str, table: None
) -> None:
    before = dict(dtypes.TABLE)
    with pytest.raises(DuplicateError, match=words):
        dtypes.register(made(**facts))
    assert dict(dtypes.TABLE) == before
