"""Sessions: one run over a selection, from the registry to the records and the bundle."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import nbx_registry as nbx
from nbx_conformance.cases import SIZES, CaseTable
from nbx_conformance.runs import runner, waivers
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.route import Route, find
from nbx_conformance.runs.runner import Item, KernelVerdict, Record, Selection
from nbx_conformance.runs.shards import share
from nbx_conformance.runs.waivers import Waivers
from nbx_conformance.runs.worker import Worker
from nbx_conformance.trials.trial import Outcome, Site
from nbx_registry import digest
from nbx_registry.errors import FileError, NbxError, UnknownName
from nbx_registry.registry import Registry


class Session:
    """A run. Nothing is loaded before it is asked for.

    Attributes
    ----------
    records
        What was found, by kernel and case.
    outcomes
        What was found of plugins as wholes, by plugin and check.
    kept
        What an earlier run, broken off, found: it is not tried again.
    before
        Seconds that it took.
    began
        When this one began, by `time.perf_counter`.
    """

    def __init__(self, options: Options, registry: Registry | None = None, slot: int = 0) -> None:
        self.options = options
        self._given = registry
        self._slot = slot
        self._worker: Worker | None = None
        self._apart = options.isolated
        self.records: dict[tuple[str, str], Record] = {}
        self.outcomes: dict[str, dict[str, Outcome]] = {}
        self.kept: Mapping[tuple[str, str], Record] = {}
        self.before = 0.0
        self.digests: dict[str, str] = {}
        self.began = time.perf_counter()

    @cached_property
    def registry(self) -> Registry:
        """The registry whose kernels are tried."""
        return self._given or nbx.load(plugins=self.options.extra)

    @cached_property
    def cases(self) -> CaseTable:
        """Cases of every op that has some."""
        return runner.case_table(self.registry)

    @cached_property
    def route(self) -> Route:
        """How the device is reached."""
        return find(self.registry, self.options.device or "cpu", self.options.via, self._slot)

    @cached_property
    def site(self) -> Site:
        """Where kernels are tried."""
        return self.route.site(self.registry, self.cases)

    @cached_property
    def selection(self) -> Selection:
        """What is tried. Raises `UnknownName` for a name that nothing has, with the nearest."""
        options, catalog = self.options, self.registry.catalog
        if options.size not in SIZES:
            raise UnknownName.of("size", options.size, SIZES, "sizes are " + ", ".join(SIZES))
        for plugin in options.plugins:
            if plugin not in catalog.plugins:
                raise UnknownName.of("plugin", plugin, catalog.plugins, "nbx plugins lists them")
            found = catalog.plugins[plugin]
            if found.state != "active":
                raise UnknownName(f"plugin {plugin!r} is {found.state}: {found.reason}; {found.way_out}")
        for kernel in options.kernels:
            catalog.kernel(kernel)
        return Selection(
            plugins=frozenset(options.plugins),
            ops=frozenset(catalog.op(op).id for op in options.ops),
            kernels=frozenset(options.kernels),
            size=options.size,
        )

    @cached_property
    def whole(self) -> Sequence[Item]:
        """Every trial, those of other shards too."""
        found = runner.items(self.site, self.selection)
        # What is tried is the code as it is now, whatever becomes of the files before the bundle is written.
        kernels = {item.kernel.id: item.kernel.bind for item in found}
        self.digests = {name: self._digest(name, bind) for name, bind in kernels.items() if isinstance(bind, str)}
        return found

    def _digest(self, kernel: str, bind: str) -> str:
        try:
            return digest.source_digest(bind)
        except UnknownName as error:
            owner = self.registry.catalog.owners[kernel]
            raise FileError(
                f"kernel {kernel} has no code: {error}; correct it, or go on without {owner}: NBX_BLOCK={owner}"
            ) from error

    @cached_property
    def items(self) -> Sequence[Item]:
        """Every trial of this run's shard, in an order that is the same in every process."""
        return self.whole if self.options.shard is None else share(self.whole, *self.options.shard)

    @cached_property
    def waivers(self) -> Waivers:
        """The waivers that are about this run's device. Raises `FileError`."""
        return waivers.of_session(self)

    def run(self, item: Item) -> Record:
        """Try one kernel on one case, here or in a process of its own, unless that is done already."""
        found = self.waivers.apply(self.kept.get((item.kernel.id, item.case.id)) or self._tried(item))
        self.add(found)
        return found

    def _tried(self, item: Item) -> Record:
        item = replace(item, looser=self.waivers.looser(item.kernel.id, item.case.id))
        if self._apart or self.route.apart:
            return self._elsewhere().run(item)
        record = runner.execute(self.site, item)
        # Plugin objects of this process are in no other.
        self._apart = not self.options.extra and self.lost(record)
        return record

    def lost(self, record: Record) -> bool:
        """Whether a trial left the device in a state in which this process can use it no more."""
        live, runtime = self.site.target.live, self.site.target.runtime
        if record.verdict not in ("fail", "error") or self.site.reach != "here" or live is None or runtime is None:
            return False
        try:
            runtime.synchronize(live.index)
        except NbxError:
            return True
        return False

    def start(self) -> None:
        """Start the process that trials need, if they need one, so that it gets ready meanwhile."""
        if self._apart or self.route.apart:
            self._elsewhere().start()

    def add(self, record: Record) -> None:
        """Take in a record, also one made elsewhere, as waivers leave it."""
        self.records[record.kernel, record.case] = record

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, and of what it goes on from."""
        return self.before + time.perf_counter() - self.began

    @property
    def handle(self) -> str | None:
        """The device that this process tries kernels on, where it tries them on one."""
        live = self.route.target.live
        return live.handle if self.route.reach == "here" and live is not None else None

    def handles(self) -> list[str]:
        """Return the devices that trials ran on."""
        return sorted({record.handle for record in self.records.values() if record.handle is not None})

    def by_kernel(self) -> Mapping[str, list[Record]]:
        """Return the records of each kernel tried, by op and id; a kernel's in the order in which they came."""
        found: dict[str, list[Record]] = {}
        for record in sorted(self.records.values(), key=lambda record: (record.op, record.kernel)):
            found.setdefault(record.kernel, []).append(record)
        return found

    def verdicts(self) -> Mapping[str, KernelVerdict]:
        """Return the verdict of each kernel tried."""
        return {kernel: runner.verdict_of(records) for kernel, records in self.by_kernel().items()}

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """The versions of driver and toolkit that the run rests on."""
        if self.route.apart:
            return self._elsewhere().versions()
        if self.site.emulator is not None:
            return dict(self.site.emulator.devices()[0].versions)
        live = self.site.target.live
        return dict(live.versions) if live is not None else {}

    def _elsewhere(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self.options, self.handle, self.route.via, self.route.environment or {})
        return self._worker

    def close(self) -> None:
        """End the process that trials ran in, if there is one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def sessions(options: Options, slot: int = 0) -> list[Session]:
    """Return a session for the device asked for, or for the first live device of each runtime that kernels are for.

    ``slot`` is the number of this process among those that share the run. Raises `NbxError` where none of these
    runtimes has a device, or a name is unknown.
    """
    session = Session(options, slot=slot)
    if options.device is not None:
        return [session]
    catalog, registry, selection = session.registry.catalog, session.registry, session.selection
    kernels = [
        kernel
        for kernel in catalog.kernels.values()
        if (not selection.plugins or catalog.owners[kernel.id] in selection.plugins)
        and (not selection.kernels or kernel.id in selection.kernels)
    ]
    wanted = sorted({runtime for kernel in kernels for runtime in kernel.runtimes})
    present = {name: registry.runtime(name) for name in wanted if name in catalog.runtimes}
    handles = [devices[0].handle for runtime in present.values() if (devices := runtime.devices())]
    if not handles:
        why = "; ".join(f"{name}: {runtime.why_absent()}" for name, runtime in present.items())
        raise NbxError(
            f"nothing can be measured: no device of {', '.join(wanted) or 'any runtime'} is here"
            f" ({why or 'none installed'}); name a product, to reach it through an emulator or to build for it"
        )
    return [Session(replace(options, device=handle), registry) for handle in handles]


def unmeasured(verdicts: Mapping[str, KernelVerdict]) -> Iterable[str]:
    """Return the kernels about which nothing was measured, though they are for this device."""
    return [kernel for kernel, verdict in verdicts.items() if verdict == "unmeasured"]
