"""Every error of ours. Each names the thing, the value and the way out, and carries a machine-readable ``code``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbx_registry.decision import Decision


class NbxError(Exception):
    """Base of every error this project raises. ``code`` is stable and machine-readable."""

    code = "ERROR"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class SignatureError(NbxError, TypeError):
    """The caller's arguments do not fit the contract; nothing was launched or written."""

    code = "SIGNATURE"


class UnknownName(NbxError, LookupError):
    """An op, kernel, device, plugin or dtype that is not registered; the message gives the nearest name."""

    code = "UNKNOWN"

    # LookupError's subclass KeyError prints repr(message); plain LookupError prints it as it is.
    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str], hint: str = "") -> UnknownName:
        """Build the error for ``name``, which is none of the ``known`` names of that ``kind``."""
        return cls(f"unknown {kind} {name!r}{nearest(str(name), known)}{'; ' + hint if hint else ''}")


class Refused(NbxError):
    """No kernel may run this request. ``decision`` says, for every candidate, why not."""

    code = "REFUSED"

    def __init__(self, decision: Decision, message: str | None = None) -> None:
        super().__init__(message or str(decision), code="REFUSED")
        self.decision = decision


class MissingFact(NbxError, LookupError):
    """A device fact that nobody stated. The message names the key and the file that could state it."""

    code = "FACT_MISSING"


class ExpressionError(NbxError, ValueError):
    """An expression that does not parse, or reads a name nobody defines."""

    code = "EXPRESSION"


class SchemaError(NbxError, ValueError):
    """An op's schema string, or a rule beside it, is malformed."""

    code = "SCHEMA"


class SpecError(NbxError, ValueError):
    """A spec string (``float16[2, 3]``) that does not parse, or describes no possible tensor."""

    code = "SPEC"


class TraceError(NbxError, ValueError):
    """A trace of allocations and frees that no run could leave: the message names the event and its key."""

    code = "TRACE"


class FileError(NbxError, ValueError):
    """A device file, overlay, evidence bundle, settings or weights file that is malformed."""

    code = "FILE"


class DuplicateError(NbxError, ValueError):
    """One id registered twice. The message names both owners."""

    code = "DUPLICATE"


class EnvironmentVariableError(NbxError, ValueError):
    """An ``NBX_`` environment variable whose value does not parse."""

    code = "ENVIRONMENT"


class PluginFault(NbxError):
    """A plugin's bug: its predicate, binder, contract or hook raised. ``plugin`` and ``where`` say whose."""

    code = "PLUGIN_FAULT"

    def __init__(self, message: str, *, plugin: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.plugin = plugin
        self.where = where


class OutOfMemory(NbxError, MemoryError):
    """An allocation that did not fit. All figures are bytes; ``None`` where the runtime cannot tell.

    ``requested`` is what was asked for, ``live`` what is handed out, ``pooled`` what the pool keeps for reuse,
    ``free`` what the device reports free.
    """

    code = "OUT_OF_MEMORY"

    def __init__(self, message: str, *, requested: int, live: int | None, pooled: int | None, free: int | None) -> None:
        super().__init__(message)
        self.requested = requested
        self.live = live
        self.pooled = pooled
        self.free = free


class CaptureError(NbxError):
    """Calls that cannot be captured as a graph, or a graph that is not what the calls are.

    ``code`` says what is in the way: ``NOT_REPLAYABLE`` (a kernel), ``HOST_READ`` (the host waits for the device),
    ``MOVED`` (memory is allocated, so that it lies elsewhere each time), ``CHANGED`` (other calls each time),
    ``REPLAY_DIFFERS`` (other bytes than the calls leave), ``NOT_CAPTURED`` (what the runtime says). ``kernel`` is the
    id of the kernel that it is about, None where it is about none.
    """

    code = "NOT_CAPTURED"

    def __init__(self, message: str, *, code: str | None = None, kernel: str | None = None) -> None:
        super().__init__(message, code=code)
        self.kernel = kernel


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, or an empty string: one that goes on is closest."""
    import difflib  # a name that is known needs none

    by_folded = {candidate.casefold(): candidate for candidate in known}
    longer = sorted((one for one in by_folded if len(name) > 2 and one.startswith(name.casefold())), key=len)
    close = longer[:1] or difflib.get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=0.6)
    return f"; did you mean {by_folded[close[0]]!r}?" if close else ""


def shortened(text: str, limit: int) -> str:
    """Return a text of at most so many characters: what is longer ends with ``...`` behind a whole word."""
    if len(text) <= limit:
        return text
    kept = text[: limit - 3]
    words = kept if text[len(kept)].isspace() else kept.rpartition(" ")[0]
    return f"{words.rstrip() or kept}..."


def one_line(text: str, limit: int) -> str:
    """Return a text in one line that shows all of its characters, `shortened`: what others say may hold any."""
    line = shortened(" ".join(text.split()), limit)
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in line)
