"""Pricing a plan of 10,000 nodes in one go, for a card that is not there: `python benchmarks/plan_price.py`.

The plan is a network of layers alike, as models are; every figure is asked for. Exits 1 if the median, of the
processor's time, passes the limit. A plan whose nodes all differ is timed beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median

import nbx_registry as nbx

H200 = "nvidia/h200-sxm"
NODES = 10_000


def network(reg: nbx.Registry, *, rows: Callable[[int], int]) -> nbx.Plan:
    """Return a plan of 10,000 nodes; ``rows(n)`` are the rows of layer n."""
    draft = reg.draft(H200)
    for layer in range(NODES // 10):
        n = rows(layer)
        x = draft.given(f"float16[{n}, 1024]")
        y = draft.call("layer_norm", x, "float16[1024]", "float16[1024]")
        q, k, v = (draft.call("linear", y, "float16[1024, 1024]", "float16[1024]") for _ in range(3))
        heads = [draft.permute(draft.reshape(t, (1, n, 16, 64)), (0, 2, 1, 3)) for t in (q, k, v)]
        y = draft.call("scaled_dot_product_attention", *heads, causal=True)
        y = draft.call("linear", draft.given(f"float16[{n}, 1024]"), "float16[1024, 1024]", "float16[1024]")
        x = draft.call("add", x, y)
        y = draft.call("linear", x, "float16[4096, 1024]", "float16[4096]", activation="gelu")
        y = draft.call("linear", y, "float16[1024, 4096]", "float16[1024]")
        draft.call("add", x, y)
    return draft.plan


def figures(reg: nbx.Registry, plan: nbx.Plan) -> tuple[object, ...]:
    """Price a plan and ask for every figure."""
    price = reg.price(plan, device=H200)
    return price.floor_s, price.flops, price.least_bytes, price.given_bytes, price.peak_live_bytes, price.slab_bytes


def seconds(call: Callable[[], object], rounds: int) -> float:
    """Return the median time of a call."""
    times: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return median(times)


def main() -> int:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=0.5, help="seconds")
    limit = parser.parse_args().limit
    reg = nbx.load(require="any")
    alike = network(reg, rows=lambda layer: 128 + 64 * (layer % 8))
    took = seconds(lambda: figures(reg, alike), 9)
    verdict = "ok" if took <= limit else "OVER"
    print(f"{len(alike.steps)} nodes, {len(alike)} kinds   {took:6.3f} s  limit {limit:g} {verdict}")
    different = network(reg, rows=lambda layer: 128 + layer)
    print(f"{len(different.steps)} nodes, {len(different)} kinds {seconds(lambda: figures(reg, different), 3):6.3f} s")
    return 0 if took <= limit else 1


if __name__ == "__main__":
    sys.exit(main())
