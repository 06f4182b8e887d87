"""Kernels of a CUDA card beside their peers and beside a copy of the same bytes, cold: ``docs/performance.md``.

    python benchmarks/gpu_kernels.py [--only TEXT ...] [--json FILE] [--markdown FILE] [--check]

Needs torch with CUDA; other peers are timed where they are installed. A row's limit is a share of the bandwidth of a
device copy of the op's least bytes, a multiple of the fastest peer's speed, or a time; ``--check`` exits 1 where one is
missed. Each result is compared with a peer's that computes the same before it is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from gpu_cases import CASES, Case
from gpu_timing import Timer

import nbx_registry as nbx

US = "us"
"""The limit that is a time; the others are shares, of which more is better."""

CLOSE = 2e-2
"""Largest difference from a peer, relative to the largest element: a wrong result is off by more, rounding by less."""


class Wrong(Exception):
    """A result is not the one that a peer computes."""


@dataclass(frozen=True)
class Row:
    """What one case came to."""

    label: str
    kernel: str
    seconds: float
    copy: float
    """Seconds of a copy of the least bytes."""
    floor: float | None
    """Seconds below which the device file lets nothing go."""
    peers: Mapping[str, float]
    limits: Mapping[str, tuple[float, float]]
    """By name what was asked for, and what was measured."""

    @property
    def missed(self) -> list[str]:
        """Names of the limits that do not hold."""
        return [
            name
            for name, (wanted, found) in self.limits.items()
            if (found > wanted if name == "us" else found < wanted)
        ]

    @property
    def best(self) -> tuple[str, float] | None:
        """The fastest peer and its seconds."""
        return min(self.peers.items(), key=lambda item: item[1], default=None)


def run(registry: nbx.Registry, timer: Timer, label: str, case: Case) -> Row:
    """Bind, compare and time one case."""
    bound = registry.bind(case.op, *case.tensors, kernel=case.kernel, **case.attributes)
    result = bound()
    if case.compared is not None:
        _compare(result, case.peers[case.compared]())
    del result
    cost = bound.cost
    nbytes = case.nbytes or cost.least_bytes
    others = {name: way for name, way in case.peers.items() if _runs(label, name, way)}
    ways: dict[str, Callable[[], object]] = {"ours": bound, "copy": timer.copy(nbytes), **others}
    seconds = timer.medians(ways)
    ours, copy = seconds.pop("ours"), seconds.pop("copy")
    limits: dict[str, tuple[float, float]] = {}
    if case.copy is not None:
        limits["of copy"] = (case.copy, copy / ours)
    if case.best is not None and seconds:
        limits["of best"] = (case.best, min(seconds.values()) / ours)
    if case.seconds is not None:
        limits[US] = (case.seconds * 1e6, ours * 1e6)
    return Row(label, bound.kernel, ours, copy, _floor(registry, case), seconds, limits)


def _floor(registry: nbx.Registry, case: Case) -> float | None:
    price = registry.price(case.op, *case.tensors, device="cuda:0", kernel=case.kernel, **case.attributes)
    try:
        return price.floor_s
    except nbx.MissingFact:
        return None


def _runs(label: str, name: str, way: Callable[[], object]) -> bool:
    try:
        way()
    except Exception as error:  # noqa: BLE001 - a peer's code may raise anything
        print(f"{label}: {name} is left out: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _compare(ours: Any, theirs: Any) -> None:
    a, b = (torch.view_as_real(t) if t.is_complex() else t for t in (ours, theirs))
    a, b = a.double().reshape(-1)[: 1 << 26], b.double().reshape(-1)[: 1 << 26]
    away = float((a - b).abs().max() / b.abs().max())
    if not away <= CLOSE:
        raise Wrong(f"our result is {away:.3g} of the largest element away from the peer's")


def table(rows: list[Row]) -> str:
    """Return rows as a Markdown table; limits that are missed in bold."""
    lines = ["| work | kernel | time | of copy | best peer | limit |", "|---|---|---|---|---|---|"]
    for row in rows:
        best = row.best
        peer = f"{best[0]} {best[1] * 1e6:.1f} us ({best[1] / row.seconds:.2f})" if best else ""
        said = [f"{wanted:.3g} {name}" for name, (wanted, _) in row.limits.items()]
        said = [
            f"**{text}, missed**" if name in row.missed else text for name, text in zip(row.limits, said, strict=True)
        ]
        kernel = row.kernel.removeprefix("nbx-triton/")
        lines.append(
            f"| {row.label} | `{kernel}` | {row.seconds * 1e6:.1f} us | {row.copy / row.seconds:.2f} | {peer} | "
            f"{'; '.join(said)} |"
        )
    return "\n".join(lines)


def _keep(figures: Path | None, page: Path | None, rows: list[Row], failed: Mapping[str, str]) -> None:
    """Write what there is so far: a run that is cut off leaves its rows."""
    if figures:
        figures.write_text(json.dumps({"rows": [asdict(row) for row in rows], "failed": failed}, indent=1), "utf-8")
    if page:
        page.write_text(table(rows) + "\n", "utf-8")


def main() -> int:
    """Time what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose label contains one of these")
    parser.add_argument("--json", type=Path, help="every figure")
    parser.add_argument("--markdown", type=Path, help="the table")
    parser.add_argument("--require", default="any", help="level of evidence that kernels must have")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is missed")
    options = parser.parse_args()
    torch.manual_seed(0)
    registry = nbx.load(require=options.require)
    timer = Timer(torch.device("cuda:0"))
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for label, make in CASES.items():
        if not any(text in label for text in options.only):
            continue
        try:
            rows.append(run(registry, timer, label, make()))
        except (nbx.NbxError, Wrong, torch.cuda.OutOfMemoryError) as error:
            failed[label] = f"{type(error).__name__}: {error}"
            print(f"{label}: {failed[label]}", file=sys.stderr, flush=True)
            _keep(options.json, options.markdown, rows, failed)
            continue
        row = rows[-1]
        others = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in row.peers.items())
        missed = f"  MISSED {', '.join(row.missed)}" if row.missed else ""
        print(
            f"{row.seconds * 1e6:9.1f} us  copy {row.copy * 1e6:8.1f}  {label} [{row.kernel}] {others}{missed}",
            flush=True,
        )
        torch.cuda.empty_cache()
        _keep(options.json, options.markdown, rows, failed)
    return int(bool(failed) or (options.check and any(row.missed for row in rows)))


if __name__ == "__main__":
    sys.exit(main())
