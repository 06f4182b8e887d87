"""Guards: what depends on addresses or values, looked at on every call, and left out where it cannot matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nbx_registry.decision import Candidate, Decision
from nbx_registry.errors import Refused, SignatureError
from nbx_registry.kernel import Kernel
from nbx_registry.runtime import Slot
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec


class OverlapGuard:
    """Refuses memory shared between what is written and anything else, as far as the kernel does not tolerate it.

    Spans of memory are compared, from the first byte to the last: interleaved views count as overlapping.

    Attributes
    ----------
    pairs : list of tuple
        (written slot, other slot, bytes that the written spans, bytes that the other spans, whether the very same
        elements are tolerated).
    """

    def __init__(self, kernel: Kernel, slots: Sequence[Slot], written: Sequence[int]) -> None:
        self._slots = slots
        self.pairs = [
            (w, other, _span(slots[w].spec), _span(slots[other].spec), _tolerated(kernel, slots[w], slots[other]))
            for w in written
            for other in range(len(slots))
            if other != w and not (other in written and other < w) and not slots[other].spec.weak
        ]

    def find(self, addresses: Sequence[int]) -> tuple[Slot, Slot] | None:
        """Return the first two slots whose memory overlaps in a way the kernel does not tolerate."""
        for w, other, bytes_w, bytes_other, same in self.pairs:
            start, other_start = addresses[w], addresses[other]
            if (
                start < other_start + bytes_other
                and other_start < start + bytes_w
                and not (same and start == other_start)
            ):
                return self._slots[w], self._slots[other]
        return None


def _span(spec: TensorSpec) -> int:
    """Return the bytes from a tensor's first to one past its last."""
    return spec.extent * spec.dtype.itemsize


def _tolerated(kernel: Kernel, written: Slot, other: Slot) -> bool:
    a, b = written.spec, other.spec
    same = a.shape == b.shape and a.strides == b.strides and a.dtype.itemsize == b.dtype.itemsize
    return same and kernel.overlap == "same" and other.kind == "input"


def overlap_refusal(decision: Decision, kernel: Kernel, written: Slot, other: Slot) -> Refused:
    """Return the error for overlapping memory: the decision with the chosen kernel refused for it."""
    reason = f"{written.name!r} ({written.spec}) shares memory with {other.name!r} ({other.spec})"
    way = f"{written.name!r} has memory of its own (pass a copy)"
    candidates = tuple(
        Candidate(kernel=c.kernel, accepted=False, code="OVERLAP", reason=reason, would_run_if=way, evidence=c.evidence)
        if c.kernel == kernel.id
        else c
        for c in decision.candidates
    )
    refused = replace(decision, chosen=None, candidates=candidates)
    return Refused(refused, f"{reason}, which {kernel.id} does not tolerate; would run if {way}\n{refused}")


def check_index_bounds(signature: Signature, arrays: dict[str, Any]) -> None:
    """Raise `SignatureError` if a host index is outside what the contract allows, naming index and limit."""
    for name, (low, high, what) in signature.index_limits().items():
        array = arrays.get(name)
        if array is None or array.size == 0:
            continue
        smallest, largest = int(array.min()), int(array.max())
        if smallest < low or largest >= high:
            bad = smallest if smallest < low else largest
            raise SignatureError(
                f"{signature.op.name}: {name} holds {bad}, outside {low}..{high - 1} ({what} is {high}); "
                "nothing was written"
            )
