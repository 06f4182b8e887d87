"""A device whose time is counted and not measured: memory passes at exactly its bandwidth, through a cache.

It is the fastest that its facts allow, and its cache the kindest: kernels tell which bytes they touch and how many
operations they do, and the clock moves by what did not hit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.runtime import LiveDevice
from nbx_registry.runtimespec import RuntimeSpec
from nbx_simulated.runtime import SimulatedRuntime
from nbx_simulated.streams import SimulatedStream

BANDWIDTH = 1.0e9
PEAK = 1.0e12
CACHE = 1 << 18
LINE = 1024

FACTS = {
    "memory.bandwidth_bytes_per_s": BANDWIDTH,
    "l2.bytes": CACHE,
    "peak.vector.float32_flop_per_s": PEAK / 10,
    "peak.matrix.float32_flop_per_s": PEAK / 10,
    "peak.matrix.float16_flop_per_s": PEAK,
}

Range = tuple[int, int, Literal["read", "write"]]
"""Address, bytes, and what is done to them."""


class Cache:
    """Lines that are kept. ``keeps`` says which one goes for a new one: the oldest used, or the newest.

    Of what is gone through again and again the first keeps nothing; the second keeps all it can, which is the best that
    any cache could do.
    """

    def __init__(self, keeps: Literal["recent", "old"]) -> None:
        self._recent = keeps == "recent"
        self._lines: OrderedDict[int, bool] = OrderedDict()

    def touch(self, start: int, nbytes: int, writes: bool) -> int:
        """Return the bytes that pass through memory for a range."""
        passed = 0
        for line in range(start // LINE, -(-(start + nbytes) // LINE)) if nbytes else ():
            dirty = self._lines.pop(line, None)
            if dirty is None:
                if len(self._lines) >= CACHE // LINE:
                    passed += LINE * self._lines.popitem(last=not self._recent)[1]
                # A line is written as a whole: nothing is read for it.
                passed += 0 if writes else LINE
            self._lines[line] = bool(dirty) or writes
        return passed


class VirtualEvent:
    """The clock's reading at a point in a stream."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at: float | None = None

    def record(self, stream: SimulatedStream) -> None:
        stream.enqueue(self._read)

    def _read(self) -> None:
        self.at = self._clock.seconds

    def synchronize(self) -> None:
        """Readings are waited for with the stream."""

    def elapsed_s(self, earlier: VirtualEvent) -> float:
        assert self.at is not None
        assert earlier.at is not None
        return self.at - earlier.at


class Clock:
    """Seconds gone by, and the cache."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cache = Cache("recent")

    def work(self, ranges: Iterable[Range], flops: float = 0.0) -> None:
        """Let the time go by that a launch takes at the least."""
        passed = sum(self.cache.touch(start, nbytes, kind == "write") for start, nbytes, kind in ranges)
        self.seconds += max(passed / BANDWIDTH, flops / PEAK)


class VirtualRuntime(SimulatedRuntime):
    """One such device."""

    name = "virt"

    def __init__(self) -> None:
        super().__init__(1 << 30)
        self.clock = Clock()

    def devices(self) -> Sequence[LiveDevice]:
        return (LiveDevice(runtime="virt", index=0, name="Virtual", arch="virt_1", versions={"virtual": "1"}),)

    def event(self, device: int) -> Any:
        return VirtualEvent(self.clock)


@cache
def create() -> VirtualRuntime:
    """Return the process's one virtual runtime."""
    return VirtualRuntime()


def plugin(folder: Path, *kernels: Kernel, without: Iterable[str] = (), **hooks: Callable[[], Any]) -> SimpleNamespace:
    """Return a plugin with the runtime, a file of its device (``without`` some facts), and kernels."""
    file = folder / "virtual" / "one.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    facts = "".join(f"  {key}: {{value: {value}, source: V}}\n" for key, value in FACTS.items() if key not in without)
    head = "arch: virt_1\nruntime: virt\nevidence_class: virtual\nmatch: {names: [Virtual], archs: [virt_1]}\n"
    file.write_text(f"{head}facts:\n{facts}", "utf-8")
    (folder / "sources.yml").write_text("V: {document: These tests, publisher: nbx, read: dev}\n", "utf-8")
    found: dict[str, Callable[[], Any]] = {
        "runtimes": lambda: [RuntimeSpec(name="virt", factory="virtual_made:create")],
        "devices": lambda: [folder],
        "kernels": lambda: kernels,
        **hooks,
    }
    marked = {f"nbx_register_{kind}": hookimpl(hook, specname=f"nbx_register_{kind}") for kind, hook in found.items()}
    return SimpleNamespace(name="nbx-virtual", NBX_HOOKS=1, **marked)
