"""Writes the reference of ops when the site is built: a page for each, from its contract and its kernels."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import nbx_registry
from nbx_registry.catalog import Catalog
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op
from nbx_registry.registry import Registry

FOLDER = "reference/ops"
BYTES = (
    "Bytes, where nothing else is said: every operand is read once and every output written once; at the least, an "
    "expanded axis counts once."
)

_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_CODE = re.compile(r"``(.+?)``", re.DOTALL)
_MENTION = re.compile(r"(?<!`)`([a-z_0-9]+)`(?!`)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for path, text in pages(nbx_registry.load()):
        files.append(File.generated(config, path, content=text))
    return files


def pages(registry: Registry) -> Iterator[tuple[str, str]]:
    """Return the path and the text of every generated page."""
    yield f"{FOLDER}/index.md", index(registry)
    for op in registry.ops.values():
        yield page_path(op), page(registry, op)


def page_path(op: Op) -> str:
    """Return where the page of an op lies."""
    return f"{FOLDER}/{op.name.replace('::', '/')}.md"


def index(registry: Registry) -> str:
    """List the ops by the module that holds their contract."""
    families: dict[str, list[Op]] = {}
    for op in registry.ops.values():
        families.setdefault(op.oracle.__module__.rpartition(".")[2], []).append(op)
    text = ["# Ops\n", f"{len(registry.ops)} contracts, by family.\n"]
    for family, ops in sorted(families.items()):
        text += [f"## {family.replace('_', ' ').capitalize()}\n", "| op | what it computes |", "|---|---|"]
        text += [f"| [{op.name}]({page_path(op).removeprefix(FOLDER + '/')}) | {summary(op)} |" for op in ops]
        text.append("")
    return "\n".join(text)


def page(registry: Registry, op: Op) -> str:
    """Write the page of one op."""
    lead, sections = split(op.doc)
    text = [f"# {op.name}\n", markdown(lead, op, registry.catalog), "", "```text", contract(op), "```", ""]
    for name, body in sections:
        text += [f"## {name}\n", definitions(markdown(body, op, registry.catalog)), ""]
    text += ["## Cost\n", cost(op), "", "## Kernels\n", kernels(registry, op), ""]
    return "\n".join(text)


def summary(op: Op) -> str:
    """Return the first line of the docstring."""
    return _CODE.sub(r"`\1`", inspect.cleandoc(op.doc).partition("\n")[0]).replace("|", "\\|")


def split(doc: str) -> tuple[str, list[tuple[str, str]]]:
    """Take a docstring of the NumPy convention apart: what stands ahead, then its sections."""
    parts = _SECTION.split(inspect.cleandoc(doc))
    return parts[0].strip(), [(name, body.strip("\n")) for name, body in zip(parts[1::2], parts[2::2], strict=True)]


def markdown(text: str, op: Op, catalog: Catalog) -> str:
    """Turn the marks of docstrings into those of Markdown; ops that are mentioned become links."""
    here = page_path(op).count("/") - FOLDER.count("/") - 1

    def link(match: re.Match[str]) -> str:
        other = catalog.ops.get(match[1])
        if other is None or other is op:
            return f"`{match[1]}`"
        return f"[`{match[1]}`]({'../' * here}{page_path(other).removeprefix(FOLDER + '/')})"

    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(f"`{match[1]}`")
        return f"\0{len(kept) - 1}\0"

    # Code first, so that nothing inside it is taken for a mention.
    found = _MENTION.sub(link, _CODE.sub(keep, text))
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], found)


def definitions(body: str) -> str:
    """Turn ``name : type`` lines with an indented text into a definition list; leave running text alone."""
    lines = body.split("\n")
    if not any(line.startswith("    ") for line in lines) and not re.match(r"[\w, *]+ : ", body):
        return body
    text: list[str] = []
    for line in lines:
        if line and not line.startswith(" "):
            name, colon, kind = line.partition(" : ")
            text += ["", f"**{name}**" + (f" ({kind})" if colon else ""), ""]
        elif line:
            start = ":   " if text[-1] == "" else "    "
            text.append(start + line.strip())
        else:
            text.append("")
    # A definition needs a text.
    return re.sub(r"^(\*\*.*)\n\n(?=\n|\Z)", r"\1\n", "\n".join(text), flags=re.MULTILINE).strip()


def contract(op: Op) -> str:
    """Return the schema and the rules that stand beside it."""
    found = [op.text]
    found += [f"where {name} = {rule.text}" for name, rule in op.where.items() if rule is not None]
    found += [f"require {rule.text}" for rule in op.require]
    return "\n".join(found)


def cost(op: Op) -> str:
    """Say how the cost is counted: formulas where the contract has them, else what the rule's docstring says."""
    rows: list[tuple[str, str]] = [("unit that does the work", op.unit)]
    formulas: dict[str, Any] = {
        "operations, nominal": op.flops,
        "operations, least": op.least_flops,
        "bytes read, nominal": op.bytes_read,
        "bytes, least": op.least_bytes,
    }
    rows += [(name, f"`{formula}`") for name, formula in formulas.items() if formula is not None]
    text = "\n".join(["| what | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])
    if op.cost_function is not None and op.cost_function.__doc__:
        text += "\n\n" + inspect.cleandoc(op.cost_function.__doc__).replace("\n\n", "\n")
    if op.bytes_read is None and op.least_bytes is None:
        text += "\n\n" + BYTES
    return text


def kernels(registry: Registry, op: Op) -> str:
    """Tell the kernels, what each takes, and what has been checked about it on which device."""
    found = registry.catalog.by_op.get(op.id, ())
    if not found:
        return "None in the plugins installed here."
    text = ["| kernel | made with | checked |", "|---|---|---|"]
    text += [f"| `{kernel.id}` | {kernel.backend} | {checked(registry, kernel)} |" for kernel in found]
    for kernel in found:
        text += ["", f"**`{kernel.id}`**", "", kernel.doc or "", ""]
        text += [f"- takes: `{clause}`" for clause in kernel.when]
        promises = [
            name.replace("_", " ")
            for name in ("deterministic", "batch_invariant", "replayable")
            if getattr(kernel, name)
        ]
        text += [f"- promises: {', '.join(promises)}"] if promises else []
    return "\n".join(text)


def checked(registry: Registry, kernel: Kernel) -> str:
    """Name the devices for which there is evidence, with its level."""
    levels = {
        device: registry.kernel_evidence(kernel.id, device).level
        for device, facts in registry.devices.items()
        if not kernel.runtimes or facts.runtime in kernel.runtimes
    }
    words = {"here": "", "elsewhere": " (elsewhere)", "built": " (built only)"}
    return ", ".join(f"{device}{words[level]}" for device, level in levels.items() if level != "none") or "nowhere"
