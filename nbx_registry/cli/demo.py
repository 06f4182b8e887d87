"""``nbx demo``: a sentence-embedding model, op by op through the registry."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import click

from nbx_registry.cli.console import figure_seconds, json_option, lines, print_json, stop, table
from nbx_registry.cli.main import FAULT, registry
from nbx_registry.cli.requests import print_decision

SHOWN = 8
"""Sentences whose similarities are printed: what 80 columns hold."""


@click.command(short_help="Embed sentences with a real model, op by op.")
@click.option("--device", default="cpu", show_default=True, metavar="D", help="A live device: cpu, cuda:0.")
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="F",
    help="Embed the lines of this file.",
)
@click.option("--model", type=click.Path(path_type=Path), metavar="FOLDER", help="Read the model from this folder.")
@json_option
@click.pass_context
def demo(context: click.Context, device: str, file: Path | None, model: Path | None, as_json: bool) -> None:
    """Embed some sentences with all-MiniLM-L6-v2 and show what ran, kernel by kernel."""
    if importlib.util.find_spec("nbx_examples") is None:
        stop("the examples are not installed; install them with: pip install 'nbx-registry[examples]'", FAULT)
    sentences = _read(file) if file is not None else None
    demonstrate = importlib.import_module("nbx_examples.minilm.demo").demonstrate
    result = demonstrate(registry(context), device=device, sentences=sentences, folder=model)
    if as_json:
        print_json(_plain(result))
        return
    lines(f"all-MiniLM-L6-v2 on {device}: {len(result.sentences)} sentences")
    _print_similarity(result)
    lines("")
    _print_ran(result)
    lines("")
    lines("Why the same attention does not run on a card that nobody has checked it on:")
    print_decision(result.refusal)


def _read(file: Path) -> list[str]:
    try:
        sentences = [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is no UTF-8 text: {error}") from error
    if not sentences:
        raise click.UsageError(f"{file} has no line with text")
    return sentences


def _print_similarity(result: Any) -> None:
    shown = min(SHOWN, len(result.sentences))
    numbers = [str(i + 1) for i in range(shown)]
    rows = [
        (i + 1, result.sentences[i][:120], *(f"{result.similarity[i, j]:.2f}" for j in range(shown)))
        for i in range(shown)
    ]
    table(("", "cosine similarity", *numbers), rows, right=("", *numbers))
    if shown < len(result.sentences):
        lines(f"(the first {shown} of {len(result.sentences)}; --json prints every embedding)")
    if result.deviation is not None:
        lines(f"largest difference from PyTorch's embeddings: {result.deviation:.1e}")


def _print_ran(result: Any) -> None:
    rows = [
        (f"{row.op}\n{row.kernel}", row.calls, row.evidence, figure_seconds(row.seconds), _share(row))
        for row in sorted(result.rows, key=lambda row: -row.seconds)
    ]
    headings = ("what ran, by which kernel", "calls", "evidence", "time", "of floor")
    table(headings, rows, right=("calls", "time", "of floor"), whole=headings[:1])
    if result.device == "cpu" and any(row.floor_s is not None and row.floor_s > row.seconds for row in result.rows):
        lines("(above 100 %: the tensors stayed in the caches; the floor is of the memory)")
    missing = sorted({row.floor_missing for row in result.rows if row.floor_missing})
    for reason in missing:
        lines(f"floor unknown: {reason}")
    if missing and result.device == "cpu":
        lines("nbx doctor --measure-host measures what the host's floors need")


def _share(row: Any) -> str:
    if row.floor_s is None:
        return "?"
    # A view moves nothing: it has no floor to be compared with.
    return f"{100 * row.floor_s / row.seconds:.3g} %" if row.floor_s and row.seconds else "-"


def _plain(result: Any) -> dict[str, Any]:
    return {
        "device": result.device,
        "sentences": result.sentences,
        "embeddings": result.embeddings.tolist(),
        "similarity": result.similarity.tolist(),
        "deviation": result.deviation,
        "ran": [
            {
                "op": row.op,
                "kernel": row.kernel,
                "evidence": str(row.evidence),
                "calls": row.calls,
                "seconds": row.seconds,
                "floor_s": row.floor_s,
                "floor_missing": row.floor_missing,
            }
            for row in result.rows
        ],
        "refusal": result.refusal.to_dict(),
    }
