"""Builds of Triton kernels for every architecture, within a budget of time: what changed, and a sample of the rest.

    python plugins/nbx-triton/tests/builds.py --seconds 90
    python plugins/nbx-triton/tests/builds.py --seconds 3600 --kernel 'nbx-triton/softmax/*' --device amd/mi300x

A build is one kernel for one architecture on one case, as ``nbx conformance run --via build`` makes it, held against
the limits of that architecture's device file. First come kernels whose code no bundle that is shipped is about, for up
to four fifths of the time; then, in an order that changes from day to day, the others. Each architecture gets one case
of a kernel before any gets a second.
Cases are representatives: one of each combination of dtypes. What there was no time for is said. Exit codes: 0 all that
was built fits, 3 something does not, or there was time for nothing.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

import triton

import nbx_registry as nbx
from nbx_conformance.cases import Case
from nbx_conformance.problems.representatives import Representatives
from nbx_conformance.runs import runner
from nbx_conformance.runs.route import find
from nbx_conformance.trials.trial import Site
from nbx_registry import digest
from nbx_registry.kernel import Kernel

DEVICES = (
    "nvidia/v100-sxm2-16gb",
    "nvidia/t4",
    "nvidia/a100-sxm4-80gb",
    "nvidia/l40s",
    "nvidia/h200-sxm",
    "nvidia/b200",
    "nvidia/rtx-5090",
    "amd/mi250x",
    "amd/mi300x",
)
"""A product of each architecture that kernels are built for."""


class Pair:
    """One kernel and one device that it is to be built for.

    Attributes
    ----------
    built : int
        Cases built so far.
    over : bool
        Whether all its cases were.
    """

    def __init__(self, kernel: Kernel, site: Site, seed: int) -> None:
        self.kernel = kernel
        self.site = site
        self.built = 0
        self.over = False
        self._seed = seed
        self._cases: list[Case] | None = None

    def next(self) -> Case | None:
        """Return the next case to build, None when all are built."""
        if self._cases is None:
            cases = {case.id: case for case in self.site.cases.of(self.kernel.op, "full")}
            names = Representatives(self.site.registry, self.site.cases, self.site.target).of(self.kernel)
            self._cases = [cases[name] for name in names]
            random.Random(f"{self._seed} {self}").shuffle(self._cases)
        self.over = not self._cases
        return self._cases.pop() if self._cases else None

    def __str__(self) -> str:
        return f"{self.kernel.id} for {self.site.target.name}"


def shipped_digests(registry: nbx.Registry) -> dict[str, set[str]]:
    """Return the digests of code, by kernel, that bundles which plugins hand over are about."""
    found: dict[str, set[str]] = {}
    folders = [folder for plugin in registry.catalog.active for folder in plugin.evidence]
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        for kernel, record in json.loads(path.read_text("utf-8"))["kernels"].items():
            found.setdefault(kernel, set()).add(record["kernel_digest"])
    return found


def changed(registry: nbx.Registry, kernels: list[Kernel]) -> set[str]:
    """Return the ids of kernels whose code no shipped bundle is about."""
    known = shipped_digests(registry)
    return {k.id for k in kernels if digest.source_digest(str(k.bind)) not in known.get(k.id, ())}


def in_turn(pairs: Sequence[Pair], order: random.Random) -> list[Pair]:
    """Return pairs so that every kernel comes once before one comes again, its devices in any order."""
    by_kernel: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_kernel.setdefault(pair.kernel.id, []).append(pair)
    for own in by_kernel.values():
        order.shuffle(own)
    kernels = list(by_kernel.values())
    order.shuffle(kernels)
    return [pair for turn in itertools.zip_longest(*kernels) for pair in turn if pair is not None]


def build(waiting: Sequence[Pair], until: float) -> Iterator[str]:
    """Build one case of each pair, then another of each, until the time is over; yield what does not fit."""
    left = list(waiting)
    while left:
        again: list[Pair] = []
        for pair in left:
            if time.monotonic() > until:
                return
            case = pair.next()
            if case is None:
                continue
            record = runner.execute(pair.site, runner.Item(pair.kernel, case))
            pair.built += 1
            again.append(pair)
            if record.verdict in ("fail", "error"):
                yield f"{pair} on {case.id}: {record.verdict}: {'; '.join(record.details.values())}"
        left = again


def main() -> int:
    """Build until the time is over, and say what was found and what was left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=90, help="what there is time for")
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400), help="of the order; one a day")
    parser.add_argument("--device", action="append", help="instead of one product of every architecture")
    parser.add_argument("--kernel", default="*", help="a pattern of ids")
    asked = parser.parse_args()
    began = time.monotonic()
    registry = nbx.load()
    cases = runner.case_table(registry)
    sites = [find(registry, device, "build").site(registry, cases) for device in asked.device or DEVICES]
    kernels = [
        kernel
        for kernel in sorted(registry.catalog.kernels.values(), key=lambda kernel: kernel.id)
        if kernel.backend == "triton" and fnmatch.fnmatch(kernel.id, asked.kernel)
    ]
    new = changed(registry, kernels)
    pairs = [Pair(kernel, site, asked.seed) for kernel in kernels for site in sites if site.reaches(kernel)]
    order = random.Random(asked.seed)
    first = in_turn([pair for pair in pairs if pair.kernel.id in new], order)
    rest = in_turn([pair for pair in pairs if pair.kernel.id not in new], order)
    failures, share = 0, 0.8 if rest else 1
    end = began + asked.seconds
    turns = (first, began + share * asked.seconds), (rest, end), (first, end)
    for failure in itertools.chain.from_iterable(build(these, until) for these, until in turns):
        failures += 1
        print(failure, flush=True)
    built = sum(pair.built for pair in pairs)
    print(f"triton {triton.__version__}: {built} built in {time.monotonic() - began:.0f} s, {failures} failed")
    for what, those in (("in no bundle", first), ("in a bundle", rest)):
        print(f"kernels whose code is {what}: {sum(p.built > 0 for p in those)} of {len(those)} for a device built")
        reached = {pair.kernel.id for pair in those if pair.built}
        left = sorted({pair.kernel.id for pair in those if not pair.over} - reached)
        if left:
            print(f"  left out for lack of time, on all devices: {', '.join(left)}")
        untried = sorted({pair.kernel.id for pair in those if pair.over} - reached - set(left))
        if untried:
            print(f"  no case of smoke or full size is for: {', '.join(untried)}")
    print(f"again: --seed {asked.seed}")
    return 3 if failures or not built else 0


if __name__ == "__main__":
    # What another run kept would not be built.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NBX_CACHE_DIR"] = folder
        sys.exit(main())
