"""What a person reads: the text of ``nbx explain`` at 80 columns, whole."""

from collections.abc import Callable

import numpy as np
import pytest
from click.testing import Result

import nbx_registry as nbx
from nbx_registry.op import Op, op


@op("text::twice@1(x: F[M, N], *, axis: int = 1) -> F[M, N]", flops="M * N")
def twice(x, *, axis):
    """Double each element."""
    return 2 * x


def bind(ctx: nbx.BindContext) -> nbx.Launch:
    return nbx.Launch(function=lambda x, out: np.multiply(x, 2, out=out), args=("x", "out"))


def kernel(variant: str, *when: str, preference: int = 0) -> nbx.Kernel:
    return nbx.Kernel(
        id=f"text/twice/{variant}",
        op="text::twice@1",
        backend="numpy",
        runtimes=("host",),
        bind=bind,
        when=when,
        preference=preference,
    )


class Plugin:
    name = "text"
    NBX_HOOKS = 1

    @nbx.hookimpl
    def nbx_register_ops(self) -> list[Op]:
        return [twice]

    @nbx.hookimpl
    def nbx_register_kernels(self) -> list[nbx.Kernel]:
        return [
            kernel("any"),
            kernel("preferred", preference=1),
            kernel("narrow", "N <= 256"),
            kernel("half", "x.dtype in (float16, bfloat16)"),
            kernel("first_axis", "axis == 0"),
        ]


ACCEPTED = """\
text::twice(x: float32[63, 320]) on host/cpu (require='any'): runs
  text/twice/preferred
  -> text/twice/preferred: accepted [none]; preference 1
   + text/twice/any: accepted [none]
   - text/twice/first_axis: ATTRIBUTE: axis == 0 (axis = 1) [none]
       would run if: axis == 0
   - text/twice/half: DTYPE: x.dtype in (float16, bfloat16) (x.dtype =
     float32) [none]
       would run if: x.dtype in (float16, bfloat16)
   - text/twice/narrow: SHAPE: N <= 256 (N = 320) [none]
       would run if: N <= 256
"""

REFUSED = """\
text::twice(x: float32[63, 320]) on host/cpu (require='checked'): refused: no
  kernel may run this
   - text/twice/any: EVIDENCE: require='checked' but nothing has been checked
     about it [none]
       would run if: nbx conformance run --device host/cpu --kernel
         text/twice/any passes, or require='any'
"""


@pytest.fixture
def explain(run: Callable[..., Result], with_plugins: Callable[..., None]) -> Callable[..., str]:
    with_plugins(Plugin())
    return lambda *words: run("explain", "text::twice", "float32[63, 320]", "--device", "host/cpu", *words).stdout


def test_explain_tells_the_winner_first_and_of_every_other_why_not(explain: Callable[..., str]) -> None:
    assert explain("--require", "any") == ACCEPTED


def test_explain_tells_what_nobody_has_checked_and_how_to(explain: Callable[..., str]) -> None:
    assert explain().startswith(REFUSED)
