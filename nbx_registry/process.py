"""Processes that are told something and answer, a line of JSON each, and that may end or take too long.

Work that may end its process is done in one, and so is work that needs an environment or a device of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

_LOOK_S: Final = 1.0
"""How often a process looks whether its parent is there."""

LAST_SECONDS: Final = 10
"""How long a process that has answered may take to end."""


class Process:
    """The parent's end of a process that is started with this.

    Parameters
    ----------
    command
        What is started; it answers on `answers`.
    environment
        Variables beside those of this process.

    Attributes
    ----------
    why
        What ended it, in words; empty as long as nothing was found to have.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.why = ""
        self._busy = False
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # Ctrl-C is for the parent, which ends this process in its turn.
            process_group=0 if os.name == "posix" else None,
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def tell(self, data: Mapping[str, Any]) -> None:
        """Send a line. Whether it arrived is found out by `hear`."""
        assert self._process.stdin is not None
        if self.why:
            return
        self._busy = True
        line = json.dumps(data) + "\n"
        # Another thread may have ended it, and closed what leads to it.
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Return the next line; None, and say `why`, where the process ended, or took too long and is ended."""
        assert self._process.stdout is not None
        if self.why:
            return None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            line = self._process.stdout.readline()
        except ValueError:
            # Another thread ended it.
            line = ""
        finally:
            timer.cancel()
        # A process that ends while it answers leaves a line without an end.
        if line.endswith("\n"):
            self._busy = False
            return json.loads(line)
        self.end()
        code = self._process.returncode
        if late.is_set():
            self.why = f"took longer than {seconds:g} s"
        elif code < 0:
            self.why = f"{signal.Signals(-code).name} ended the process"
        else:
            self.why = f"the process ended with code {code}"
        return None

    def close(self) -> None:
        """Let the process end, or end it at once where it has not answered yet."""
        assert self._process.stdin is not None
        if not self._busy:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(LAST_SECONDS)
        self.end()

    def end(self) -> None:
        """End the process at once, if it has not ended, and close what led to it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            # What it was not there to read any more is of no use to anyone.
            with suppress(BrokenPipeError):
                stream.close()
        self.why = self.why or "it was ended"


def answers() -> IO[str]:
    """Return what a process answers on; what it prints from here on, in whatever language, goes to standard error.

    From here on it ends where its parent is gone: at work that never ends nobody would end it, and let go its device.
    """
    if os.name == "posix":
        threading.Thread(target=_end_without, args=(os.getppid(),), daemon=True).start()
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


def _end_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


def reply(stream: IO[str], data: Mapping[str, Any]) -> None:
    """Answer with a line."""
    stream.write(json.dumps(data) + "\n")
    stream.flush()
