"""A process of its own for trials: because an emulator needs environment variables, or so that a kernel may end it.

Requests and answers are lines of JSON. A trial that ends the process, or never ends, becomes a record too, and the next
one gets a new process; so does one after a trial that left the device unusable.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import IO, Any, Final

from nbx_conformance.cases import Size
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.runner import Item, Record
from nbx_registry.process import Process, answers, reply

TRIAL_SECONDS: Final[Mapping[Size, int]] = {"smoke": 600, "full": 600, "large": 3600}
"""How long one trial may take, by the case's size."""

START_SECONDS: Final = 600
"""How long the process may take to get ready."""

COMMAND: Final = (sys.executable, "-m", "nbx_conformance.runs.worker")
"""What is started; the setup follows."""


class Worker:
    """The parent's end."""

    def __init__(self, options: Options, handle: str | None, via: str, environment: Mapping[str, str]) -> None:
        self._handle = handle
        self._setup = {"device": handle or options.device, "via": via, "size": options.size}
        self._environment = dict(environment)
        self._process: Process | None = None
        self._versions: dict[str, str] | None = None

    def run(self, item: Item) -> Record:
        """Try one kernel on one case there."""
        request = {"kernel": item.kernel.id, "op": item.case.op, "case": item.case.id, "looser": item.looser}
        found = self._ask(request, TRIAL_SECONDS[item.case.size])
        if isinstance(found, str):
            return ended(item, found, self._handle)
        if found["lost"]:
            self.close()
        return Record(**found["record"])

    def versions(self) -> Mapping[str, str]:
        """Return the versions that the process reports when it starts; none where it does not get as far."""
        if self._versions is None:
            self._greeted(self.start())
        return self._versions or {}

    def start(self) -> Process:
        """Start the process if there is none; it is ready some time later."""
        if self._process is None:
            self._versions = None
            self._process = Process([*COMMAND, json.dumps(self._setup)], self._environment)
        return self._process

    def close(self) -> None:
        """End the process, at once where a trial goes on in it."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _ask(self, request: Mapping[str, str | float], seconds: float) -> dict[str, Any] | str:
        """Return the answer, or what happened to the process instead."""
        process = self.start()
        found = None
        if self._versions is not None or self._greeted(process):
            process.tell(request)
            found = process.hear(seconds)
        if found is None:
            self._process = None
            return process.why
        return found

    def _greeted(self, process: Process) -> bool:
        greeting = process.hear(START_SECONDS)
        if greeting is not None:
            self._versions = greeting["versions"]
        return greeting is not None


def ended(item: Item, why: str, handle: str | None) -> Record:
    """Return the record of a trial that never came to its end."""
    return Record(
        op=item.kernel.op,
        kernel=item.kernel.id,
        case=item.case.id,
        seed=item.case.seed,
        verdict="error",
        checks={"error": ["numbers"]},
        details={"numbers": why},
        handle=handle,
    )


def main(setup: str, requests: IO[str], replies: IO[str]) -> None:
    """Serve requests until they end."""
    from nbx_conformance.runs.runner import execute
    from nbx_conformance.runs.session import Session

    session = Session(Options(**json.loads(setup)))
    cases = {(case.op, case.id): case for op in session.cases.ops for case in session.cases.of(op, "large")}
    reply(replies, {"versions": dict(session.versions)})
    for line in requests:
        request = json.loads(line)
        kernel = session.registry.catalog.kernel(request["kernel"])
        record = execute(session.site, Item(kernel, cases[request["op"], request["case"]], request["looser"]))
        reply(replies, {"record": record.to_dict(), "lost": session.lost(record)})


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin, answers())
