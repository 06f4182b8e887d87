"""Refusals: what is not declared is refused with the specified code, before anything is allocated or written."""

from __future__ import annotations

from typing import Final

from nbx_conformance.cases import Case
from nbx_conformance.trials import public
from nbx_conformance.trials.trial import Outcome, Trial, message
from nbx_registry.decision import Candidate
from nbx_registry.errors import NbxError, Refused, SignatureError

NAME = "refusals"

OF_REQUEST: Final = frozenset({"DTYPE", "SHAPE", "LAYOUT", "ATTRIBUTE", "PART_REFUSED", "ADVISORY"})
"""Codes that say what a kernel does not take, or what it was revoked for."""
OF_DEVICE: Final = frozenset({"CAPABILITY", "DEVICE", "ARCH", "FACT_MISSING"})
"""Codes that say which devices it is not for."""


def of_contract(trial: Trial) -> Outcome:
    """Check a case that no kernel may compute: the specified error comes, and nothing is written."""
    case = trial.case
    try:
        outputs = trial.problem.signature.outputs
    except SignatureError as error:
        return Outcome(NAME, "fail" if (wrong := _unspecified(case, error)) else "refused", wrong or message(error))
    if not trial.site.public:
        return Outcome(NAME, "refused", f"{case.refuses}: not asked: the error needs a call through the registry")
    prepared = public.prepare(trial, outputs)
    try:
        public.call(trial, prepared, out=prepared.out)
    except NbxError as error:
        wrong = _unspecified(case, error)
        if wrong and isinstance(error, Refused):
            # A kernel that does not take such tensors is never asked about their values.
            wrong = _unfounded(case, error.decision.candidate(trial.kernel.id))
        wrong = wrong or _written(prepared, error)
        return Outcome(NAME, "fail" if wrong else "refused", wrong or message(error))
    except Exception as error:  # noqa: BLE001 - whatever came instead of the error that is specified is the finding
        return Outcome(NAME, "error", f"{message(error)} came, not an error with the code {case.refuses}")
    return Outcome(NAME, "fail", f"computed, but {case.refuses} was to come: {case.source}")


def of_kernel(trial: Trial, refused: Refused) -> Outcome:
    """Check the refusal of a kernel that does not take the case: code and reason fit, and nothing is written."""
    candidate = refused.decision.candidate(trial.kernel.id)
    wrong = _unfounded(trial.case, candidate)
    if not wrong and trial.site.public and not trial.large and candidate.code in OF_REQUEST:
        runtime, index, _ = public.device_of(trial.site)
        prepared = public.prepare(trial, trial.problem.signature.outputs)
        before = runtime.memory(index)
        try:
            public.call(trial, prepared, out=prepared.out)
        except (Refused, SignatureError) as error:
            # Some views that a contract knows, backward ones, no caller's array may be.
            wrong = _written(prepared, error)
            if not wrong and runtime.memory(index).allocations != before.allocations:
                wrong = f"{message(error)}, but memory was allocated for it"
        except Exception as error:  # noqa: BLE001 - as above: what came instead is the finding
            return Outcome(NAME, "error", f"{message(error)} came, not the refusal {candidate.code}")
        else:
            wrong = f"refused when asked ({candidate.code}), yet computed when called"
    return Outcome(NAME, "fail" if wrong else "refused", wrong or f"{candidate.code}: {candidate.reason}")


def _unspecified(case: Case, error: NbxError) -> str:
    if error.code != case.refuses:
        return f"refused as {message(error)}; the code must be {case.refuses}"
    missing = [text for text in case.says if text not in str(error)]
    return f"{message(error)}: the message lacks {', '.join(map(repr, missing))}" if missing else ""


def _unfounded(case: Case, candidate: Candidate) -> str:
    code = candidate.code or ""
    if code not in OF_REQUEST | OF_DEVICE:
        return f"not measured: {code}: {candidate.reason}"
    if not candidate.reason:
        return f"refused as {code} without a reason"
    if code == "LAYOUT" and case.contiguous:
        return f"refused as LAYOUT, but every tensor is contiguous and aligned: {candidate.reason}"
    return ""


def _written(prepared: public.Call, error: NbxError) -> str:
    damage = prepared.damage()
    return f"{message(error)}, but {damage}" if damage else ""
