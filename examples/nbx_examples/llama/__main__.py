"""``python -m nbx_examples.llama``: decode with and without a recorded step, and compare the tokens."""

from __future__ import annotations

import sys

import click
import numpy as np

import nbx_registry as nbx
from nbx_examples.llama.config import LLAMA_3_2_1B, SMALL
from nbx_examples.llama.generate import generate
from nbx_examples.llama.weights import Weights

SIZES = {"small": SMALL, "1b": LLAMA_3_2_1B}


@click.command()
@click.option("--device", default="cpu", show_default=True, help="Where to run: cpu, cuda:0.")
@click.option("--size", type=click.Choice(sorted(SIZES)), default="small", show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences at a time.")
@click.option("--prompt", type=click.IntRange(1), default=64, show_default=True, help="Tokens of each prompt.")
@click.option("--steps", type=click.IntRange(1), default=16, show_default=True, help="Tokens to decode.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of weights and prompts.")
@click.option("--quantised", is_flag=True, help="Weights of 4 bits an element.")
@click.option(
    "--require", type=click.Choice(["any", "checked", "checked_here"]), help="Level of evidence that kernels must have."
)
def main(
    device: str, size: str, batch: int, prompt: int, steps: int, seed: int, quantised: bool, require: str | None
) -> None:
    """Decode with Llama 3.2's network, its weights drawn from a seed."""
    registry = nbx.load(require=require) if require else nbx.load()
    config = SIZES[size]
    before = nbx.set_default(registry)
    try:
        weights = Weights(config, seed=seed, device=device, quantised=quantised)
        ids = np.random.default_rng(seed).integers(0, config.vocabulary, (batch, prompt))
        plain, replayed = (
            generate(registry, config, weights, ids, steps, device=device, captured=captured)
            for captured in (False, True)
        )
    except nbx.NbxError as error:
        raise click.ClickException(str(error)) from error
    finally:
        nbx.set_default(before)
    for sequence in replayed.tokens[:4]:
        click.echo(" ".join(map(str, sequence)))
    click.echo(f"prompt of {batch} x {prompt}: {replayed.prompt_s * 1e3:.1f} ms")
    click.echo(f"a step of {batch}, call by call: {plain.step_s * 1e3:.3f} ms")
    click.echo(f"a step of {batch}, replayed: {replayed.step_s * 1e3:.3f} ms (recorded in {replayed.record_s:.2f} s)")
    if not np.array_equal(plain.tokens, replayed.tokens):
        click.echo("the recorded step decodes other tokens than the calls themselves", err=True)
        sys.exit(1)
    click.echo(f"the same {replayed.tokens.size} tokens both ways")


if __name__ == "__main__":
    main()
