"""Prices: exact figures, floors from facts, and what is missing named."""

from __future__ import annotations

import pytest

import nbx_registry as nbx

H200 = "nvidia/h200-sxm"


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


def test_figures_are_exact_integers_and_need_no_device(reg: nbx.Registry) -> None:
    price = reg.price("matmul", "float16[127, 63]", "float16[63, 1000]")
    assert price.flops == price.least_flops == 2 * 127 * 63 * 1000
    assert price.bytes_read == 2 * (127 * 63 + 63 * 1000)
    assert price.bytes_written == 2 * 127 * 1000
    assert price.least_bytes == price.bytes_read + price.bytes_written
    assert [str(spec) for spec in price.outputs] == ["float16[127, 1000]"]
    for ask in (lambda: price.floor_s, lambda: price.workspace):
        with pytest.raises(nbx.MissingFact, match="device="):
            ask()


def test_the_floor_is_the_larger_of_bytes_and_operations(reg: nbx.Registry) -> None:
    facts = reg.devices[H200]
    bandwidth = facts.fact("memory.bandwidth_bytes_per_s")
    memory = reg.price("add", "float32[1000, 1000]", "float32[1000, 1000]", device=H200)
    assert memory.floor() == (pytest.approx(12_000_000 / bandwidth), "memory")
    work = reg.price("matmul", "float16[4096, 4096]", "float16[4096, 4096]", device=H200)
    peak = facts.fact("peak.matrix.float16_flop_per_s")
    assert work.floor() == (pytest.approx(2 * 4096**3 / peak), "matrix")


def test_a_rate_is_asked_for_only_where_there_is_work(reg: nbx.Registry) -> None:
    assert reg.price("permute_dims", "float32[3, 5]", axes=(1, 0), copy=True, device=H200).floor_s > 0
    assert reg.price("add", "float32[0]", "float32[0]", device=H200).floor_s == 0


def test_a_missing_fact_is_named_when_it_is_asked_for(reg: nbx.Registry) -> None:
    price = reg.price("matmul", "float8_e4m3fn[64, 64]", "float8_e4m3fn[64, 64]", device="host/cpu")
    assert price.flops == 2 * 64**3
    with pytest.raises(nbx.MissingFact, match=r"memory\.bandwidth_bytes_per_s"):
        _ = price.floor_s


def test_a_refused_request_is_priced_all_the_same(reg: nbx.Registry) -> None:
    price = nbx.load(block=list(reg.kernels)).price("add", "float32[63]", "float32[63]", device=H200)
    assert price.floor_s > 0
    assert price.decision is not None
    assert price.decision.chosen is None
    with pytest.raises(nbx.Refused, match="BLOCKED"):
        _ = price.workspace


def test_a_pin_that_is_no_kernel_is_named(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.UnknownName, match="did you mean 'nbx-host/add/numpy'"):
        reg.price("add", "float32[63]", "float32[63]", device=H200, kernel="nbx-host/add/nmpy")
