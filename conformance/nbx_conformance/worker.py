"""A process of its own for trials whose emulator needs environment variables that must be set before it starts.

Requests and records are lines of JSON. A trial that ends the process, or never ends, becomes a record too, and the next
one gets a new process.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any, Final

from nbx_conformance.runner import Item, Record

if TYPE_CHECKING:
    from nbx_conformance.options import Options

TRIAL_SECONDS: Final = 600
"""How long one trial may take."""

COMMAND: Final = (sys.executable, "-m", "nbx_conformance.worker")
"""What is started; the setup follows."""


class Worker:
    """The parent's end."""

    def __init__(self, options: Options, via: str, environment: Mapping[str, str]) -> None:
        self._setup = {"device": options.device, "via": via, "size": options.size}
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None
        self._versions: dict[str, str] = {}

    def run(self, item: Item) -> Record:
        """Try one kernel on one case there."""
        answer = self._ask({"kernel": item.kernel.id, "op": item.case.op, "case": item.case.id})
        if isinstance(answer, str):
            return Record(
                op=item.kernel.op,
                kernel=item.kernel.id,
                case=item.case.id,
                seed=item.case.seed,
                verdict="error",
                checks={"error": ["numbers"]},
                details={"numbers": answer},
            )
        return Record(**answer)

    def versions(self) -> Mapping[str, str]:
        """Return the versions that the process reports when it starts."""
        self._started()
        return self._versions

    def close(self) -> None:
        """End the process."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget(process)

    def _ask(self, request: Mapping[str, str]) -> dict[str, Any] | str:
        """Return the answer, or what happened to the process instead."""
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended(process)
        line = self._line(process)
        if line is None:
            process.kill()
            self.close()
            return f"took longer than {TRIAL_SECONDS} s"
        return json.loads(line) if line else self._ended(process)

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [*COMMAND, json.dumps(self._setup)],
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
            line = self._line(self._process)
            if line:
                self._versions = json.loads(line)["versions"]
        return self._process

    def _line(self, process: subprocess.Popen[str]) -> str | None:
        """Return the next line, "" where the process ended, None where it took too long."""
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(TRIAL_SECONDS):
                return None
        return process.stdout.readline()

    def _ended(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        self._forget(process)
        return f"the process ended with code {code}"

    def _forget(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        # What it was not there to read any more is of no use to anyone.
        with suppress(BrokenPipeError):
            process.stdin.close()
        self._process = None


def main(setup: str, requests: IO[str], answers: IO[str]) -> None:
    """Serve requests until they end."""
    from nbx_conformance.options import Options
    from nbx_conformance.runner import execute
    from nbx_conformance.session import Session

    session = Session(Options(**json.loads(setup)))
    cases = {(case.op, case.id): case for op in session.cases.ops for case in session.cases.of(op)}
    print(json.dumps({"versions": dict(session.versions())}), file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        kernel = session.registry.catalog.kernel(request["kernel"])
        record = execute(session.site, Item(kernel, cases[request["op"], request["case"]]))
        print(json.dumps(asdict(record)), file=answers, flush=True)


if __name__ == "__main__":
    # What kernels and toolkits print must not come between the answers.
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    main(sys.argv[1], sys.stdin, private)
