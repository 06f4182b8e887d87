"""Sixty-four threads and sixteen processes that decide and call at once all get the one answer."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

import nbx_acme.plugin
import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.errors import NbxError, Refused, SignatureError
from nbx_registry.registry import Registry, set_default

HERE = Path(__file__).parent
THREADS, PROCESSES = 64, 16

DECISIONS = [
    ("add", ("float32[{n}, 63]", "float32[63]"), "sim/loopback", {}),
    ("add", ("float32[{n}]", "float32[{n}]"), "acme/one", {}),
    ("linear", ("float32[{n}, 63]", "float32[5, 63]"), "acme/one", {}),
    ("softmax", ("float16[3, {n}]",), "cpu", {}),
    ("sqrt", ("float32[{n}]",), "nvidia/h200-sxm", {}),
    ("matmul", ("float32[7, {n}]", "float32[{n}, 5]"), "sim/loopback-large", {}),
    ("sum", ("int32[{n}, 9]",), "cpu", {"axis": 0}),
]


def load() -> Registry:
    return nbx.load(plugins=[nbx_simulated.plugin, nbx_acme.plugin], require="any")


@pytest.fixture
def registry():
    """A fresh registry, so that everything it caches is met for the first time by many at once."""
    made = load()
    before = set_default(made)
    yield made
    set_default(before)


def decide(registry: Registry, turn: int) -> str:
    op, specs, device, attributes = DECISIONS[turn % len(DECISIONS)]
    given = [spec.format(n=1 + turn % 50) for spec in specs]
    return json.dumps(registry.decide(op, *given, device=device, **attributes).to_dict(), sort_keys=True)


def compute(turn: int, place: str) -> bytes:
    x = np.random.default_rng(turn % 40).standard_normal((1 + turn % 5, 9)).astype(np.float32)
    tensor = x if place == "cpu" else nbx.asarray(x, device=place)
    ops = nbx.ops
    y = ops.add(ops.multiply(tensor, 2.0), tensor) if place != "acme:0" else ops.add(ops.add(tensor, tensor), tensor)
    return np.ascontiguousarray(y if isinstance(y, np.ndarray) else y.numpy()).tobytes()


def at_once(work, count: int = THREADS) -> None:
    """Run ``work(number)`` in so many threads, started together; raise the first thing that any raised."""
    start = threading.Barrier(count)
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            start.wait(timeout=120)
            work(number)
        except BaseException as error:  # noqa: BLE001 (told by the main thread)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_threads_deciding_at_once_agree(registry):
    expected = [decide(load(), turn) for turn in range(70)]

    def work(number: int) -> None:
        for step in range(70):
            turn = (number * 11 + step) % 70
            assert decide(registry, turn) == expected[turn]

    at_once(work)


@pytest.mark.parametrize("place", ["cpu", "sim:0", "sim:1", "acme:0"])
def test_threads_calling_at_once_agree(registry, place):
    expected = {turn: compute(turn, "cpu") for turn in range(40)}
    set_default(load())

    def work(number: int) -> None:
        for step in range(10):
            turn = (number * 7 + step) % 40
            assert compute(turn, place) == expected[turn]

    at_once(work)


def test_threads_that_mix_deciding_calling_binding_and_erring_agree(registry):
    x = np.arange(63, dtype=np.float32)

    def work(number: int) -> None:
        match number % 4:
            case 0:
                decide(registry, number)
            case 1:
                tensor = nbx.asarray(x, device=f"sim:{number // 4 % 2}")
                bound = registry.bind("add", tensor, tensor, out=nbx.empty(63, device=tensor.device))
                for _ in range(5):
                    bound()
                    assert bound.kernel == "nbx-simulated/add/loopback"
            case 2:
                with pytest.raises(SignatureError):
                    registry.call("add", x, x[:5])
            case 3:
                with pytest.raises(Refused):
                    registry.call("sqrt", nbx.asarray(x, device="acme:0"))

    at_once(work)


def test_the_counters_miss_no_call(registry):
    x = np.arange(5, dtype=np.float32)
    at_once(lambda _: [registry.call("add", x, x) for _ in range(100)])
    assert sum(row.calls for row in registry.ran() if row.op.startswith("add")) == 100 * THREADS


def test_the_first_use_of_the_process_registry_makes_one(registry):
    set_default(None)
    made: list[object] = []
    at_once(lambda _: made.append(nbx.ops.add(np.ones(2), np.ones(2), require="any").tolist()))
    from nbx_registry.registry import default

    assert made == [[2.0, 2.0]] * THREADS
    assert isinstance(default(), Registry)


def test_processes_agree(acme_folder):
    script = textwrap.dedent(
        f"""
        import sys
        sys.path[:0] = {[str(HERE), str(HERE / "nbx-simulated"), str(acme_folder)]!r}
        import test_concurrency
        print(test_concurrency.digest())
        """
    )
    command = [sys.executable, "-c", script]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    outputs = [process.communicate(timeout=300)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    assert set(outputs) == {digest()}


def digest() -> str:
    """Return a digest of many decisions and results."""
    registry = load()
    before = set_default(registry)
    try:
        hasher = hashlib.sha256()
        for turn in range(70):
            hasher.update(decide(registry, turn).encode())
        for place in ("cpu", "sim:0", "sim:1", "acme:0"):
            for turn in range(10):
                hasher.update(compute(turn, place))
        try:
            registry.call("add", np.ones(3), np.ones(4))
        except NbxError as error:
            hasher.update(str(error).encode())
        return hasher.hexdigest()
    finally:
        set_default(before)
