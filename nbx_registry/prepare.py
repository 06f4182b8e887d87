"""Preparing a plan: what is installed here is compared with what the plan holds, then all of it is bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbx_registry.catalog import Catalog
from nbx_registry.errors import NbxError, UnknownName
from nbx_registry.plan import Plan
from nbx_registry.planentry import PlanEntry
from nbx_registry.program import BoundProgram
from nbx_registry.programs import Programs
from nbx_registry.signature import Signature
from nbx_registry.target import Target

SHOWN = 20
"""How many entries that differ are told one by one."""


def prepare(
    plan: Plan, catalog: Catalog, programs: Programs, targets_of: Callable[[str], Sequence[Target]]
) -> list[BoundProgram]:
    """Bind every entry on the targets that ``targets_of`` gives its device, once all of it is found to be the same.

    Raises
    ------
    NbxError
        What is here differs: field by field for every entry. An op, a kernel or a device that is not here is told so,
        and so is an entry that cannot be bound where contract or kernel are other code than they were.
    SignatureError
        An entry does not fit its contract, which is the plan's.
    Refused
        A kernel of the plan, the same as there, may not run here.
    """
    wanted: list[tuple[Signature, Target, PlanEntry]] = []
    problems: list[str] = []
    faults: list[NbxError] = []
    for number, entry in enumerate(plan):
        what = f"entry {number}, {entry.op}"
        try:
            signature = entry.signature(catalog.op(entry.op))
            for target in targets_of(entry.device):
                what = f"entry {number}, {signature} on {target}"
                choice = programs.choose(signature, target, entry.require, entry.pin)
                here = PlanEntry.of(catalog, signature, choice, target, entry.require, entry.pin)
                _tell(problems, what, entry.differences(here))
                wanted.append((signature, target, entry))
        except UnknownName as error:
            _tell(problems, what, [str(error)])
        except NbxError as error:
            # What does not fit, or may not run, may be so because it is other code than it was.
            found = entry.changed(catalog)
            _tell(problems, what, [*found, str(error)] if found else [])
            faults += [] if found else [error]
    if problems:
        more = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise NbxError(
            "the plan differs from what is here; make it anew, or install what it was made with\n  "
            + "\n  ".join(problems[:SHOWN])
            + more
        )
    if faults:
        raise faults[0]
    return [programs.get(signature, target, e.require, e.pin, keep=True) for signature, target, e in wanted]


def _tell(problems: list[str], what: str, found: Sequence[str]) -> None:
    if found:
        problems.append(f"{what}:\n    " + "\n    ".join(found))
