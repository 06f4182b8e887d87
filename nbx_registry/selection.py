"""Selection: which kernel of an op runs a signature on a target, and why each other one does not.

For every kernel, in this order: blocked, pinned away, another kind of runtime, whether the device is there and known,
its conditions, whether an advisory revokes it, whether its toolkit is here, and last what has been checked about it. So
EVIDENCE means "would run, had it been checked".

What dtypes, ranks, the device and the policy settle is settled once (`Settled`) and kept in a bounded table; only
conditions on sizes and layouts, those of advisories too, are looked at again for a new signature of known kind.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from nbx_registry import digest, expr
from nbx_registry.catalog import Catalog
from nbx_registry.choice import (
    LEVELS,
    SPECIFICITY,
    Choice,
    Entry,
    Order,
    Settled,
    by_time,
    candidate,
    not_tuned,
    tuned_choice,
)
from nbx_registry.conditions import Conditions, compile_conditions
from nbx_registry.decision import NO_EVIDENCE, Candidate, Decision, Evidence, Fault, Refusal
from nbx_registry.device import Device
from nbx_registry.errors import ExpressionError, NbxError, PluginFault, SignatureError
from nbx_registry.evidence import gate, weakest
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op
from nbx_registry.policy import check_require
from nbx_registry.signature import Signature
from nbx_registry.space import extents
from nbx_registry.target import Target

if TYPE_CHECKING:
    from nbx_registry.settings import TunedEntry

_HOST = "host/cpu"
_NOT_ASKED = ("BLOCKED", "NOT_PINNED")
"""Codes of kernels that were not looked at, because the caller said so."""
SETTLED_LIMIT = 1024
"""How many kinds of signature (dtypes, ranks, device, policy) are remembered for an op."""
COMPOSED_LIMIT = 1024
"""How many traced composites, one a signature, are remembered."""


class Selector:
    """Decides over one catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._conditions: dict[str, Conditions | Fault] = {}
        self._digests = digest.SourceDigests()
        self._settled: OrderedDict[tuple[object, ...], Settled] = OrderedDict()
        self._composed: OrderedDict[tuple[object, ...], Choice | Refusal | Fault] = OrderedDict()
        self._lock = threading.Lock()

    def choose(
        self, signature: Signature, target: Target, require: str, pin: str | None, within: tuple[str, ...] = ()
    ) -> Choice | None:
        """Return what runs, or None where nothing may or a plugin is at fault: then `decide` tells the whole story.

        ``within`` are the composites being expanded around this request.
        """
        settled = self._settle(signature, target, require, pin)
        if settled.faulty:
            return None
        best: tuple[Order, Choice] | None = None
        timed: list[tuple[float, str, Choice]] = []
        for entry in settled.open:
            conditions = entry.conditions
            assert conditions is not None
            try:
                if not conditions.dynamic_ok(signature, target.device) or entry.late is not None:
                    continue
                if entry.advisories and entry.revoked(signature) is not None:
                    continue
                if entry.kernel.backend != "composite":
                    tuned = self._tuned(entry.kernel, conditions, signature, target)
                    if tuned is not None:
                        timed.append((tuned.seconds, entry.kernel.id, tuned_choice(entry, tuned)))
                        best = best or (entry.order, timed[-1][2])
                    elif best is None and require != "tuned":
                        best = (entry.order, Choice(entry.kernel, entry.plugin, entry.evidence, entry.kernel.defaults))
                    continue
            except NbxError:
                return None
            # At best a composite is checked here; skip the tracing where even that would not win.
            if best is not None and best[0] <= (0, *entry.order[1:]):
                continue
            outcome = self._compose(entry, signature, target, require, within)
            if isinstance(outcome, Fault):
                return None
            if isinstance(outcome, Choice):
                order = (LEVELS[outcome.evidence.level], *entry.order[1:])
                if best is None or order < best[0]:
                    best = (order, outcome)
        if best is None:
            return None
        # Where two kernels were timed on this key the faster takes the place of the better-placed one.
        return min(timed)[2] if best[1].tuned is not None else best[1]

    def decide(
        self, signature: Signature, target: Target, require: str, pin: str | None, within: tuple[str, ...] = ()
    ) -> Decision:
        """Return the whole decision: every kernel of the op, accepted or refused with its reason."""
        settled = self._settle(signature, target, require, pin)
        faults: list[Fault] = []
        accepted: list[tuple[Order, Entry, Choice]] = []
        refused: list[Candidate] = []
        for entry in settled.entries:
            outcome = self._judge(entry, signature, target, require, within)
            if isinstance(outcome, Fault):
                faults.append(outcome)
                outcome = Refusal(code="FAULT", reason=outcome.message, would_run_if=f"{entry.plugin} is mended")
            if isinstance(outcome, Refusal):
                refused.append(
                    Candidate(
                        kernel=entry.kernel.id,
                        accepted=False,
                        code=outcome.code,
                        reason=outcome.reason,
                        way=partial(self._way, entry, outcome, signature, target, require, within),
                        evidence=entry.evidence,
                    )
                )
            else:
                accepted.append(((LEVELS[outcome.evidence.level], *entry.order[1:]), entry, outcome))
        # Ids differ, so nothing behind them is compared.
        accepted = by_time(sorted(accepted, key=lambda one: one[0]))
        chosen = accepted[0][2].kernel.id if accepted else None
        if faults and chosen is not None:
            # A composite that could not have been chosen anyhow is not traced for a call, so its fault is only told.
            choice = self.choose(signature, target, require, pin, within)
            chosen = None if choice is None else choice.kernel.id
        return Decision(
            op=signature.op.id,
            request=str(signature),
            device=str(target),
            require=require,
            pin=pin,
            chosen=chosen,
            candidates=(*(candidate(entry, choice, pin) for _, entry, choice in accepted), *refused),
            faults=tuple(faults),
            hints=() if accepted else (*self._hints(target), *self._misses(require)),
        )

    def forget(self) -> None:
        """Look again at what tuned settings there are: some were rejected."""
        with self._lock:
            self._composed.clear()

    def conditions(self, kernel: Kernel) -> Conditions | Fault:
        """Return a kernel's compiled conditions, or its plugin's fault where they cannot be compiled."""
        return self._compiled(kernel, self._catalog.op(kernel.op))

    def key(self, kernel: Kernel, signature: Signature, device: Device) -> tuple[object, ...]:
        """Return the values of a kernel's launch key, in its order. Raises `PluginFault` where one cannot be told."""
        compiled = self._compiled(kernel, signature.op)
        if isinstance(compiled, Fault):
            raise PluginFault(compiled.message, plugin=compiled.plugin, where=compiled.where)
        return compiled.key(signature, device)

    # One kernel.

    def _judge(
        self, entry: Entry, signature: Signature, target: Target, require: str, within: tuple[str, ...]
    ) -> Choice | Refusal | Fault:
        if entry.fault is not None:
            return entry.fault
        if entry.refusal is not None:
            return entry.refusal
        assert entry.conditions is not None
        try:
            refusal = entry.conditions.failed(signature, target.device) or entry.revoked(signature) or entry.late
            if refusal is not None:
                return refusal
            if entry.kernel.backend == "composite":
                return self._compose(entry, signature, target, require, within)
            tuned = self._tuned(entry.kernel, entry.conditions, signature, target)
            if require == "tuned" and tuned is None:
                return not_tuned(entry.kernel, entry.conditions.key(signature, target.device))
        except NbxError as error:
            return self._fault(entry.kernel, error)
        if tuned is not None:
            return tuned_choice(entry, tuned)
        return Choice(entry.kernel, entry.plugin, entry.evidence, entry.kernel.defaults)

    def _compose(
        self, entry: Entry, signature: Signature, target: Target, require: str, within: tuple[str, ...]
    ) -> Choice | Refusal | Fault:
        """Return what comes of a composite; remembered, or one made of composites would be traced at every level."""
        key = (entry.kernel.id, signature.key, target, require, within)
        found = self._composed.get(key)
        if found is None:
            found = self._compose_anew(entry, signature, target, require, within)
            with self._lock:
                while len(self._composed) >= COMPOSED_LIMIT:
                    self._composed.popitem(last=False)
                self._composed[key] = found
        return found

    def _compose_anew(
        self, entry: Entry, signature: Signature, target: Target, require: str, within: tuple[str, ...]
    ) -> Choice | Refusal | Fault:
        kernel = entry.kernel
        if kernel.id in within:
            return Refusal(
                code="PART_REFUSED", reason=f"{kernel.id} is being expanded already: it would contain itself"
            )
        from nbx_registry.composite import expand  # most requests meet no composite

        try:
            expansion = expand(self._catalog, kernel, signature)
        except Exception as error:  # noqa: BLE001 - a plugin's function may raise anything; it becomes its fault
            return self._fault(kernel, error)
        parts: list[Choice] = []
        for step in expansion.steps:
            # Tuned settings are a matter of the parts' own keys; a composite has none.
            part = self.choose(step.signature, target, require, None, (*within, kernel.id))
            if part is None:
                decision = self.decide(step.signature, target, require, None, (*within, kernel.id))
                if decision.faults:
                    return decision.faults[0]
                reasons = "; ".join(f"{c.kernel}: {c.code}: {c.reason}" for c in decision.candidates) or "no kernel"
                ways = " or ".join(sorted({c.would_run_if for c in decision.candidates if c.would_run_if}))
                return Refusal(
                    code="PART_REFUSED",
                    reason=f"part {decision.request} has no kernel here ({reasons})",
                    would_run_if=ways and f"for {step.signature.op.id}: {ways}",
                )
            parts.append(part)
        evidence = weakest([part.evidence for part in parts])
        # Each part has passed the gate; what has no parts has not.
        refusal = gate(evidence, require, kernel=kernel.id, device=target.name)
        return refusal or Choice(kernel, entry.plugin, evidence, {}, None, expansion, tuple(parts))

    def _tuned(self, kernel: Kernel, conditions: Conditions, signature: Signature, target: Target) -> TunedEntry | None:
        if target.device is None or kernel.settings is None:
            return None
        store = self._catalog.settings
        if not store.has(kernel.id):
            return None
        bind = kernel.bind
        key = conditions.key(signature, target.device)
        # A product's own settings come first.
        for product in filter(None, (target.device.id, target.device.settings_from)):
            found = store.lookup(
                kernel.id,
                product,
                kernel.key,
                key,
                parameters=kernel.defaults,
                kernel_digest=(lambda: self._digests.of(bind)) if isinstance(bind, str) else None,
                extents=extents(kernel, signature.op),
            )
            if found is not None:
                return found
        return None

    def _way(
        self,
        entry: Entry,
        refusal: Refusal,
        signature: Signature,
        target: Target,
        require: str,
        within: tuple[str, ...],
    ) -> str:
        """Return all that would have to be otherwise for a kernel to run, as far as can be told from here.

        Deciding stops at the first reason; this goes on behind it.
        """
        ways = [refusal.would_run_if]
        if refusal.code in _NOT_ASKED:
            asked = Entry(entry.kernel, entry.plugin)
            self._examine(asked, signature, target, require)
            outcome = self._judge(asked, signature, target, require, within)
            if isinstance(outcome, Choice):
                return f"{refusal.would_run_if} (nothing else stands in its way)"
            if isinstance(outcome, Fault):
                ways.append(f"{entry.plugin} is mended")
            else:
                ways.append(self._way(asked, outcome, signature, target, require, within))
        elif refusal.code != "FAULT":
            conditions = self._compiled(entry.kernel, signature.op)
            if not isinstance(conditions, Fault):
                # On another runtime, which device it would be is open.
                ways += conditions.unmet(signature, None if refusal.code == "RUNTIME" else target.device)
            ways += [one.would_run_if for item in entry.advisories if (one := item.refusal(signature)) is not None]
            if entry.late is not None:
                ways.append(entry.late.would_run_if)
                if entry.late.code == "TOOLKIT_MISSING":
                    shut = gate(entry.evidence, require, kernel=entry.kernel.id, device=target.name)
                    ways += [shut.would_run_if] if shut is not None else []
        every = list(dict.fromkeys(filter(None, ways)))
        return every[0] if len(every) == 1 else ", and ".join(map(_enclosed, every))

    # What a kind of signature settles.

    def _settle(self, signature: Signature, target: Target, require: str, pin: str | None) -> Settled:
        check_require(require)
        key = (signature.op.id, signature.kind, target, require, pin)
        found = self._settled.get(key)
        if found is None:
            found = self._settle_anew(signature, target, require, pin)
            with self._lock:
                while len(self._settled) >= SETTLED_LIMIT:
                    self._settled.popitem(last=False)
                self._settled[key] = found
        return found

    def _settle_anew(self, signature: Signature, target: Target, require: str, pin: str | None) -> Settled:
        op = signature.op
        kernels = self._catalog.by_op.get(op.id, ())
        if pin is not None and all(kernel.id != pin for kernel in kernels):
            known = self._catalog.kernel(pin)
            raise SignatureError(f"kernel={pin!r} implements {known.op}, not {op.id}")
        settled = Settled([self._entry(kernel, signature, target, require, pin) for kernel in kernels])
        settled.faulty = any(entry.fault is not None for entry in settled.entries)
        settled.open = sorted(
            (e for e in settled.entries if e.refusal is None and e.fault is None),
            key=lambda e: (e.kernel.backend == "composite", e.order),
        )
        return settled

    def _entry(self, kernel: Kernel, signature: Signature, target: Target, require: str, pin: str | None) -> Entry:
        entry = Entry(kernel, self._catalog.owners[kernel.id])
        if kernel.id in self._catalog.blocked:
            entry.refusal = Refusal(
                code="BLOCKED", reason="blocked by the caller", would_run_if=f"{kernel.id} is left out of block="
            )
            return entry
        if pin is not None and kernel.id != pin:
            entry.refusal = Refusal(
                code="NOT_PINNED", reason=f"kernel={pin!r} asks for another", would_run_if=f"kernel={kernel.id!r}"
            )
            return entry
        self._examine(entry, signature, target, require)
        return entry

    def _examine(self, entry: Entry, signature: Signature, target: Target, require: str) -> None:
        """Fill in what the static kind of a signature settles of a kernel that is asked for."""
        kernel = entry.kernel
        if kernel.runtimes and target.runtime_name not in kernel.runtimes:
            entry.refusal = Refusal(
                code="RUNTIME",
                reason=f"launched through {' or '.join(kernel.runtimes)}; {target.name} uses {target.runtime_name}",
                would_run_if=f"the tensors were on a device of {' or '.join(kernel.runtimes)}",
            )
            return
        if target.device is None:
            # A device that is there, but described by no file, has no facts.
            code = "RUNTIME_MISSING" if target.live is None else "FACT_MISSING"
            entry.refusal = Refusal(code=code, reason=target.why, would_run_if=target.way)
            return
        compiled = self._compiled(kernel, signature.op)
        if isinstance(compiled, Fault):
            entry.fault = compiled
            return
        entry.conditions = compiled
        plugin = self._catalog.plugins[entry.plugin]
        entry.advisories = self._catalog.advisories.against(
            kernel.id, plugin.distribution or plugin.name, plugin.version, target.device
        )
        try:
            entry.refusal = compiled.static_failed(signature, target.device)
            if kernel.backend != "composite":
                entry.evidence = self.evidence(kernel, target)
                entry.late = self._late(kernel, target, entry.evidence, require)
        except NbxError as error:
            entry.fault = self._fault(kernel, error)
            return
        entry.order = (
            LEVELS[entry.evidence.level],
            SPECIFICITY[compiled.specificity],
            -kernel.preference,
            kernel.id,
        )

    def _late(self, kernel: Kernel, target: Target, evidence: Evidence, require: str) -> Refusal | None:
        if target.present and kernel.backend != "view" and not self._catalog.toolkit_present(kernel.backend):
            backend = self._catalog.backends[kernel.backend]
            return Refusal(
                code="TOOLKIT_MISSING",
                reason=f"backend {backend.name} needs {', '.join(backend.modules)}, which cannot be found",
                would_run_if=backend.install or f"{backend.distribution or backend.name} is installed",
            )
        return gate(evidence, require, kernel=kernel.id, device=target.name)

    def evidence(self, kernel: Kernel, target: Target) -> Evidence:
        """Return what has been checked about a kernel for a target; a composite has nothing of its own."""
        if target.device is None or not isinstance(kernel.bind, str):
            return NO_EVIDENCE
        bind, op = kernel.bind, self._catalog.op(kernel.op)
        backend = self._catalog.backends.get(kernel.backend)
        toolkit = backend.distribution if backend is not None and target.present else None
        # A view runs nothing on a device: what its check on the host showed holds for every one.
        view = kernel.backend == "view"
        device = self._catalog.devices.get(_HOST) if view else target.device
        if device is None:
            return NO_EVIDENCE
        return self._catalog.evidence.level(
            kernel,
            op_digest=lambda: op.digest,
            kernel_digest=lambda: self._digests.of(bind),
            device=device,
            live=None if view else target.live,
            toolkit=toolkit,
        )

    def _compiled(self, kernel: Kernel, op: Op) -> Conditions | Fault:
        found = self._conditions.get(kernel.id)
        if found is None:
            try:
                found = compile_conditions(kernel, op, self._catalog.owners[kernel.id])
            except NbxError as error:
                found = self._fault(kernel, error)
            self._conditions[kernel.id] = found
        return found

    def _fault(self, kernel: Kernel, error: BaseException) -> Fault:
        import traceback  # only a fault has one

        cause = error.__cause__ or error
        return Fault(
            kernel=kernel.id,
            plugin=self._catalog.owners[kernel.id],
            where=getattr(error, "where", None) or str(kernel.bind),
            message=f"{type(error).__name__}: {error}",
            traceback="".join(traceback.format_exception(cause)),
        )

    def _misses(self, require: str) -> Iterator[str]:
        """Yield what was found in files of settings and tunes nothing, where settings are asked for."""
        if require == "tuned":
            yield from (f"settings that tune nothing: {miss}" for miss in self._catalog.settings.misses())

    def _hints(self, target: Target) -> tuple[str, ...]:
        if target.device is None:
            return ()
        installed = {p.distribution or p.name for p in self._catalog.plugins.values()}
        from nbx_registry.suggestions import hints  # only a refusal has some

        found = list(hints(self._catalog.devices.suggestions, target.device, installed))
        waiting = [p.name for p in self._catalog.plugins.values() if p.state != "active"]
        if waiting:
            found.append(f"plugins not active: {', '.join(waiting)} (see nbx doctor)")
        return tuple(found)


def _enclosed(way: str) -> str:
    """Return a way out that can stand beside others: a condition with ``or`` in parentheses, words as they are."""
    try:
        alternatives = expr.parse(way).node.kind == "or"
    except ExpressionError:
        return way
    return f"({way})" if alternatives else way
