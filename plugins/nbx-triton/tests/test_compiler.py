"""The compiler: explicit options, whole artifacts, one compilation for equal requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from nbx_triton import pipeline, targets
from nbx_triton.compiler import Options, Source
from nbx_triton.triton_compiler import Triton

OPTIONS = Options(num_warps=2, num_stages=1, enable_fp_fusion=False)


@triton.jit
def scale(x, out, factor, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < count)
    tl.store(out + index, value * factor + 1.0, mask=index < count)


def source(**changes: Any) -> Source:
    plain = Source(
        function=scale,
        signature=(("x", "*fp32"), ("out", "*fp32"), ("factor", "fp32"), ("count", "i32"), ("BLOCK", "constexpr")),
        constants=(((4,), 256),),
        divisible=((0,), (1,)),
    )
    return replace(plain, **changes)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache on disk, empty."""
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("target", ["sm_70", "sm_80", "sm_90", "sm_100"])
def test_an_artifact_states_what_was_made(target: str) -> None:
    made = Triton().compile(source(), target, OPTIONS)
    assert (made.kind, made.entry, made.arch, made.threads) == ("cubin", "scale", target, 64)
    assert made.toolkit == f"triton {triton.__version__}"
    assert made.parameters == 6  # four, and two pointers of Triton's own
    assert made.spills == 0
    assert made.registers is not None
    assert made.registers > 0


def test_equal_requests_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Triton()
    first = compiler.compile(source(), "sm_90", OPTIONS)
    monkeypatch.setattr(pipeline, "run", None)
    assert compiler.compile(source(), "sm_90", OPTIONS) is first


def test_everything_stated_tells_requests_apart() -> None:
    compiler = Triton()
    plain = compiler.compile(source(), "sm_90", OPTIONS)
    others = [
        compiler.compile(source(divisible=()), "sm_90", OPTIONS),
        compiler.compile(source(constants=(((4,), 128),)), "sm_90", OPTIONS),
        compiler.compile(source(), "sm_80", OPTIONS),
        compiler.compile(source(), "sm_90", replace(OPTIONS, enable_fp_fusion=True)),
        compiler.compile(source(), "sm_90", replace(OPTIONS, num_warps=4)),
    ]
    assert all(other.image != plain.image for other in others)


@pytest.mark.parametrize(
    ("factors", "compilations"),
    [((1, 1.0, True), 3), ((0.0, -0.0), 2), ((float("nan"), float("nan")), 1)],
    ids=["types", "signs-of-zero", "nan"],
)
def test_constants_are_told_apart_as_the_code_is(
    monkeypatch: pytest.MonkeyPatch, factors: tuple[float, ...], compilations: int
) -> None:
    ran: list[Any] = []
    run = pipeline.run
    monkeypatch.setattr(pipeline, "run", lambda *asked: ran.append(asked) or run(*asked))
    compiler = Triton()
    fixed = (("x", "*fp32"), ("out", "*fp32"), ("factor", "constexpr"), ("count", "i32"), ("BLOCK", "constexpr"))
    for factor in factors:
        compiler.compile(source(signature=fixed, constants=(((2,), factor), ((4,), 256))), "sm_90", OPTIONS)
    assert len(ran) == compilations


def test_contraction_is_what_was_asked_for(sass: Callable[[bytes], str]) -> None:
    for fused in (True, False):
        made = Triton().compile(source(), "sm_90", replace(OPTIONS, enable_fp_fusion=fused))
        assert ("FFMA" in sass(made.image)) is fused
        assert ("FMUL" in sass(made.image)) is not fused


def test_a_source_that_does_not_compile_raises_what_triton_raises() -> None:
    with pytest.raises(triton.CompilationError):
        Triton().compile(source(constants=(((4,), 100),)), "sm_90", OPTIONS)


def test_the_least_recently_used_artifact_goes_first() -> None:
    compiler = Triton(keep=2)
    first = compiler.compile(source(), "sm_90", OPTIONS)
    compiler.compile(source(), "sm_80", OPTIONS)
    assert compiler.compile(source(), "sm_90", OPTIONS) is first
    compiler.compile(source(), "sm_70", OPTIONS)
    assert compiler.compile(source(), "sm_90", OPTIONS) is first


def test_an_arch_specific_target_is_that_capability() -> None:
    assert targets.of("sm_90a").triton.arch == 90
    assert [targets.capability(name) for name in ("sm_90a", "sm_100", "gfx942", "sm_90b")] == [90, 100, None, None]
