"""Decisions: the answer to "which kernel, and if none, why not", as values that can be read, printed and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

CODES: dict[str, str] = {
    "DTYPE": "a condition on dtypes does not hold",
    "SHAPE": "a condition on extents, ranks or sizes does not hold",
    "LAYOUT": "a condition on strides, contiguity or alignment does not hold",
    "ATTRIBUTE": "a condition on an attribute, or on which optional tensors are given, does not hold",
    "CAPABILITY": "the device lacks a capability the kernel needs",
    "DEVICE": "a condition on a device fact does not hold",
    "ARCH": "the kernel is for other compile targets",
    "FACT_MISSING": "a condition reads a device fact that nobody stated",
    "RUNTIME": "the kernel is launched through another kind of runtime",
    "RUNTIME_MISSING": "no runtime for this device is installed, or it found no device",
    "TOOLKIT_MISSING": "the kernel's toolkit is not installed",
    "EVIDENCE": "what has been checked about the kernel does not satisfy require=",
    "KEY_NOT_TUNED": "require='tuned', and no settings are proven for this key",
    "BLOCKED": "the kernel or its plugin is blocked",
    "PART_REFUSED": "a composite's part has no kernel here",
    "NOT_PINNED": "kernel= names another",
    "OVERLAP": "an output shares memory with an input, which the kernel does not tolerate",
    "ADVISORY": "an advisory revokes the kernel",
    "FAULT": "the kernel's own predicate or binder raised; see faults",
}
"""Every refusal code and what it means."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What has been checked about a kernel, for a device's evidence class."""

    level: Literal["none", "built", "elsewhere", "here"]
    tuned: bool = False
    bundle: str | None = None
    """File of the bundle it rests on."""
    stale: str | None = None
    """What changed since, where a bundle exists but no longer counts."""
    where: str | None = None
    """How it was reached: ``device``, ``interpreter``, ``ptx sm_70 on nvidia/h200-sxm``, ..."""

    def __str__(self) -> str:
        text = {"none": "none", "built": "built", "elsewhere": "checked elsewhere", "here": "checked here"}[self.level]
        text += ", tuned" if self.tuned else ""
        if self.bundle is not None:
            text += f": {Path(self.bundle).name}"
        return text + (f" (stale: {self.stale})" if self.stale else "")


NO_EVIDENCE = Evidence("none")


@dataclass(frozen=True, slots=True)
class Proven:
    """Settings that are proven for a key: what they are, in which file, and when that was."""

    settings: Mapping[str, Any]
    file: Path
    date: str

    def __str__(self) -> str:
        stated = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        return f"{stated or 'the defaults'}, proven {self.date} in {self.file}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a kernel does not run: a code, the failed clause with its values, and what would change the answer."""

    code: str
    reason: str
    would_run_if: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One kernel of the op, and what became of it."""

    kernel: str
    accepted: bool
    code: str | None = None
    reason: str = ""
    """What was met first, with its values."""
    way: str | Callable[[], str] = field(default="", repr=False, compare=False)
    """`would_run_if`, or what tells it."""
    evidence: Evidence = NO_EVIDENCE
    rank: tuple[str, ...] = ()
    """For accepted ones, the criteria it was ordered by, most important first, in words."""
    tuned: Proven | None = None
    """For accepted ones, the tuned settings that it would run with; None where it runs its defaults."""

    @property
    def would_run_if(self) -> str:
        """What would have to be otherwise for the kernel to run: all of it, as far as can be told.

        Looked into when it is first asked for.
        """
        if not isinstance(self.way, str):
            object.__setattr__(self, "way", self.way())
        assert isinstance(self.way, str)
        return self.way

    def __reduce__(self) -> tuple[Callable[..., Candidate], tuple[()]]:
        # Only the words travel to another process.
        fields = {name: getattr(self, name) for name in self.__slots__}
        return partial(Candidate, **{**fields, "way": self.would_run_if}), ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A plugin's bug met while deciding: never a refusal."""

    kernel: str
    plugin: str
    where: str
    message: str
    traceback: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """Which kernel runs a request on a device, and why each other one does not."""

    op: str
    request: str
    """The request in words: ``pixel_shuffle(x: float16[1, 256, 64, 64], r=2)``."""
    device: str
    require: str
    pin: str | None = None
    chosen: str | None = None
    candidates: tuple[Candidate, ...] = ()
    """The accepted first, best first; then the refused, by id."""
    faults: tuple[Fault, ...] = ()
    """Nothing is chosen where one mattered. That of a composite which could not have been the best is told too."""
    hints: tuple[str, ...] = field(default=())
    """Ways out that are no kernel's own: a distribution that brings what the device lacks."""

    def candidate(self, kernel: str) -> Candidate:
        """Return the candidate of that kernel id. Raises KeyError."""
        for candidate in self.candidates:
            if candidate.kernel == kernel:
                return candidate
        raise KeyError(kernel)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "op": self.op,
            "request": self.request,
            "device": self.device,
            "require": self.require,
            "pin": self.pin,
            "chosen": self.chosen,
            "candidates": [
                {
                    "kernel": c.kernel,
                    "accepted": c.accepted,
                    "code": c.code,
                    "reason": c.reason,
                    "would_run_if": c.would_run_if,
                    "evidence": {
                        "level": c.evidence.level,
                        "tuned": c.evidence.tuned,
                        "bundle": c.evidence.bundle,
                        "stale": c.evidence.stale,
                        "where": c.evidence.where,
                    },
                    "rank": list(c.rank),
                    "tuned": None
                    if c.tuned is None
                    else {"settings": dict(c.tuned.settings), "file": str(c.tuned.file), "date": c.tuned.date},
                }
                for c in self.candidates
            ],
            "faults": [
                {
                    "kernel": f.kernel,
                    "plugin": f.plugin,
                    "where": f.where,
                    "message": f.message,
                    "traceback": f.traceback,
                }
                for f in self.faults
            ],
            "hints": list(self.hints),
        }

    def __str__(self) -> str:
        verdict = f"runs {self.chosen}" if self.chosen else "refused: no kernel may run this"
        return "\n".join([f"{self.request} on {self.device} (require={self.require!r}): {verdict}", *self._lines()])

    def _lines(self) -> Iterable[str]:
        for c in self.candidates:
            if c.accepted:
                mark = "->" if c.kernel == self.chosen else " +"
                why = f"; {', '.join(c.rank)}" if c.rank else ""
                yield f"  {mark} {c.kernel}: accepted [{c.evidence}]{why}"
                if c.tuned is not None:
                    yield f"       tuned: {c.tuned}"
            else:
                yield f"   - {c.kernel}: {c.code}: {c.reason} [{c.evidence}]"
                if c.would_run_if:
                    yield f"       would run if: {c.would_run_if}"
        if not self.candidates:
            yield "   no kernel implements this op in the installed plugins"
        for f in self.faults:
            yield f"   ! {f.kernel}: fault in {f.where} of {f.plugin}: {f.message}"
        for hint in self.hints:
            yield f"   hint: {hint}"
