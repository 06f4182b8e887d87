"""Processes that answer in lines: what is heard, and what is said of one that ends, is late or is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from nbx_registry.process import Process


def running(code: str, **environment: str) -> Process:
    return Process([sys.executable, "-I", "-S", "-c", f"import os, sys, time; {code}"], environment)


def test_it_is_told_and_answers_line_by_line() -> None:
    process = running("""print(sys.stdin.readline(), end=""); print('{"b": "%s"}' % os.environ["GIVEN"])""", GIVEN="g")
    process.tell({"a": 1})
    assert process.hear(60) == {"a": 1}
    assert process.hear(60) == {"b": "g"}
    assert process.hear(60) is None
    # What has ended is told nothing more, and says the same.
    process.tell({})
    assert process.hear(60) is None
    process.close()
    assert process.why == "the process ended with code 0"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os.write(1, b'{'); os._exit(7)", "the process ended with code 7"),
        ("time.sleep(60)", "took longer than 0.2 s"),
        pytest.param(
            "os.abort()",
            "SIGABRT ended the process",
            marks=pytest.mark.skipif(os.name != "posix", reason="elsewhere no signal ends a process"),
        ),
    ],
    ids=["half-a-line", "late", "signal"],
)
def test_it_is_said_what_ended_it(code: str, why: str) -> None:
    process = running(code)
    process.tell({})
    assert process.hear(0.2 if "sleep" in code else 60) is None
    assert process.why == why


def test_one_that_has_answered_ends_by_itself_and_another_is_ended() -> None:
    process = running("print('{}', flush=True); sys.stdin.read(); os._exit(5)")
    assert process.hear(60) == {}
    process.close()
    assert process._process.returncode == 5
    began = time.monotonic()
    busy = running("time.sleep(60)")
    busy.tell({})
    busy.close()
    assert busy.why == "it was ended"
    assert time.monotonic() - began < 30


def test_another_thread_may_end_it() -> None:
    process = running("time.sleep(60)")
    heard: list[object] = []
    thread = threading.Thread(target=lambda: heard.append(process.hear(60)))
    thread.start()
    process.end()
    thread.join(30)
    assert heard == [None]


def test_what_a_process_prints_is_no_answer() -> None:
    code = """
import os
from nbx_registry.process import answers, reply
stream = answers()
print("printed", flush=True)
os.write(1, b"by what it calls")
reply(stream, {"a": 1})
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == '{"a": 1}\n'
    assert "printed" in ran.stderr


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a process does not learn that its parent ended")
def test_one_whose_parent_was_killed_ends_amid_its_work() -> None:
    # At a candidate that never ends nobody would end it, and its device would stay taken.
    child = "from nbx_registry.process import answers; import time; answers(); time.sleep(600)"
    parent = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    number = int(process.stdout.readline())
    time.sleep(2)
    os.kill(number, 0)
    process.kill()
    process.wait()
    # It has the writing end too: what ends it closes this.
    late = threading.Timer(30, os.kill, (number, signal.SIGKILL))
    late.start()
    process.stdout.read()
    process.stdout.close()
    assert late.is_alive()
    late.cancel()
