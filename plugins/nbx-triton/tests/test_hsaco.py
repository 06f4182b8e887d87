"""An AMD code object is read whole or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nbx_registry.launch import Artifact
from nbx_triton import hsaco, pipeline, targets
from nbx_triton.compiler import Options, Source


@pytest.fixture(scope="module")
def image(source: Callable[..., Source], options: Options) -> bytes:
    return pipeline.run(source(), targets.of("gfx942"), options).image


def test_facts_of_a_kernel(image: bytes) -> None:
    facts = hsaco.read(image, "_scale")
    assert 1 <= facts.registers <= 512
    assert 1 <= facts.scalar_registers <= 102
    assert (facts.local_bytes, facts.shared_bytes) == (0, 0)
    # x, out, factor, count, and two hidden pointers.
    assert facts.parameters == 6
    assert (facts.wave, facts.threads) == (64, 128)
    assert facts.target.endswith("gfx942")


def test_every_prefix_is_refused(image: bytes) -> None:
    for length in range(0, len(image), 37):
        with pytest.raises(hsaco.HsacoError):
            hsaco.read(image[:length], "_scale")
    with pytest.raises(hsaco.HsacoError, match="cut short"):
        hsaco.read(image[:-1], "_scale")


def test_another_file_is_refused(source: Callable[..., Source], options: Options) -> None:
    cubin = pipeline.run(source(), targets.of("sm_90"), options).image
    with pytest.raises(hsaco.HsacoError, match="not a code object"):
        hsaco.read(cubin, "_scale")


def test_a_missing_kernel_is_named(image: bytes) -> None:
    with pytest.raises(hsaco.HsacoError, match="no kernel 'gelu'; it has _scale"):
        hsaco.read(image, "gelu")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x7f", 127),
        (b"\xe0", -32),
        (b"\xcd\x01\x00", 256),
        (b"\xd3" + b"\xff" * 8, -1),
        (b"\x92\xa1a\xc3", ["a", True]),
        (b"\xdc\x00\x01\xc0", [None]),
        (b"\xde\x00\x01\xd9\x01b\x05", {"b": 5}),
    ],
)
def test_the_metadatas_encoding(data: bytes, value: object) -> None:
    assert hsaco._unpack(data, 0) == (value, len(data))


def test_metadata_of_another_kind_is_refused() -> None:
    with pytest.raises(hsaco.HsacoError, match="unknown kind, 0xca"):
        hsaco._unpack(b"\xca\0\0\0\0", 0)


def test_no_artifact_is_made_of_code_that_is_not_whole(
    monkeypatch: pytest.MonkeyPatch, image: bytes, source: Callable[..., Source], options: Options
) -> None:
    from nbx_triton.triton_compiler import Triton

    made = pipeline.run(source(), targets.of("gfx942"), options)
    monkeypatch.setattr(pipeline, "run", lambda *_: pipeline.Made(image[:-1], made.metadata))
    with pytest.raises(hsaco.HsacoError, match="cut short"):
        Triton()._made(source(), targets.of("gfx942"), options)
    monkeypatch.setattr(pipeline, "run", lambda *_: made)
    assert isinstance(Triton()._made(source(), targets.of("gfx942"), options), Artifact)
