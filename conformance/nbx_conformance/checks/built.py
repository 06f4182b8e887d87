"""Built: a kernel compiles for a device that need not be here, within the limits that its file states."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from nbx_conformance.trials.trial import Outcome, Trial
from nbx_registry.errors import MissingFact
from nbx_registry.launch import Artifact, Launch

NAME = "built"

_LIMITS: Final = (
    ("shared_bytes", "shared.bytes_per_block_optin", "bytes of shared memory a block"),
    ("threads", "threads.per_block", "threads a block"),
    ("registers", "registers.per_thread", "registers a thread"),
)


def check(trial: Trial) -> Outcome:
    """Bind for the absent device and hold what came out against the device's limits."""
    device = trial.site.target.device
    assert device is not None
    if not trial.bound.launches:
        return Outcome(NAME, "pass", "nothing is launched, so nothing need be built")
    wrong: list[str] = []
    for launch in trial.bound.launches:
        artifact = launch.function
        if not isinstance(artifact, Artifact):
            return Outcome(NAME, "error", f"nothing was built: the launch holds a {type(artifact).__name__}")
        if not artifact.image:
            wrong.append(f"{artifact.entry} has an empty image")
        for field, key, what in _LIMITS:
            used = _used(launch, artifact, field)
            try:
                limit = device.fact(key)
            except MissingFact:
                continue
            if used is not None and used > limit:
                wrong.append(f"{artifact.entry} takes {used} {what}; {device.id} has {limit}")
    return Outcome(NAME, "fail" if wrong else "pass", "; ".join(wrong))


def describe(launch: Launch) -> dict[str, Any] | None:
    """Return what the compiler said about a launch's code, as plain data; None for what is not compiled."""
    artifact = launch.function
    if not isinstance(artifact, Artifact):
        return None
    facts = {
        "arch": artifact.arch,
        "toolkit": artifact.toolkit,
        "entry": artifact.entry,
        "kind": artifact.kind,
        "shared_bytes": _used(launch, artifact, "shared_bytes"),
        "registers": artifact.registers,
        "spills": artifact.spills,
        "threads": _used(launch, artifact, "threads"),
        "image": hashlib.sha256(artifact.image).hexdigest()[:16],
    }
    return {key: value for key, value in facts.items() if value is not None}


def _used(launch: Launch, artifact: Artifact, field: str) -> int | None:
    if field == "shared_bytes":
        return max(artifact.shared_bytes, launch.shared_bytes)
    if field == "threads":
        return artifact.threads or launch.block[0] * launch.block[1] * launch.block[2]
    return artifact.registers
