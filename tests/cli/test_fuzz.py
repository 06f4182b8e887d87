"""Whatever is typed, the command line answers with one of its exit codes and never with a traceback of ours."""

from unittest import mock

from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import nbx_registry as nbx
from nbx_registry.cli import main

DTYPES = ("float32", "float16", "int8", "bool", "float99", "int4", "complex64")
EXTENTS = st.lists(st.one_of(st.integers(-1, 300), st.just(2**61)), max_size=5)
SPECS = st.builds(lambda dtype, shape: f"{dtype}{shape}", st.sampled_from(DTYPES), EXTENTS)
ARGUMENTS = st.one_of(
    SPECS,
    st.builds("{}={}".format, st.sampled_from(("x", "x1", "q", "mask", "nothing")), SPECS),
    st.builds("{};strides={};align={}".format, SPECS, EXTENTS, st.integers(0, 64)),
    st.sampled_from(("None", "2.5", "-1", "1e400", "[1, 2]", "'text'", "{1: 2}", "float32[", "x=", "]", "")),
    st.text(max_size=20).filter(lambda text: not text.startswith("-")),
)
OPS = ("add", "sum", "matmul", "softmax", "permute_dims", "pixel_shuffle", "scaled_dot_product_attention", "nothing")
ATTRIBUTES = ("axis=0", "axis=(0, 0)", "r=0", "r=2", "axes=(1, 0)", "dtype=float16", "scale=nan", "r=10**9", "causal=3")


@given(
    st.sampled_from(("explain", "price")),
    st.sampled_from(OPS),
    st.lists(ARGUMENTS, max_size=4),
    st.lists(st.sampled_from(ATTRIBUTES), max_size=2),
    st.sampled_from(((), ("--device", "nvidia/h200-sxm"), ("--device", "cpu"), ("--device", "nothing/here"))),
)
@settings(max_examples=150, deadline=None)
def test_any_request_gets_an_answer(
    command: str, op: str, arguments: list[str], attributes: list[str], device: tuple[str, ...]
) -> None:
    words = [command, op, *arguments, *(word for text in attributes for word in ("--attr", text)), *device]
    with mock.patch.object(nbx, "load", return_value=nbx.default()):
        result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in {0, 2, 3}, result.output
