"""Several devices: a process for each, which takes the next key when it is done with one.

A process is told of keys on its standard input and answers on its standard output, a line of JSON each. What it finds
it writes itself, so that nothing is lost when another process ends. One that ends over a key fails that key, and a
fresh one goes on.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from nbx_registry import jsonfile
from nbx_registry.errors import NbxError
from nbx_registry.jsonfile import Reader
from nbx_registry.planentry import PlanEntry
from nbx_registry.target import Target
from nbx_registry.tuning import session
from nbx_registry.tuning.jobs import Job, received, sent
from nbx_registry.tuning.key import Excluded, Tuned

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

COMMAND: Final = (sys.executable, "-m", "nbx_registry.tuning.processes")
"""What is started; the setup follows."""


def shared(
    registry: Registry, jobs: Sequence[Job], targets: Sequence[Target], file: Path
) -> Iterator[Tuned | session.Failure]:
    """Yield what comes of jobs that devices of one product share, in the order in which they are done.

    Raises `NbxError` where a process cannot start.
    """
    waiting: queue.SimpleQueue[tuple[Job, str]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put((job, json.dumps(asdict(sent(registry, job, targets[0])))))
    done: queue.SimpleQueue[Tuned | session.Failure | BaseException | None] = queue.SimpleQueue()
    workers = [_Worker(registry, target.name, file) for target in targets[: len(jobs)]]
    threads = [threading.Thread(target=_serve, args=(worker, waiting, done), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            found = done.get()
            if found is None:
                running -= 1
            elif isinstance(found, BaseException):
                raise found
            else:
                yield found
    finally:
        for worker in workers:
            worker.close()


def _serve(
    worker: _Worker,
    waiting: queue.SimpleQueue[tuple[Job, str]],
    done: queue.SimpleQueue[Tuned | session.Failure | BaseException | None],
) -> None:
    try:
        while True:
            try:
                job, line = waiting.get_nowait()
            except queue.Empty:
                break
            done.put(worker.tune(job, line))
    except NbxError as error:
        done.put(error)
    finally:
        done.put(None)


class _Worker:
    """The parent's end of one process."""

    def __init__(self, registry: Registry, handle: str, file: Path) -> None:
        self._setup = json.dumps({"device": handle, "file": str(file), "block": sorted(registry.catalog.blocked)})
        self._handle = handle
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def tune(self, job: Job, line: str) -> Tuned | session.Failure:
        """Send a job and return what comes of it."""
        process = self._started()
        answer = _asked(process, line)
        if answer is None:
            self._process = None
            _end(process)
            code = process.returncode
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            message = f"{job}: the process on {self._handle} ended with {how}, and nothing is tuned"
            return session.Failure(job.kernel.id, job.key, "PROCESS_ENDED", message)
        if "failed" in answer:
            return session.Failure(**answer["failed"])
        return _tuned(answer["tuned"])

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            if self._closed:
                raise NbxError(f"the process on {self._handle} was ended")
            self._process = subprocess.Popen(
                [*COMMAND, self._setup],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                # Ctrl-C is for the session, which ends this process in its turn.
                process_group=0 if os.name == "posix" else None,
            )
            greeting = _asked(self._process, None)
            if greeting is None or "ready" not in greeting:
                why = "it ended" if greeting is None else greeting["error"]
                self.close()
                raise NbxError(f"the process on {self._handle} did not start: {why}")
        return self._process

    def close(self) -> None:
        """End the process."""
        self._closed = True
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process that ends, and close what led to it."""
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            # What could not be sent any more is of no matter.
            with suppress(BrokenPipeError):
                stream.close()


def _asked(process: subprocess.Popen[str], line: str | None) -> dict[str, Any] | None:
    """Send a line, if there is one, and return the answer; None where the process ended instead."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if line is not None:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
    except (BrokenPipeError, ValueError):
        return None
    return json.loads(answer) if answer.endswith("\n") else None


def _tuned(data: dict[str, Any]) -> Tuned:
    data["excluded"] = tuple(Excluded(**one) for one in data["excluded"])
    return Tuned(**data)


def main(setup: str) -> None:
    """Tune what standard input tells of, on the device of the setup, until it ends."""
    import nbx_registry as nbx  # the whole face: this is a program

    answers = sys.stdout
    # What kernels and compilers print is no answer.
    with redirect_stdout(sys.stderr):
        try:
            given = json.loads(setup)
            registry = nbx.load(block=given["block"])
            target = registry.target(given["device"])
            if not target.present or target.device is None:
                raise NbxError(f"{given['device']} is not here: {target.why}")
        except NbxError as error:
            _answer(answers, {"error": str(error)})
            return
        _answer(answers, {"ready": target.name})
        for line in sys.stdin:
            path = Path("<standard input>")
            entry = PlanEntry.read(Reader(path, jsonfile.parse(line.encode(), path)))
            job = received(registry, entry, target)
            found = session.finish(registry, job, target, Path(given["file"]), None)
            _answer(answers, {"tuned" if isinstance(found, Tuned) else "failed": asdict(found)})


def _answer(stream: IO[str], data: Mapping[str, Any]) -> None:
    stream.write(json.dumps(data) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
