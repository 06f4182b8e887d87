"""The compiler: explicit options, whole artifacts, one compilation for equal requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton

from nbx_triton import pipeline, targets
from nbx_triton.compiler import Options, Source
from nbx_triton.triton_compiler import Triton


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache on disk, empty."""
    monkeypatch.setenv("NBX_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("target", ["sm_70", "sm_80", "sm_90", "sm_100"])
def test_an_artifact_states_what_was_made(target: str, source: Callable[..., Source], options: Options) -> None:
    made = Triton().compile(source(), target, options)
    assert (made.kind, made.entry, made.arch, made.threads) == ("cubin", "_scale", target, 64)
    assert made.toolkit == f"triton {triton.__version__}"
    assert made.parameters == 6  # four, and two pointers of Triton's own
    assert made.spills == 0
    assert made.registers is not None
    assert made.registers > 0


def test_equal_requests_are_compiled_once(
    monkeypatch: pytest.MonkeyPatch, source: Callable[..., Source], options: Options
) -> None:
    compiler = Triton()
    first = compiler.compile(source(), "sm_90", options)
    monkeypatch.setattr(pipeline, "run", None)
    assert compiler.compile(source(), "sm_90", options) is first


def test_everything_stated_tells_requests_apart(source: Callable[..., Source], options: Options) -> None:
    compiler = Triton()
    plain = compiler.compile(source(), "sm_90", options)
    others = [
        compiler.compile(source(divisible=()), "sm_90", options),
        compiler.compile(source(constants=(((4,), 128),)), "sm_90", options),
        compiler.compile(source(), "sm_80", options),
        compiler.compile(source(), "sm_90", replace(options, enable_fp_fusion=True)),
        compiler.compile(source(), "sm_90", replace(options, num_warps=4)),
    ]
    assert all(other.image != plain.image for other in others)


@pytest.mark.parametrize(
    ("factors", "compilations"),
    [((1, 1.0, True), 3), ((0.0, -0.0), 2), ((float("nan"), float("nan")), 1)],
    ids=["types", "signs-of-zero", "nan"],
)
def test_constants_are_told_apart_as_the_code_is(
    monkeypatch: pytest.MonkeyPatch,
    factors: tuple[float, ...],
    compilations: int,
    source: Callable[..., Source],
    options: Options,
) -> None:
    ran: list[Any] = []
    run = pipeline.run
    monkeypatch.setattr(pipeline, "run", lambda *asked: ran.append(asked) or run(*asked))
    compiler = Triton()
    fixed = (("x", "*fp32"), ("out", "*fp32"), ("factor", "constexpr"), ("count", "i32"), ("BLOCK", "constexpr"))
    for factor in factors:
        compiler.compile(source(signature=fixed, constants=(((2,), factor), ((4,), 256))), "sm_90", options)
    assert len(ran) == compilations


def test_contraction_is_what_was_asked_for(
    sass: Callable[[bytes], str], source: Callable[..., Source], options: Options
) -> None:
    for fused in (True, False):
        made = Triton().compile(source(), "sm_90", replace(options, enable_fp_fusion=fused))
        assert ("FFMA" in sass(made.image)) is fused
        assert ("FMUL" in sass(made.image)) is not fused


def test_a_source_that_does_not_compile_raises_what_triton_raises(
    source: Callable[..., Source], options: Options
) -> None:
    with pytest.raises(triton.CompilationError):
        Triton().compile(source(constants=(((4,), 100),)), "sm_90", options)


def test_the_least_recently_used_artifact_goes_first(source: Callable[..., Source], options: Options) -> None:
    compiler = Triton(keep=2)
    first = compiler.compile(source(), "sm_90", options)
    second = compiler.compile(source(), "sm_80", options)
    assert compiler.compile(source(), "sm_90", options) is first
    compiler.compile(source(), "sm_70", options)
    assert compiler.compile(source(), "sm_90", options) is first
    # It comes from the disk, as another object.
    again = compiler.compile(source(), "sm_80", options)
    assert again == second
    assert again is not second


def test_an_arch_specific_target_is_that_capability() -> None:
    assert targets.of("sm_90a").triton.arch == 90
    assert [targets.capability(name) for name in ("sm_90a", "sm_100", "gfx942", "sm_90b")] == [90, 100, None, None]
