"""Prices: what a request costs at the least, from the contract and the device's file. Nothing need be present."""

from __future__ import annotations

from dataclasses import dataclass

from nbx_registry.cost import Cost
from nbx_registry.decision import Decision
from nbx_registry.device import Device
from nbx_registry.errors import MissingFact, Refused
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

BANDWIDTH = "memory.bandwidth_bytes_per_s"

CACHES = ("last_level_cache.bytes", "l2.bytes")
"""What may hold operands from one run to the next; where a device has both, both do."""


@dataclass(frozen=True)
class Price:
    """The price of one request. Bytes and operations are exact integers.

    Attributes
    ----------
    signature
    cost
        Nominal and least cost, from the contract.
    device
        Whose facts give the floor; None if none was named, or the one that was is not here.
    decision
        Which kernel would run there; None without a device.
    declared_workspace
        Names and specs of the chosen kernel's workspace.
    absent
        Why the device that was named has no facts; empty where it has, and where none was named.
    """

    signature: Signature
    cost: Cost
    device: Device | None = None
    decision: Decision | None = None
    declared_workspace: tuple[tuple[str, TensorSpec], ...] = ()
    absent: str = ""

    @property
    def flops(self) -> int:
        """Operations, nominal."""
        return self.cost.flops

    @property
    def bytes_read(self) -> int:
        """Bytes read, nominal."""
        return self.cost.bytes_read

    @property
    def bytes_written(self) -> int:
        """Bytes written, nominal."""
        return self.cost.bytes_written

    @property
    def least_bytes(self) -> int:
        """The fewest bytes any implementation moves."""
        return self.cost.least_bytes

    @property
    def least_flops(self) -> int:
        """The fewest operations any implementation does."""
        return self.cost.least_flops

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Specs of the outputs, as the contract infers them."""
        return self.signature.outputs

    @property
    def workspace(self) -> int:
        """Bytes of workspace of the kernel that would run. Raises `Refused` if none would."""
        if self.decision is None:
            raise MissingFact("workspace belongs to a kernel on a device: name one with device=")
        if self.decision.chosen is None:
            raise Refused(self.decision)
        return sum(spec.nbytes for _, spec in self.declared_workspace)

    @property
    def floor_s(self) -> float:
        """Seconds below which no implementation can go on the device. Raises `MissingFact` for a fact not stated."""
        return self.floor()[0]

    def floor(self) -> tuple[float, str]:
        """Return the floor in seconds and what bounds it, ``memory`` or the unit that does the work."""
        if self.device is None:
            raise MissingFact(f"a floor needs a device: {self.absent or 'name one with device='}")
        return floor(self.cost, self.device)


def floor(cost: Cost, device: Device) -> tuple[float, str]:
    """Return the larger of bytes over bandwidth and operations over peak, and which it is.

    Raises `MissingFact` naming the fact that is not stated; a rate is asked for only where there is work for it.
    """
    seconds, bound = 0.0, "memory"
    if cost.least_bytes:
        seconds = cost.least_bytes / float(device.fact(BANDWIDTH))
    if cost.least_flops:
        operations = cost.least_flops / peak(cost, device)
        if operations > seconds:
            seconds, bound = operations, cost.unit
    return seconds, bound


def peak(cost: Cost, device: Device) -> float:
    """Return the rate, operations a second, of the unit and dtype that do the work. Raises `MissingFact`.

    IEEE float32 and float64 products run on the vector unit where a device has no matrix unit for them; half
    precision elementwise work accumulates in float32, so the float32 vector rate is its rate.
    """
    dtype, unit = cost.dtype, cost.unit
    if unit == "vector" and dtype.name in ("float16", "bfloat16"):
        return float(device.fact("peak.vector.float32_flop_per_s"))
    key = f"peak.{unit}.{dtype.name}_{'op' if dtype.integral else 'flop'}_per_s"
    if unit == "matrix" and dtype.name in ("float32", "float64") and key not in device.facts:
        key = f"peak.vector.{dtype.name}_flop_per_s"
    return float(device.fact(key))
