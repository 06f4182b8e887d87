"""A process of its own for trials: because an emulator needs environment variables, or so that a kernel may end it.

Requests and answers are lines of JSON. A trial that ends the process, or never ends, becomes a record too, and the next
one gets a new process; so does one after a trial that left the device unusable.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any, Final

from nbx_conformance.cases import Size
from nbx_conformance.options import Options
from nbx_conformance.runner import Item, Record

TRIAL_SECONDS: Final[Mapping[Size, int]] = {"smoke": 600, "full": 600, "large": 3600}
"""How long one trial may take, by the case's size."""

START_SECONDS: Final = 600
"""How long the process may take to get ready."""

COMMAND: Final = (sys.executable, "-m", "nbx_conformance.worker")
"""What is started; the setup follows."""


class Worker:
    """The parent's end."""

    def __init__(self, options: Options, handle: str | None, via: str, environment: Mapping[str, str]) -> None:
        self._handle = handle
        self._setup = {"device": handle or options.device, "via": via, "size": options.size}
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None
        self._versions: dict[str, str] | None = None
        self._busy = False

    def run(self, item: Item) -> Record:
        """Try one kernel on one case there."""
        request = {"kernel": item.kernel.id, "op": item.case.op, "case": item.case.id, "looser": item.looser}
        answer = self._ask(request, TRIAL_SECONDS[item.case.size])
        if isinstance(answer, str):
            return ended(item, answer, self._handle)
        if answer["lost"]:
            self.close()
        return Record(**answer["record"])

    def versions(self) -> Mapping[str, str]:
        """Return the versions that the process reports when it starts; none where it does not get as far."""
        if self._versions is None:
            self._greeted(self.start())
        return self._versions or {}

    def start(self) -> subprocess.Popen[str]:
        """Start the process if there is none; it is ready some time later."""
        if self._process is None:
            self._versions = None
            self._process = subprocess.Popen(
                [*COMMAND, json.dumps(self._setup)],
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                # Ctrl-C is for the run, which ends this process in its turn.
                process_group=0 if os.name == "posix" else None,
            )
        return self._process

    def close(self) -> None:
        """End the process, at once where a trial goes on in it."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        if self._busy:
            process.kill()
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget(process)

    def _ask(self, request: Mapping[str, str | float], seconds: float) -> dict[str, Any] | str:
        """Return the answer, or what happened to the process instead."""
        process = self.start()
        if self._versions is None and not self._greeted(process):
            return self._ended(process)
        assert process.stdin is not None
        self._busy = True
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended(process)
        line = self._line(process, seconds)
        if line is None:
            self.close()
            return f"took longer than {seconds} s"
        self._busy = False
        # A process that ends while it answers leaves a line without an end.
        return json.loads(line) if line.endswith("\n") else self._ended(process)

    def _greeted(self, process: subprocess.Popen[str]) -> bool:
        line = self._line(process, START_SECONDS)
        if line:
            self._versions = json.loads(line)["versions"]
        elif line is None:
            process.kill()
        return bool(line)

    def _line(self, process: subprocess.Popen[str], seconds: float) -> str | None:
        """Return the next line, "" where the process ended, None where it took too long."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        return process.stdout.readline()

    def _ended(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        self._forget(process)
        return f"the process ended with code {code}" if code >= 0 else f"{signal.Signals(-code).name} ended the process"

    def _forget(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        # What it was not there to read any more is of no use to anyone.
        with suppress(BrokenPipeError):
            process.stdin.close()
        self._process = None
        self._busy = False


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


def main(setup: str, requests: IO[str], answers: IO[str]) -> None:
    """Serve requests until they end."""
    from nbx_conformance.runner import execute
    from nbx_conformance.session import Session

    session = Session(Options(**json.loads(setup)))
    cases = {(case.op, case.id): case for op in session.cases.ops for case in session.cases.of(op, "large")}
    print(json.dumps({"versions": dict(session.versions)}), file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        kernel = session.registry.catalog.kernel(request["kernel"])
        record = execute(session.site, Item(kernel, cases[request["op"], request["case"]], request["looser"]))
        print(json.dumps({"record": record.to_dict(), "lost": session.lost(record)}), file=answers, flush=True)


if __name__ == "__main__":
    # What kernels and toolkits print must not come between the answers.
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    main(sys.argv[1], sys.stdin, private)
