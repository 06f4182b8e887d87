"""Whole models on a CUDA card, each recorded as one graph, beside the least that their calls could take.

    python benchmarks/gpu_models.py [--only TEXT] [--check]

MiniLM embeds 32 sentences of 128 tokens in float16, beside the same network through ``torch.compile`` with CUDA graphs;
Llama 3.2's network decodes at 2048 tokens of context. Weights are random. The sum beside them is, call by call, the
larger of least bytes over the copy bandwidth and operations over the matrix rate, both measured in the same run, and
2.5 us a launch. Where values decide what must be read, least is least at the values of the run: the tokens that
sequences hold (each once, where several share a page), rows that indices name, keys that a mask shows. Of Llama they
are those of the step before the ones that are timed, whose contexts are longer by up to 160 tokens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F

import nbx_registry as nbx
from nbx_examples.llama import LLAMA_3_2_1B, Decoder, Weights
from nbx_examples.minilm import Batch, MiniLM
from nbx_examples.minilm.files import Config

LAUNCH_S: Final = 2.5e-6
SENTENCES, TOKENS, CONTEXT = 32, 128, 2048
MINILM: Final = Config(
    layers=6, heads=12, hidden=384, intermediate=1536, vocabulary=30522, positions=512, token_types=2, epsilon=1e-12
)
"""Sizes of all-MiniLM-L6-v2."""


class Sum:
    """Adds up the least time of the calls that it sees, at the values that they are given.

    These are read back before each call that they decide the cost of (`Op.cost_values`), which waits for the device:
    what is observed is not to be timed.
    """

    def __init__(self, bytes_per_s: float, flop_per_s: float) -> None:
        self._rates = (bytes_per_s, flop_per_s)
        self.seconds = 0.0
        self.launches = 0

    def observe(self, call: Any, args: Sequence[Any], out: Any) -> Any:
        """Run the call."""
        program = call.program_for(args, out)
        op = program.signature.op
        given = {p.name: array for p, array in zip(op.tensors, args, strict=False) if array is not None}
        decisive = {name: given[name] for name in op.cost_values if name in given}
        values = {n: a if isinstance(a, np.ndarray) else a.numpy() for n, a in decisive.items()}
        cost = op.cost(program.signature, values)
        moved, done = cost.least_bytes / self._rates[0], 0.0
        if cost.unit == "matrix":
            done = cost.least_flops / self._rates[1]
        launches = len(program.launches)
        if launches:
            self.seconds += max(moved, done) + LAUNCH_S * launches
            self.launches += launches
        return call.run(args, out)


def rates() -> tuple[float, float]:
    """Return bytes read and written a second by a copy, and operations a second of a float16 product."""
    source = torch.randn(1 << 29, device="cuda").half()
    target = torch.empty_like(source)
    copy = seconds(lambda: target.copy_(source), synchronize=torch.cuda.synchronize)
    a, b = (torch.randn(8192, 8192, device="cuda").half() for _ in range(2))
    product = seconds(lambda: a @ b, synchronize=torch.cuda.synchronize)
    return 2 * source.nbytes / copy, 2 * 8192**3 / product


def seconds(
    call: Callable[[], object], *, synchronize: Callable[[], object], batch: int = 10, rounds: int = 15
) -> float:
    """Return median seconds of a call, of several in a row."""
    for _ in range(3):
        call()
    taken: list[float] = []
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter()
        for _ in range(batch):
            call()
        synchronize()
        taken.append((time.perf_counter() - start) / batch)
    return statistics.median(taken)


def torch_minilm(config: Config, weights: Mapping[str, np.ndarray]) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    """Return the same network in torch, compiled, its launches in CUDA graphs."""
    w = {name: torch.from_numpy(array).cuda() for name, array in weights.items()}

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (config.hidden,), w[f"{name}.weight"], w[f"{name}.bias"], config.epsilon)

    def network(ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        x = F.embedding(ids, w["embeddings.word_embeddings.weight"]) + w["embeddings.token_type_embeddings.weight"][0]
        x = norm(x + w["embeddings.position_embeddings.weight"][: ids.shape[1]], "embeddings.LayerNorm")
        for layer in range(config.layers):
            at = f"encoder.layer.{layer}."
            q, k, v = (
                linear(x, f"{at}attention.self.{name}").unflatten(-1, (config.heads, -1)).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
            merged = mixed.transpose(1, 2).flatten(-2)
            x = norm(x + linear(merged, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
            wide = F.gelu(linear(x, f"{at}intermediate.dense"))
            x = norm(x + linear(wide, f"{at}output.dense"), f"{at}output.LayerNorm")
        share = keep[:, :, None].to(torch.float32)
        mean = (x * share).sum(1) / share.sum(1)
        return F.normalize(mean, dim=-1)

    return torch.compile(network, mode="reduce-overhead", fullgraph=True)


def minilm(registry: nbx.Registry, total: Sum) -> dict[str, float]:
    """Time MiniLM, once the two ways agree."""
    rng = np.random.default_rng(0)
    weights = {name: (rng.standard_normal(shape) * 0.05).astype(np.float16) for name, shape in MINILM.shapes().items()}
    ids = rng.integers(0, MINILM.vocabulary, (SENTENCES, TOKENS))
    keep = np.arange(TOKENS) < rng.integers(TOKENS // 2, TOKENS + 1, (SENTENCES, 1))
    model = MiniLM(MINILM, weights, "cuda:0")
    batch = Batch(ids=ids, keep=keep)
    with registry.observed(total):
        model(batch)
    placed = model.placed(batch)
    graph = registry.capture(lambda: model.embed(*placed))
    compiled = torch_minilm(MINILM, weights)
    given = torch.from_numpy(ids).cuda(), torch.from_numpy(keep).cuda()
    away = np.abs(graph.outputs.numpy() - compiled(*given).float().cpu().numpy()).max()
    if not away < 1e-2:
        raise SystemExit(f"the embeddings are {away:.3g} from torch's")
    wait = torch.cuda.synchronize
    return {
        "ours": seconds(graph.replay, synchronize=wait),
        "torch.compile": seconds(lambda: compiled(*given), synchronize=wait),
    }


def llama(registry: nbx.Registry, total: Sum, batch: int, *, quantised: bool) -> dict[str, float]:
    """Time a step of Llama at the end of the context."""
    rounds = 160
    weights = Weights(LLAMA_3_2_1B, seed=0, device="cuda:0", quantised=quantised)
    decoder = Decoder(LLAMA_3_2_1B, weights, batch=batch, longest=CONTEXT, device="cuda:0")
    # Every replay appends a token: the time is that of the last ones before the context is full.
    decoder.prompt(np.random.default_rng(0).integers(0, LLAMA_3_2_1B.vocabulary, (batch, CONTEXT - rounds)))
    graph = registry.capture(decoder.step)
    with registry.observed(total):
        decoder.step()
    return {"ours": seconds(graph.replay, synchronize=torch.cuda.synchronize, rounds=15)}


def main() -> int:
    """Time what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="models whose label contains this")
    parser.add_argument("--check", action="store_true", help="exit 1 where a limit is missed")
    options = parser.parse_args()
    registry = nbx.load(require="any")
    nbx.set_default(registry)
    found = rates()
    print(f"copy {found[0] / 1e12:.2f} TB/s, float16 product {found[1] / 1e12:.0f} TFLOP/s")
    models: dict[str, tuple[float, Callable[[Sum], dict[str, float]]]] = {
        "MiniLM 32 x 128 fp16": (1.3, lambda total: minilm(registry, total)),
        "Llama 1B fp16 batch 1": (1.1, lambda total: llama(registry, total, 1, quantised=False)),
        "Llama 1B fp16 batch 32": (1.1, lambda total: llama(registry, total, 32, quantised=False)),
        "Llama 1B int4 batch 1": (1.1, lambda total: llama(registry, total, 1, quantised=True)),
    }
    missed = False
    for label, (limit, run) in models.items():
        if options.only not in label:
            continue
        total = Sum(*found)
        taken = run(total)
        ours = taken.pop("ours")
        over = ours / total.seconds
        least = f"{over:.2f} of the sum {total.seconds * 1e6:.1f} us of {total.launches} launches"
        line = f"{label}: {ours * 1e6:.1f} us, {least}"
        for name, other in taken.items():
            line += f"; {name} {other * 1e6:.1f} us ({other / ours:.2f})"
            missed |= other < ours
        missed |= over > limit
        print(f"{line}; limit {limit}", flush=True)
        torch.cuda.empty_cache()
    return int(missed and options.check)


if __name__ == "__main__":
    sys.exit(main())
