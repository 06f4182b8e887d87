"""What a person reads of a run: the table of kernels, and a failure with the command that shows it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from nbx_conformance import plugin_checks
from nbx_conformance.runs.runner import Item, Record
from nbx_conformance.runs.session import Session

_SAID = ("pass", "refused", "waived", "fail", "error")
_HEAD = (
    "kernel",
    "op",
    "passed",
    "refused",
    "waived",
    "failed",
    "errors",
    "relative L2",
    "of bound",
    "seconds",
    "verdict",
)


def table(session: Session) -> Iterator[str]:
    """Yield the lines of a table, a row for each kernel."""
    rows: list[tuple[str, ...]] = [_HEAD]
    verdicts = session.verdicts()
    for kernel, records in session.by_kernel().items():
        counted = Counter(record.verdict for record in records)
        profiles = [record.profile for record in records if record.profile]
        norm = max((profile["l2"] for profile in profiles), default=0.0)
        share = max((profile["share"] for profile in profiles), default=0.0)
        rows.append(
            (
                kernel,
                records[0].op,
                *(str(counted[verdict]) for verdict in _SAID),
                f"{norm:.2g}" if profiles else "exact",
                f"{share:.0%}" if share <= 1000 else "beyond",
                f"{sum(record.seconds for record in records):.1f}",
                f"{verdicts[kernel]}, waived" if counted["waived"] else verdicts[kernel],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = [
            cell.rjust(width) if 2 <= column < len(_HEAD) - 1 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
    yield from notes(session)


def notes(session: Session) -> Iterator[str]:
    """Yield why a check said nothing, each reason once."""
    records = session.records.values()
    silent = ((check, why) for record in records for check, why in record.details.items() if check not in _said(record))
    yield from dict.fromkeys(f"{check} says nothing: {why}" for check, why in silent)


def _said(record: Record) -> set[str]:
    return {check for checks in record.checks.values() for check in checks}


def plugins(session: Session) -> Iterator[str]:
    """Yield a line for each plugin that was looked at as a whole."""
    for name, outcomes in sorted(session.outcomes.items()):
        version = session.registry.plugins[name].version
        failed = sorted(check for check, outcome in outcomes.items() if outcome.verdict != "pass")
        said = f"failed: {', '.join(failed)}" if failed else f"pass: {', '.join(outcomes)}"
        yield f"plugin {name}{f' {version}' if version else ''}: {said}"


def waived(session: Session) -> Iterator[str]:
    """Yield a line for each waiver that something rests on."""
    records = session.records.values()
    for waiver in session.waivers.used(records):
        count = sum(any(by == waiver.id for by, _ in record.waivers.values()) for record in records)
        share = f" up to {waiver.share:g} times the bound" if waiver.share is not None else ""
        yield (
            f"waived by {waiver.id}: {', '.join(waiver.checks)}{share} in {count} case{'s' if count != 1 else ''} of "
            f"{waiver.kernel}: {waiver.reason} ({waiver.link}; until {waiver.expires})"
        )


def summary(session: Session) -> dict[str, Any]:
    """Return what `table` shows, and each trial that did not pass, as plain data for programs."""
    verdicts = session.verdicts()
    return {
        "route": str(session.route),
        "not_more_because": session.route.why or None,
        "plugins": plugin_checks.to_dict(session),
        "waivers": [waiver.to_dict() for waiver in session.waivers.used(session.records.values())],
        "kernels": {
            kernel: {
                "op": records[0].op,
                "verdict": verdicts[kernel],
                **{said: sum(record.verdict == said for record in records) for said in _SAID},
                "trials": [r.to_dict() for r in records if r.verdict in ("fail", "error")],
            }
            for kernel, records in session.by_kernel().items()
        },
    }


def failure(session: Session, item: Item, record: Record) -> str:
    """Return what is wrong with a trial, and how to see it again."""
    case = item.case
    tensors = ", ".join(f"{name}: {_shown(spec)}" for name, spec in case.tensors.items())
    attributes = "".join(f", {name}={value!r}" for name, value in case.attributes.items())
    lines = [f"{item.id} on {session.route}"]
    lines += (f"  {verdict}: {name}: {record.details.get(name, '')}" for verdict, name in _worst_first(record))
    lines.append(f"  case: {case.op}({tensors}{attributes}); {case.source}")
    lines.append(
        f"  again: nbx conformance run --device {session.options.device} --via {session.route.via} "
        f"--size {session.options.size} --kernel {item.kernel.id} -k {case.id}"
    )
    return "\n".join(lines)


def _worst_first(record: Record) -> Sequence[tuple[str, str]]:
    return [(v, name) for v in ("error", "fail") for name in record.checks.get(v, ())]


def _shown(spec: object) -> str:
    return f"[{', '.join(map(str, cast('tuple[object, ...]', spec)))}]" if isinstance(spec, tuple) else str(spec)
