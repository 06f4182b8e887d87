"""Tuning: launch settings found for a kernel's key by checking every candidate against the oracle, then timing it."""

from nbx_registry.tuning.jobs import Job
from nbx_registry.tuning.key import Excluded, Tuned
from nbx_registry.tuning.session import Failure, Outcome, tune
from nbx_registry.tuning.store import merge

__all__ = ["Excluded", "Failure", "Job", "Outcome", "Tuned", "merge", "tune"]
