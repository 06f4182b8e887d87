"""Tuning in other processes: one for each device, which takes the next key when it is done with one.

A process is told of keys on its standard input and answers on its standard output, a line of JSON each. What it finds
it writes itself, so that nothing is lost when another process ends. It says which candidate it turns to. Where it ends
over one, hangs, or cannot use its device any more, a fresh process goes on without that candidate; over the default,
the key fails.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nbx_registry.blocking import vain
from nbx_registry.catalog import Catalog
from nbx_registry.distributions import canonical
from nbx_registry.errors import NbxError
from nbx_registry.jsonfile import Reader
from nbx_registry.planentry import PlanEntry
from nbx_registry.process import Process, answers, reply
from nbx_registry.target import Target
from nbx_registry.tuning import session
from nbx_registry.tuning.jobs import Job, plain, received, sent, shown
from nbx_registry.tuning.key import BROKEN, UNUSABLE, Excluded, Tuned, same

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

COMMAND: Final = (sys.executable, "-m", "nbx_registry.tuning.processes")
"""What is started; the setup follows."""

PATIENCE_S: Final = 600.0
"""How long a process may be at one candidate, which has to be compiled and which the oracle has to judge."""

ENDED: Final = "PROCESS_ENDED"
"""The code of a failure that no process could tell of."""


def can_send(job: Job) -> bool:
    """Whether another process can be told of a job: of numbers, not of arrays."""
    return all(isinstance(value, (bool, int, float)) for value in job.given.values())


def shared(
    registry: Registry, jobs: Sequence[Job], targets: Sequence[Target], file: Path
) -> Iterator[Tuned | session.Failure]:
    """Yield what comes of jobs that devices of one product share, in the order in which they are done.

    Raises `NbxError` where a process cannot start.
    """
    waiting: queue.SimpleQueue[tuple[Job, dict[str, Any]]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put((job, {"entry": asdict(sent(registry, job, targets[0])), "given": dict(job.given)}))
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
    waiting: queue.SimpleQueue[tuple[Job, dict[str, Any]]],
    done: queue.SimpleQueue[Tuned | session.Failure | BaseException | None],
) -> None:
    try:
        while True:
            try:
                job, told = waiting.get_nowait()
            except queue.Empty:
                break
            done.put(worker.tune(job, told))
    except (NbxError, OSError) as error:
        done.put(error)
    finally:
        done.put(None)


class _Worker:
    """The parent's end of one process."""

    def __init__(self, registry: Registry, handle: str, file: Path) -> None:
        self._setup = json.dumps({"device": handle, "file": str(file), "block": blocked_of(registry.catalog)})
        self._handle = handle
        self._process: Process | None = None
        self._closed = False

    def tune(self, job: Job, told: Mapping[str, Any]) -> Tuned | session.Failure:
        """Send a job and return what comes of it, once every candidate that ends a process is left out."""
        default = {name: plain(value) for name, value in job.kernel.defaults.items()}
        avoided: list[Excluded] = []
        while True:
            found, tried = self._asked(job, {**told, "avoided": list(map(asdict, avoided))})
            if isinstance(found, Tuned) or found.code not in (BROKEN, ENDED):
                return found
            if tried is None or same(tried, default) or any(same(tried, one.settings) for one in avoided):
                return found
            avoided.append(Excluded(tried, UNUSABLE, found.message))

    def _asked(self, job: Job, told: Mapping[str, Any]) -> tuple[Tuned | session.Failure, dict[str, Any] | None]:
        """Send a job once; return what comes of it, and the settings that were tried last."""
        process = self._started()
        process.tell(told)
        tried: dict[str, Any] | None = None
        while True:
            answer = process.hear(PATIENCE_S)
            if answer is None:
                self._process = None
                at = "" if tried is None else f" at {shown(tried)}"
                message = f"{job} on {self._handle}: {process.why}{at}"
                return session.Failure(job.kernel.id, job.key, ENDED, message), tried
            if "failed" in answer:
                failure = session.Failure(**answer["failed"])
                if failure.code == BROKEN:
                    self._end()
                return failure, tried
            if "tuned" in answer:
                return _tuned(answer["tuned"]), tried
            tried = answer["tries"]

    def _started(self) -> Process:
        process = self._process
        if process is None:
            if self._closed:
                raise NbxError(f"the process on {self._handle} was ended")
            process = self._process = Process([*COMMAND, self._setup])
            greeting = process.hear(PATIENCE_S)
            if greeting is None or "ready" not in greeting:
                why = process.why if greeting is None else greeting["error"]
                self.close()
                raise NbxError(f"the process on {self._handle} did not start: {why}")
        return process

    def close(self) -> None:
        """End the process, for good."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


def blocked_of(catalog: Catalog) -> list[str]:
    """Return what is blocked here that a process with the installed plugins knows."""
    own = {canonical(name) for name, plugin in catalog.plugins.items() if plugin.distribution is None}
    known = catalog.blocked.difference(vain(catalog, catalog.blocked))
    return sorted(n for n in known if canonical(catalog.owners.get(n, n.partition("/")[0])) not in own)


def _tuned(data: dict[str, Any]) -> Tuned:
    data["excluded"] = tuple(Excluded(**one) for one in data["excluded"])
    return Tuned(**data)


def main(setup: str) -> None:
    """Tune what standard input tells of, on the device of the setup, until it ends."""
    import nbx_registry as nbx  # the whole face: this is a program

    replies = answers()
    try:
        given = json.loads(setup)
        registry = nbx.load(block=given["block"])
        target = registry.target(given["device"])
        if not target.present or target.device is None:
            raise NbxError(f"{given['device']} is not here: {target.why}")
    except NbxError as error:
        reply(replies, {"error": str(error)})
        return
    reply(replies, {"ready": target.name})
    for line in sys.stdin:
        told = json.loads(line)
        entry = PlanEntry.read(Reader(Path("<standard input>"), told["entry"]))
        try:
            job = received(registry, entry, target, told["given"])
        except NbxError as error:
            found: Tuned | session.Failure = session.Failure(entry.kernel, {}, error.code, str(error))
        else:
            avoided = [Excluded(**one) for one in told["avoided"]]
            found = session.finish(
                registry, job, target, Path(given["file"]), None, avoided, lambda tried: reply(replies, _tries(tried))
            )
        reply(replies, {"tuned" if isinstance(found, Tuned) else "failed": asdict(found)})


def _tries(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"tries": {name: plain(value) for name, value in settings.items()}}


if __name__ == "__main__":
    main(sys.argv[1])
