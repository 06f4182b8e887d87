"""The Registry: decide, call, bind, price over one catalog. The face that users, the CLI and conformance share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

# What deciding, binding and running need is imported by the methods that do so: nbx.load() costs what registering does.
from nbx_registry import environment, plugins
from nbx_registry.catalog import Catalog
from nbx_registry.errors import NbxError, SignatureError, UnknownName
from nbx_registry.kernel import Kernel
from nbx_registry.plugins import Plugin
from nbx_registry.policy import check_asked, check_require

if TYPE_CHECKING:
    from nbx_registry.bisect import Bisection
    from nbx_registry.bound import Bound
    from nbx_registry.call import Call
    from nbx_registry.census import Census
    from nbx_registry.counters import Counters, Ran
    from nbx_registry.decision import Decision, Evidence
    from nbx_registry.device import Device
    from nbx_registry.devicetable import DeviceTable
    from nbx_registry.diagnosis import Finding
    from nbx_registry.dispatch import Dispatcher
    from nbx_registry.draft import Draft
    from nbx_registry.graph import Graph
    from nbx_registry.observe import Observer, Profile
    from nbx_registry.op import Op
    from nbx_registry.plan import Plan
    from nbx_registry.plan_price import PlanPrice
    from nbx_registry.price import Price
    from nbx_registry.program import BoundProgram
    from nbx_registry.programs import Programs
    from nbx_registry.runtime import LiveDevice, Runtime
    from nbx_registry.selection import Selector
    from nbx_registry.signature import Signature
    from nbx_registry.space import Space
    from nbx_registry.target import Target, Targets
    from nbx_registry.tuning import Outcome

Made = TypeVar("Made")


def load(block: Iterable[str] = (), plugins: Sequence[Any] = (), require: str | None = None) -> Registry:
    """Discover plugins and freeze a catalog.

    Parameters
    ----------
    block
        Names of plugins that are not imported and ids of kernels that are refused; ``NBX_BLOCK`` adds to it.
    plugins
        Plugin objects or modules of this process, beside the installed ones.
    require
        The default policy of this registry: ``checked`` unless said otherwise here or by ``NBX_REQUIRE``.

    Raises
    ------
    SignatureError
        An argument is of another kind, a single name or plugin instead of a list of them included.
    UnknownName
        ``block`` names what neither is here nor may be: it would block nothing. (Names are taken as they are; a
        pattern is none.) What ``NBX_BLOCK`` names so is a warning.
    """
    environment.check()
    given, everywhere = _names(block), environment.blocked()
    blocked = {*given, *everywhere}
    if isinstance(plugins, (str, Mapping)) or not isinstance(plugins, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may give anything
        raise SignatureError(f"plugins={plugins!r} is no list of plugins; write plugins=[plugin]")
    if require is not None:
        check_require(require)
    catalog = Catalog(_discover(blocked, plugins), blocked)
    if blocked:
        from nbx_registry.blocking import check  # most block nothing

        check(catalog, given, everywhere)
    return Registry(catalog, require or environment.require())


def _names(block: object) -> tuple[str, ...]:
    given = tuple(cast("Iterable[object]", block)) if isinstance(block, Iterable) else (None,)
    names = tuple(name for name in given if isinstance(name, str))
    if isinstance(block, str) or len(names) != len(given):
        raise SignatureError(f"block={block!r} is no list of names; write block=['nbx-cuda']")
    return names


def _discover(blocked: Iterable[str], extra: Sequence[Any]) -> tuple[Plugin, ...]:
    return plugins.discover((name for name in blocked if "/" not in name), tuple(extra))


class Registry:
    """Kernels of a catalog, ready to be asked and called. Safe to use from many threads.

    Attributes
    ----------
    catalog : Catalog
    counters : Counters
        What ran: ``reg.ran()``.
    observer : Observer or None
        Sees every call while a profile or recording is on.
    """

    def __init__(self, catalog: Catalog, require: str = "checked") -> None:
        self.catalog = catalog
        self.observer: Observer | None = None
        self.default_require = require
        self._dispatchers: dict[str, Dispatcher] = {}
        self._prepare: dict[str, Callable[..., tuple[Call, tuple[Any, ...]]]] = {}
        self._lock = threading.RLock()
        self._parts: dict[str, Any] = {}

    @cached_property
    def counters(self) -> Counters:
        """Counters of what ran."""
        from nbx_registry.counters import Counters

        return self._once("counters", Counters)

    @cached_property
    def _selector(self) -> Selector:
        from nbx_registry.selection import Selector

        return self._once("selector", lambda: Selector(self.catalog))

    @cached_property
    def programs(self) -> Programs:
        """What was bound so far."""
        from nbx_registry.programs import Programs

        return self._once("programs", lambda: Programs(self.catalog, self._selector, self.counters))

    @cached_property
    def _targets(self) -> Targets:
        from nbx_registry.target import Targets

        return self._once("targets", lambda: Targets(self.catalog))

    def _once(self, name: str, make: Callable[[], Made]) -> Made:
        """Make a part on first use: threads that ask at the same time are given the same one."""
        with self._lock:
            if name not in self._parts:
                self._parts[name] = make()
            return self._parts[name]

    # What there is.

    @property
    def ops(self) -> Mapping[str, Op]:
        """Ops by name (``add``, ``sdm::wy_solve``), each its highest version."""
        return MappingProxyType({name: op for name, op in sorted(self.catalog.ops.items()) if "@" not in name})

    @property
    def kernels(self) -> Mapping[str, Kernel]:
        """Kernels by id."""
        return self.catalog.kernels

    @property
    def devices(self) -> DeviceTable:
        """Devices by id."""
        return self.catalog.devices

    @property
    def plugins(self) -> Mapping[str, Plugin]:
        """Plugins by name, quarantined and blocked ones included."""
        return self.catalog.plugins

    def target(self, name: str) -> Target:
        """Return what a device name means here: a product of a file, or a live handle."""
        return self._targets.resolve(name)

    def device(self, name: str) -> tuple[Device | None, LiveDevice | None]:
        """Return a device's facts and, for a live handle, the device that is present."""
        target = self.target(name)
        return target.device, target.live

    def live(self, runtime: str | None = None) -> list[Target]:
        """Return every device that is present, on one runtime or on all. Raises `PluginFault` for a broken runtime."""
        names = sorted(self.catalog.runtimes) if runtime is None else [runtime]
        return [target for name in names for target in self._targets.live(name)]

    def runtime(self, name: str) -> Runtime:
        """Return a runtime by name. Raises `UnknownName`."""
        return self._targets.runtime(name)

    def emulator(self, name: str) -> Runtime:
        """Return the runtime of an emulator. Its environment variables are the caller's matter.

        Raises `UnknownName` with the nearest.
        """
        emulator = self.catalog.emulators.get(name)
        if emulator is None:
            raise UnknownName.of("emulator", name, self.catalog.emulators, "a plugin brings it (see nbx plugins)")
        from nbx_registry.target import make

        return make(emulator.factory, self.catalog.owner("emulators", name))

    def kernel_evidence(self, kernel: str, device: str) -> Evidence:
        """Return what has been checked about a kernel for a device."""
        return self._selector.evidence(self.catalog.kernel(kernel), self.target(device))

    def ran(self) -> list[Ran]:
        """Return what ran so far: op, kernel, device, evidence, calls."""
        return self.counters.rows()

    # Asking.

    def decide(
        self,
        op: str,
        /,
        *tensors: Any,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
        **attributes: Any,
    ) -> Decision:
        """Say which kernel would run a request, and why each other one would not.

        Parameters
        ----------
        tensors
            Spec strings (``"float16[2, 3]"``), `TensorSpec`, arrays, Python scalars or None, in parameter order;
            by keyword too.
        device
            A product or a live handle; by default where the arrays are, else ``cpu``.
        kernel
            A kernel id: that one or its refusal.
        require
            ``any``, ``checked``, ``checked_here`` or ``tuned``.

        Raises
        ------
        SignatureError
            The request does not fit the contract. Never raises for lack of a kernel.
        """
        check_asked(device, kernel, require)
        signature, place = self.signature(op, *tensors, **attributes)
        target = self.target(device or place)
        return self._selector.decide(signature, target, self.require(require), kernel)

    def signature(self, op: str, /, *tensors: Any, **attributes: Any) -> tuple[Signature, str]:
        """Check a request against its contract; return the signature and where its arrays are."""
        from nbx_registry.describe import describe

        contract = self.catalog.op(op)
        given, attributes = contract.arguments(tensors, attributes)
        places: set[str] = set()
        specs = [
            describe(f"{op}: {p.name}", v, places, p.is_list) for p, v in zip(contract.tensors, given, strict=True)
        ]
        if len(places) > 1:
            raise SignatureError(f"{op}: arrays on several devices: {', '.join(sorted(places))}")
        return contract.signature(specs, attributes), next(iter(places), "cpu")

    @overload
    def price(
        self,
        op: str,
        /,
        *tensors: Any,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
        **attributes: Any,
    ) -> Price: ...
    @overload
    def price(self, op: Plan, /, *, device: str | None = None) -> PlanPrice: ...
    def price(
        self,
        op: str | Plan,
        /,
        *tensors: Any,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
        **attributes: Any,
    ) -> Price | PlanPrice:
        """Say what a request costs at the least, and with ``device=`` how long it takes at the least there.

        A whole plan is priced in one go, for its own devices or for ``device``: floor, what lives at a time, the slab.

        Raises `SignatureError` for a request that does not fit; `MissingFact` only when a figure is asked for whose
        fact nobody stated.
        """
        if not isinstance(op, str):
            from nbx_registry.plan import Plan
            from nbx_registry.plan_price import price_plan

            if not isinstance(op, Plan):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may give anything
                raise SignatureError(f"an op is named by a string like 'add' or 'add@1', or it is a plan; not {op!r}")
            if tensors or attributes or kernel is not None or require is not None:
                raise SignatureError("a plan holds its requests, policies and pins; beside it only device= is taken")
            moved = None if device is None else self._target_of(device)("").device
            return price_plan(op, self.catalog, self._selector, self._target_of(device), moved)
        from nbx_registry.price import Price
        from nbx_registry.program import workspace_of

        check_asked(device, kernel, require)
        signature, _ = self.signature(op, *tensors, **attributes)
        cost = signature.op.cost(signature)
        if device is None:
            return Price(signature, cost)
        target = self.target(device)
        decision = self._selector.decide(signature, target, self.require(require), kernel)
        choice = self._selector.choose(signature, target, self.require(require), kernel)
        workspace = () if choice is None else tuple((s.name, s.spec) for s in workspace_of(choice, signature))
        absent = f"{target.name}: {target.why}; would do if {target.way}" if target.device is None else ""
        return Price(signature, cost, target.device, decision, workspace, absent)

    def diagnostics(self, plugin: str | None = None) -> list[Finding]:
        """Return what is wrong whatever the request, with ways out: kernels, references, folders, settings, advisories.

        With ``plugin``, what is wrong with that one's kernels, references and folders alone. Raises `UnknownName`.
        """
        from nbx_registry.diagnosis import findings, of_plugin

        if plugin is None:
            return list(findings(self.catalog, self._selector.conditions))
        if plugin not in self.plugins:
            raise UnknownName.of("plugin", plugin, self.plugins, "nbx plugins lists them")
        return list(of_plugin(self.catalog, self.plugins[plugin], self._selector.conditions))

    # Running.

    def call(
        self,
        op: str,
        /,
        *tensors: Any,
        out: Any = None,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
        **attributes: Any,
    ) -> Any:
        """Run an op on arrays; return its outputs in the library of ``out``, else of the first array.

        Without any array the outputs are `nbx_registry.Tensor` on ``device`` (the host, unless named).

        Raises
        ------
        SignatureError
            The arguments do not fit the contract.
        Refused
            No kernel may run this; ``.decision`` says why for each.
        PluginFault
            A plugin's condition or binder raised.
        OutOfMemory
            Workspace did not fit, or an output on a runtime; a library that allocates outputs raises its own error.
        """
        try:
            prepare = self._prepare[op]
        except (KeyError, TypeError):
            prepare = self._prepare[op] = self.dispatcher(op).prepare
        call, tensors = prepare(tensors, attributes, out, device, kernel, require)
        observer = self.observer
        if observer is not None:
            return observer.observe(call, tensors, out)
        return call.run(tensors, out)

    def bind(
        self,
        op: str,
        /,
        *tensors: Any,
        out: Any = None,
        device: str | None = None,
        kernel: str | None = None,
        require: str | None = None,
        **attributes: Any,
    ) -> Bound:
        """Bind an op to arrays: call the result again and again. Outputs not given in ``out`` are allocated once."""
        from nbx_registry.bound import Bound

        return Bound(self.dispatcher(op), tensors, attributes, out, device, kernel, require)

    def dispatcher(self, op: str) -> Dispatcher:
        """Return the dispatcher of an op. Raises `UnknownName` with the nearest."""
        from nbx_registry.dispatch import Dispatcher

        contract = self.catalog.op(op)
        with self._lock:
            found = self._dispatchers.get(contract.id)
            if found is None:
                found = self._dispatchers[contract.id] = Dispatcher(self, contract)
        return found

    def bind_specs(
        self,
        op: str,
        signature: Signature,
        *,
        device: str,
        kernel: str | None = None,
        require: str = "any",
        runtime: Runtime | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> BoundProgram:
        """Bind without arrays: for an absent device compiled code is made and nothing loaded.

        Parameters
        ----------
        runtime
            Stands in for the device's own runtime (an emulator).
        settings
            Launch settings in the place of tuned ones and defaults, by name: those of ``kernel``, which must be named.

        Raises
        ------
        UnknownName
            For a setting that the kernel lacks.
        SignatureError
            For settings of a kernel that is not named, or where an extent in its key is 0.
        """
        from nbx_registry.program import build
        from nbx_registry.space import given

        if self.catalog.op(op).id != signature.op.id:
            raise SignatureError(f"the signature is of {signature.op.id}, not of {op}")
        target = self.target(device)
        if settings is None:
            choice = self.programs.settle(signature, target, require, kernel)
        else:
            if kernel is None:
                raise SignatureError("settings are those of a kernel: name it, kernel=...", code="ARGUMENTS")
            choice = self.programs.choose(signature, target, require, kernel)
            choice = replace(choice, settings=given(choice.kernel, signature, settings), tuned=None)
        return build(choice, signature, target, require, kernel, runtime)

    def space(self, kernel: str) -> Space | None:
        """Return what may be tried of a kernel's launch settings, None where it states nothing; its module is imported.

        Raises `UnknownName` for a kernel that nobody registers, `PluginFault` where what it names is no `Space` of its.
        """
        from nbx_registry import space
        from nbx_registry.target import load

        found = self.catalog.kernel(kernel)
        return None if found.settings is None else space.of(found, self.catalog.op(found.op), load(found.settings))

    def require(self, require: str | None) -> str:
        """Return the policy in force for a request."""
        return self.default_require if require is None else require

    # Watching and planning.

    @contextmanager
    def profile(self) -> Generator[Profile, None, None]:
        """Time every call made inside the block, each on its own; the profile's ``rows`` say what ran.

        Of every thread, but of calls alone: what runs through `bind` is not looked at.
        """
        from nbx_registry.observe import Profile

        with self.observed(Profile()) as profile:
            yield profile

    @contextmanager
    def record(self) -> Generator[Plan, None, None]:
        """Write down the calls made inside the block, by whatever thread; not what runs through `bind`.

        Each kind of call is an entry of the plan, which is there at once; the calls in order, over the memory they
        touch, are its steps once the block has ended. Nothing is kept alive for it: memory that a library hands out
        again to an array that no call made is taken for the value that was there before.
        """
        from nbx_registry.observe import Recorder
        from nbx_registry.plan import Plan

        plan = Plan()
        recorder = Recorder(plan, self.catalog)
        try:
            with self.observed(recorder):
                yield plan
        finally:
            recorder.close()

    def draft(self, device: str, *, require: str | None = None) -> Draft:
        """Return a draft: a plan from code, for a product or a live device. Nothing runs.

        Raises `UnknownName` for a device that nobody knows, `NbxError` for one without facts.
        """
        from nbx_registry.draft import Draft

        return Draft(self.catalog, self.programs, self.target(device), self.require(require))

    @contextmanager
    def observed(self, observer: Any) -> Generator[Any, None, None]:
        """Let an observer see every call made inside the block. Raises `NbxError` while there is another."""
        with self._lock:
            if self.observer is not None:
                raise NbxError("a profile or recording is on already; one at a time")
            self.observer = observer
        try:
            yield observer
        finally:
            self.observer = None

    def prepare(self, plan: Plan, *, device: str | None = None) -> list[BoundProgram]:
        """Bind a whole plan ahead. After it the same calls find everything bound: nothing is compiled.

        Each entry is bound as it was asked for, under the policy and the pin of then, and not forgotten.

        Parameters
        ----------
        device
            The live device to bind on (``cuda:1``: that of this rank). Left out, every device present of the products
            the plan is for.

        Raises
        ------
        NbxError
            Kernels, digests, settings or toolkits are not what is installed here: every difference is named, field by
            field, and nothing was bound. Or the device is not present, or another product.
        SignatureError
            An entry does not fit its contract.
        Refused
            A kernel of the plan may not run here.
        """
        from nbx_registry.prepare import prepare

        _check_plan(plan)
        wanted = None if device is None else self.target(device)

        def targets_of(product: str) -> list[Target]:
            facts = self.devices[product]
            if wanted is None:
                present = [target for target in self.live(facts.runtime) if target.device is facts]
            else:
                present = [wanted] if wanted.present and wanted.device is facts else []
            if not present:
                what = "not present here (nbx devices lists what is)" if wanted is None else f"not {wanted}"
                raise NbxError(f"the plan is for {product}, which is {what}")
            return present

        return prepare(plan, self.catalog, self.programs, targets_of)

    def keys(self, plan: Plan, *, device: str | None = None) -> Census:
        """Return every launch key that a plan needs, on ``device`` or on its own; nothing is loaded or launched.

        The device may be absent: each entry is decided anew there, under the policy and the pin it was asked for with,
        and gives the keys that a run on that device forms. Views launch nothing; composites launch their parts. Entries
        that nothing may run there are the census's ``refused``.

        Raises
        ------
        SignatureError
            An entry does not fit its contract.
        PluginFault
            A kernel's key cannot be formed.
        """
        from nbx_registry.census import census

        _check_plan(plan)
        return census(plan, self.catalog, self._selector, self._target_of(device))

    def tune(
        self,
        op: str | Plan,
        /,
        *tensors: Any,
        out: Any = None,
        device: str | None = None,
        kernel: str | None = None,
        **attributes: Any,
    ) -> Outcome:
        """Find launch settings for the keys of a request, or of a whole plan, on a device, and write them to a file.

        Of every kernel that may run it and states a space (or of ``kernel``), each candidate that no rule excludes is
        compiled, held against the device's limits, checked against the oracle on several inputs, and only then timed.
        The fastest is what is written if it beats the default once more, else the default is.

        A registry reads settings when it first asks for some: load another to use what was written.

        Parameters
        ----------
        tensors, attributes
            As `decide` takes them. The values of NumPy arrays and Python scalars are those that is tuned on; for specs
            they are drawn.
        out
            A folder, or a file that ends in ``.json``; by default the user's folder of settings.
        device
            A live handle, or a product, of which all devices here share the keys; by default where the arrays are, and
            what the plan is for.

        Raises
        ------
        SignatureError
            The request does not fit its contract, or an extent of a key is 0.
        Refused
            Nothing may run it.
        NbxError
            The device is not here, or ``out`` holds something else.
        """
        from pathlib import Path

        from nbx_registry.tuning import tune

        check_asked(device, kernel, None)
        if out is not None and not isinstance(out, (str, Path)):
            raise SignatureError(f"out={out!r} is no path; write a folder, or a file that ends in .json")
        return tune(
            self,
            op,
            tensors,
            attributes,
            devices=None if device is None else [device],
            kernel=kernel,
            out=None if out is None else Path(out),
        )

    def _target_of(self, device: str | None) -> Callable[[str], Target]:
        """Return what tells for what target the entries of a product are decided."""
        if device is None:
            return self.target
        target = self.target(device)
        if target.device is None:
            raise NbxError(f"{device} has no facts: {target.why}; would do if {target.way}")
        return lambda _: target

    def capture(
        self, function: Callable[..., Any], /, *inputs: Any, device: str | None = None, steps: int = 2
    ) -> Graph:
        """Record a function's calls, which then replay as one: on a device as one graph of its runtime.

        The function is called several times, with ``inputs``: once as it is, while its calls are written down, what
        they allocate becomes the graph's, and what they write in place is kept; once while nothing runs and its calls
        are captured; then runs are compared with replays, byte for byte. In the end the caller's arrays hold what they
        held, and the graph's outputs what the first run left in them.

        Parameters
        ----------
        function
            Makes calls of this registry (`call`, functions of `nbx.ops`, what `bind` returned) in this thread: the
            same ones each time, on the same arrays, whatever those hold. What else it does is not captured.
        inputs
            Arrays that it is given, whose contents change from replay to replay: ``graph(x)`` copies to them. While the
            graph is proven the floating ones are given other contents; without any, the small floating arrays that
            calls on a device read and do not write. What is no array is kept for good.
        device
            Where every call must run; left out, where the first one does.
        steps
            Where a run reads what the one before left (lengths, a cache), so many runs in a row are compared with as
            many replays: 1 for none. Steps that would read indices out of range are left out.

        Raises
        ------
        CaptureError
            Its ``code`` is ``NOT_REPLAYABLE`` for a kernel that does not say that it can be replayed; ``HOST_READ``
            where the function reads a device's tensor on the host; ``MOVED`` where it allocates, or an array lies
            elsewhere each time, or one is returned that no call has to do with; ``CHANGED`` where it makes other calls,
            or none, or returns another number; ``REPLAY_DIFFERS``, with the call and its kernel, where a replay leaves
            other bytes than a run; else ``NOT_CAPTURED``.
        SignatureError, Refused, PluginFault, OutOfMemory
            As `call`.

        Notes
        -----
        On the host nothing is captured: a replay makes the calls one after another, without what the function does
        between them, and nobody can tell that it reads an array there.
        """
        from nbx_registry.capture import capture

        return capture(self, function, inputs, device, steps)

    def bisect(self, run: Callable[[], Any], compare: Callable[[Any, Any], bool]) -> Bisection:
        """Find the kernel, and its first call, that make a client's function go wrong.

        ``run()`` calls ops of this registry, by `call` or as functions, and returns what it computes. It is run first
        with every kernel swapped for the host's, whose result is the reference; then as it is; then, where that is
        wrong, with kernels swapped by halves, and with calls of the faulty one. On a device whose memory the host
        cannot read, arrays are copied to the host and back for each swapped call.

        Parameters
        ----------
        run
            Takes nothing and does the same each time: the same calls in the same order, from one thread, on arrays that
            it makes or does not change; what it returns its next run leaves as it is. An error that it raises, but not
            with the host's kernels, is a wrong result.
        compare
            ``compare(reference, result)`` says whether a result is right.

        Raises
        ------
        NbxError
            What ``run()`` returned was changed by a later run, or there is another profile or recording.
        SignatureError
            ``compare`` returned None.

        Notes
        -----
        What runs through `bind` is not looked at. Kernels for which the host has none stay in place, and are named.
        """
        from nbx_registry.bisect import bisect

        return bisect(self, run, compare)

    @cached_property
    def namespace(self) -> Any:
        """The ops as functions: ``reg.namespace.add(x, y)``, ``reg.namespace.sdm.wy_solve(...)``."""
        from nbx_registry.ops import Namespace

        return Namespace(lambda: self)


def _check_plan(plan: object) -> None:
    from nbx_registry.plan import Plan

    if not isinstance(plan, Plan):
        raise SignatureError(f"{plan!r} is no plan; a file is read by nbx.Plan.load(path)")


_default: Registry | None = None
_default_lock = threading.Lock()


def default() -> Registry:
    """Return the process's registry, loaded on first use. What ``nbx.ops`` and `nbx.asarray` work on."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = load()
    return _default


def set_default(registry: Registry | None) -> Registry | None:
    """Make a registry the process's own (None: load anew on next use); return the one before."""
    global _default
    with _default_lock:
        before, _default = _default, registry
    return before


__all__ = ["Registry", "default", "load", "set_default"]
