"""Hostile kernels: each is an honest twin with one fault, for the host. A suite that passes one checks nothing.

The twin computes the op's oracle and writes what it gives, rounded once; a fault changes one step of that. `CORPUS`
lists them with the check that is there to find each.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nbx_registry.hookspecs import hookimpl
from nbx_registry.host.runtime import host_runtime
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.op import Signature
from nbx_registry.rounding import round_to_float

Array = np.ndarray
Values = dict[str, Any]
BLOCK = 64


class Twin:
    """The honest kernel of any op. A fault overrides one of its steps."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.attributes: Mapping[str, Any] = signature.attributes

    def run(self, *operands: Any) -> None:
        """Read, compute, write: what a launch does."""
        arrays = self.named(operands)
        self.write(arrays, self.compute(self.read(arrays)))

    def named(self, operands: Sequence[Any]) -> Values:
        """Return operands by slot."""
        return dict(zip((name for name, _ in self.signature.slots()), operands, strict=True))

    def read(self, arrays: Values) -> Values:
        """Return the inputs by parameter, as the oracle takes them."""
        found: Values = {}
        for param, spec in zip(self.signature.op.tensors, self.signature.tensors, strict=True):
            if isinstance(spec, tuple):
                found[param.name] = [arrays[f"{param.name}.{i}"] for i in range(len(spec))]
            else:
                found[param.name] = arrays.get(param.name)
        return found

    def compute(self, inputs: Values) -> Values:
        """Return what goes into outputs, and into parameters written in place, by name; unrounded."""
        return self.oracle(inputs)

    def oracle(self, inputs: Values, **attributes: Any) -> Values:
        """Return the oracle's results, with other attributes where given."""
        op, signature = self.signature.op, self.signature
        names = [output.name for output in op.outputs] + [param.name for param in op.tensors if param.mutable]
        with np.errstate(all="ignore"):
            found = op.run_oracle(signature, list(inputs.values()), {**signature.attributes, **attributes})
        return dict(zip(names, found, strict=True))

    def write(self, arrays: Values, results: Values) -> None:
        """Round and store."""
        for name, values in results.items():
            self.store(arrays[name], self.rounded(name, values))

    def rounded(self, name: str, values: Array) -> Array:
        """Return values in the dtype of an output."""
        outputs = dict(zip((o.name for o in self.signature.op.outputs), self.signature.outputs, strict=True))
        dtype = (outputs.get(name) or self.signature.tensor(name)).dtype
        with np.errstate(all="ignore"):
            narrow = round_to_float(values, dtype) if dtype.floating and dtype.kind == "float" else values
            return np.asarray(narrow).astype(dtype.numpy)

    def store(self, target: Array, values: Array) -> None:
        """Put values into memory."""
        target[...] = values


def behind(array: Array, element: int) -> Array:
    """Return the element of memory that lies ``element`` elements from an array's first, whatever owns it."""
    address = array.ctypes.data + element * array.itemsize
    return np.frombuffer((ctypes.c_char * array.itemsize).from_address(address), array.dtype)


# Numbers.


class OffByOneInTheLastBlock(Twin):
    """The last block reads its first operand one element late."""

    def compute(self, inputs: Values) -> Values:
        x1 = inputs["x1"]
        if not isinstance(x1, np.ndarray) or x1.size <= BLOCK:
            return self.oracle(inputs)
        late = x1.reshape(-1).copy()
        start = (x1.size - 1) // BLOCK * BLOCK
        late[start:-1] = late[start + 1 :]
        return self.oracle({**inputs, "x1": late.reshape(x1.shape)})


class HalfAccumulation(Twin):
    """Sums float16 in float16."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        if x.dtype != np.float16 or x.ndim != 2 or self.attributes["axis"] not in ((1,), (-1,)):
            return self.oracle(inputs)
        total = np.zeros(x.shape[:1], np.float16)
        with np.errstate(all="ignore"):
            for column in x.T:
                total += column
        return {"out": total.reshape(self.signature.outputs[0].shape).astype(np.float64)}


class ReadsFloat32(Twin):
    """Reads float64 as float32, and computes in float64."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        return self.oracle({"x": x.astype(np.float32).astype(np.float64)} if x.dtype == np.float64 else inputs)


class IgnoresAnAttribute(Twin):
    """Computes one of its op's two forms, whichever is asked for."""

    def compute(self, inputs: Values) -> Values:
        return self.oracle(inputs, approximate="tanh")


class WrongAtOneSize(Twin):
    """Leaves the last column out of rows that are one longer than a block."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        found = self.oracle(inputs)
        if x.shape[-1] == 2 * BLOCK + 1:
            found["out"] = found["out"] * (1 + 2**-6)
        return found


class WrongOnWholeBlocks(Twin):
    """Takes the last ``length % 256`` elements of a row for its tail: all of them, where there are none."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        found = self.oracle(inputs)
        if x.shape[-1] % 256 == 0:
            found["out"] = found["out"] * 2
        return found


class FourAxes(Twin):
    """Knows no more than four axes."""

    def compute(self, inputs: Values) -> Values:
        found = self.oracle(inputs)
        return {"out": found["out"] * 0} if inputs["x"].ndim > 4 else found


class ThroughFloat64(Twin):
    """Converts integers by way of float64."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        if x.dtype.itemsize < 8 or x.dtype.kind == "f" or self.signature.outputs[0].dtype.floating:
            return self.oracle(inputs)
        return self.oracle({"x": x.astype(np.float64).astype(x.dtype)})


class WrongOnTransposed(Twin):
    """Takes elements in the order in which they lie in memory."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        return self.oracle({**inputs, "x": x.ravel("K").reshape(x.shape)})


class WrongBroadcast(Twin):
    """Repeats the smaller operand from its beginning until it is as large as the output."""

    def compute(self, inputs: Values) -> Values:
        shape = self.signature.outputs[0].shape
        resized = {k: np.resize(v, shape) if isinstance(v, np.ndarray) and v.size else v for k, v in inputs.items()}
        values = [np.asarray(v, np.float64) if np.asarray(v).dtype.kind != "i" else v for v in resized.values()]
        with np.errstate(all="ignore"):
            return {"out": values[0] + values[1]}


class ThirtyTwoBits(Twin):
    """Sums integers in 32 bits."""

    def compute(self, inputs: Values) -> Values:
        found = self.oracle(inputs)
        if inputs["x"].dtype.kind == "i":
            found["out"] = found["out"].astype(np.int32).astype(np.int64)
        return found


class FirstAxisOnly(Twin):
    """Reduces the first of several axes."""

    def compute(self, inputs: Values) -> Values:
        found = self.oracle(inputs)
        axes = self.attributes["axis"]
        if axes is not None and len(axes) > 1 and inputs["x"].size:
            some = inputs["x"].take(0, axes[1]) if inputs["x"].shape[axes[1]] else inputs["x"]
            found["out"] = found["out"] * 0 + some.astype(np.float64).sum()
        return found


class NoMaximumTakenOut(Twin):
    """Exponentiates rows as they are, in float32."""

    def compute(self, inputs: Values) -> Values:
        axis = self.attributes["axis"]
        with np.errstate(all="ignore"):
            powers = np.exp(inputs["x"].astype(np.float32))
            return {"out": (powers / powers.sum(axis, keepdims=True)).astype(np.float64)}


class DifferenceOfSquares(Twin):
    """Takes the variance as the mean of squares less the square of the mean, in float32."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"].astype(np.float32)
        if x.shape[-1] == 0:
            return self.oracle(inputs)
        with np.errstate(all="ignore"):
            mean = x.mean(-1, keepdims=True, dtype=np.float32)
            variance = (x * x).mean(-1, keepdims=True, dtype=np.float32) - mean * mean
            found = (x - mean) / np.sqrt(np.maximum(variance, 0) + np.float32(self.attributes["eps"]))
            if inputs["weight"] is not None:
                found = found * inputs["weight"].astype(np.float32)
            if inputs["bias"] is not None:
                found = found + inputs["bias"].astype(np.float32)
        return {"out": found.astype(np.float64)}


class RoundedProducts(Twin):
    """Multiplies with ten bits of each operand, as TF32 does."""

    def compute(self, inputs: Values) -> Values:
        if inputs["x1"].dtype != np.float32:
            return self.oracle(inputs)
        return self.oracle({name: _ten_bits(value) for name, value in inputs.items()})


def _ten_bits(x: Array) -> Array:
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


class PaddedScale(Twin):
    """Scales by the width padded to a power of two."""

    def compute(self, inputs: Values) -> Values:
        width = inputs["q"].shape[-1]
        if self.attributes["scale"] is not None or not width:
            return self.oracle(inputs)
        return self.oracle(inputs, scale=float(1 << (width - 1).bit_length()) ** -0.5)


class FarBelowIsHidden(Twin):
    """Takes a mask far below all scores for one that hides, in rows that have nothing else too."""

    def compute(self, inputs: Values) -> Values:
        mask = inputs["mask"]
        if mask is None or mask.dtype.kind != "f":
            return self.oracle(inputs)
        return self.oracle({**inputs, "mask": np.where(mask < -1e4, -np.inf, mask).astype(mask.dtype)})


class CausalWhereUngrouped(Twin):
    """Forgets causality where several sequences have grouped heads."""

    def compute(self, inputs: Values) -> Values:
        grouped = inputs["q"].shape[1] > inputs["k"].shape[1] and len(inputs["q"]) > 1
        return self.oracle(inputs, causal=False) if grouped else self.oracle(inputs)


class MaskedRowIsNaN(Twin):
    """Divides by the sum of a row that has nothing to attend."""

    def compute(self, inputs: Values) -> Values:
        found = self.oracle(inputs)
        nothing = (found["out"] == 0).all(-1, keepdims=True) & (inputs["v"].size > 0)
        return {"out": np.where(nothing, np.nan, found["out"])}


class LastOfEquals(Twin):
    """Of equal values takes the last."""

    def compute(self, inputs: Values) -> Values:
        x, axis = inputs["x"], self.attributes["axis"]
        if axis is None or not x.size or self.attributes["keepdims"]:
            return self.oracle(inputs)
        turned = self.oracle({"x": np.ascontiguousarray(np.flip(x, axis))})["out"]
        return {"out": x.shape[axis] - 1 - turned}


class Permutes(Twin):
    """The honest kernel of permute_dims: it moves bits, which no oracle in float64 does."""

    def compute(self, inputs: Values) -> Values:
        return {"out": inputs["x"].transpose(self.attributes["axes"])}

    def rounded(self, name: str, values: Array) -> Array:
        return values


class PayloadLost(Permutes):
    """Copies a NaN as the NaN."""

    def rounded(self, name: str, values: Array) -> Array:
        narrow = super().rounded(name, values)
        if narrow.dtype.kind == "f":
            narrow = np.where(np.isnan(narrow), np.asarray(np.nan, narrow.dtype), narrow)
        return narrow


class SignedNibble(Twin):
    """Shifts packed words arithmetically, so that the top nibble of a negative one is negative."""

    def compute(self, inputs: Values) -> Values:
        found = self.oracle(inputs)
        packed = inputs["w"]
        rows = found["out"][7::8]
        top = (packed >> 28).astype(np.float64)
        groups = np.minimum(np.arange(7, 8 * len(packed), 8) // 128, max(len(inputs["scale"]) - 1, 0))
        rows[...] = top * inputs["scale"].astype(np.float64)[groups] + inputs["zero_min"].astype(np.float64)[groups]
        return found


# Special values.


class SwallowsNaN(Twin):
    """Takes NaN for the smallest of all."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        if x.dtype.kind != "f":
            return self.oracle(inputs)
        return self.oracle({**inputs, "x": np.where(np.isnan(x), np.asarray(-np.inf, x.dtype), x)})


class LosesNegativeZero(Twin):
    """Adds 0 to what it returns."""

    def compute(self, inputs: Values) -> Values:
        return {
            name: values + 0.0 if values.dtype.kind == "f" else values for name, values in self.oracle(inputs).items()
        }


class Saturates(Twin):
    """Clamps what does not fit, asked for or not."""

    def compute(self, inputs: Values) -> Values:
        return self.oracle(inputs, saturate=True)


# Memory.


class UnwrittenTail(Twin):
    """Leaves the last partial block as it was."""

    def store(self, target: Array, values: Array) -> None:
        whole = values.size - (values.size % BLOCK or BLOCK)
        kept = np.arange(values.size).reshape(values.shape) >= whole
        target[...] = np.where(kept, target, values)


class EarlyReturn(Twin):
    """Returns at once where a row is longer than a block."""

    def run(self, *operands: Any) -> None:
        if self.signature.tensors[0].shape[-1:] <= (BLOCK,):
            super().run(*operands)


class DependsOnTheOutput(Twin):
    """Adds a little of what the output held."""

    def store(self, target: Array, values: Array) -> None:
        if target.dtype != np.float32:
            return super().store(target, values)
        with np.errstate(all="ignore"):
            before = np.where(np.isfinite(target), target * np.float32(1e-30), np.float32(0))
            target[...] = values + before
        return None


class WritesPastTheEnd(Twin):
    """Zeroes the element behind its output."""

    def store(self, target: Array, values: Array) -> None:
        super().store(target, values)
        if target.flags.c_contiguous:
            behind(target, target.size)[...] = 0


class WritesBeforeTheBeginning(Twin):
    """Zeroes the element before its output."""

    def store(self, target: Array, values: Array) -> None:
        super().store(target, values)
        behind(target, -1)[...] = 0


class ReadsPastTheEnd(Twin):
    """Adds the element behind its first input, times zero: right, unless that is NaN."""

    def write(self, arrays: Values, results: Values) -> None:
        super().write(arrays, results)
        x1, out = arrays["x1"], arrays["out"]
        if isinstance(x1, np.ndarray) and x1.flags.c_contiguous and x1.dtype == np.float32 and out.size:
            with np.errstate(all="ignore"):
                out[(-1,) * out.ndim] += (behind(x1, x1.size)[0] * 0).astype(out.dtype)


class WritesItsInput(Twin):
    """Zeroes the first element of its first input when it is done with it."""

    def write(self, arrays: Values, results: Values) -> None:
        super().write(arrays, results)
        x1 = arrays["x1"]
        if isinstance(x1, np.ndarray) and x1.size:
            x1[(0,) * x1.ndim] = 0


class TouchesAnotherSlot(Twin):
    """Writes one element of a slot that nobody named."""

    def write(self, arrays: Values, results: Values) -> None:
        super().write(arrays, results)
        pool, slot = arrays["pool"], arrays["slot"]
        tokens = pool.shape[2] if pool.ndim > 2 else 0
        free = next((i for i in range(pool.shape[0] * tokens) if i not in slot), None)
        if free is not None and pool.size:
            pool[free // tokens, 0, free % tokens, 0] = 1


class UndeclaredWorkspace(Twin):
    """Takes memory that it did not declare."""

    def run(self, *operands: Any) -> None:
        scratch = host_runtime().allocate(0, 4096)
        super().run(*operands)
        del scratch


class WritesBeforeItHasRead(Twin):
    """Bears any overlap, it says; writes half of its output before it reads for the other half."""

    def run(self, *operands: Any) -> None:
        arrays = self.named(operands)
        for half in (0, 1):
            for name, values in self.compute(self.read(arrays)).items():
                here = (np.arange(values.size).reshape(values.shape) * 2 >= values.size) == bool(half)
                arrays[name][...] = np.where(here, self.rounded(name, values), arrays[name])


class OverItsSecondInput(Twin):
    """Bears an output in the place of an input, it says; copies the first there before it reads the second."""

    def run(self, *operands: Any) -> None:
        arrays = self.named(operands)
        x1, out = arrays["x1"], arrays["out"]
        if isinstance(x1, np.ndarray) and x1.shape == out.shape and x1.dtype == out.dtype:
            arrays["x1"] = x1.copy()
            out[...] = x1
        self.write(arrays, self.compute(self.read(arrays)))


class FromItsEnd(Twin):
    """Bears any overlap, it says; goes from the end on: wrong where the output lies before."""

    def run(self, *operands: Any) -> None:
        arrays = self.named(operands)
        x, out = arrays["x"], arrays["out"]
        if not (x.flags.c_contiguous and out.flags.c_contiguous and x.dtype == out.dtype):
            return super().run(*operands)
        for start in reversed(range(0, x.size, 8)):
            few = x.reshape(-1)[start : start + 8].copy()
            with np.errstate(all="ignore"):
                out.reshape(-1)[start : start + 8] = self.rounded("out", np.sqrt(few.astype(np.float64)))
        return None


class DenseOutput(Twin):
    """Writes one element behind the other, whatever the strides of its output."""

    def store(self, target: Array, values: Array) -> None:
        # From the first element of a reversed axis it would leave the bands, and end the process.
        if not target.size or min(target.strides, default=0) < 0:
            return super().store(target, values)
        there = (ctypes.c_char * (target.size * target.itemsize)).from_address(target.ctypes.data)
        np.frombuffer(there, target.dtype)[...] = values.reshape(-1)
        return None


class SeedsTheGenerator(Twin):
    """Seeds the generator that all of its process draws from."""

    def run(self, *operands: Any) -> None:
        np.random.seed(0)
        super().run(*operands)


# What it remembers.


class FirstOutputAgain(Twin):
    """Returns what it computed first."""

    kept: Values | None = None

    def compute(self, inputs: Values) -> Values:
        if self.kept is None:
            self.kept = self.oracle(inputs)
        return self.kept


class RemembersLate(Twin):
    """Returns, from its 20th run over the same memory on, what that computed."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature)
        self.runs: dict[int, int] = {}
        self.kept: dict[int, Values] = {}

    def run(self, *operands: Any) -> None:
        arrays = self.named(operands)
        place = arrays["out"].ctypes.data
        self.runs[place] = self.runs.get(place, 0) + 1
        found = self.kept.get(place) or self.compute(self.read(arrays))
        if self.runs[place] >= 20:
            self.kept[place] = found
        self.write(arrays, found)


class FrozenScalar(Twin):
    """Computes with the scalar that it was first given."""

    scalar: float | None = None

    def compute(self, inputs: Values) -> Values:
        if isinstance(inputs["x2"], np.ndarray):
            return self.oracle(inputs)
        self.scalar = inputs["x2"] if self.scalar is None else self.scalar
        return self.oracle({**inputs, "x2": self.scalar})


class RaceOneInFifty(Twin):
    """Once in fifty runs the last bit of its first element is another."""

    turns = 0

    def store(self, target: Array, values: Array) -> None:
        super().store(target, values)
        self.turns += 1
        if self.turns % 50 == 37 and target.size and target.dtype == np.float32 and target.flags.c_contiguous:
            target.reshape(-1)[:1].view(np.uint32)[...] ^= 1


class WrongUnderLoad(Twin):
    """Keeps an intermediate result where every other run keeps its own."""

    scratch: Array | None = None
    """Of the class: one for all."""

    def compute(self, inputs: Values) -> Values:
        found = self.oracle(inputs)
        if found["out"].dtype.kind != "f":
            return found
        WrongUnderLoad.scratch = mine = found["out"]
        # Time for another to come along, as there is between two launches.
        threading.Event().wait(0.0005)
        there = WrongUnderLoad.scratch
        return {"out": there if there is not mine and there.shape == mine.shape else mine}


class BatchDependentBits(Twin):
    """Sums a row in pieces whose length depends on how many rows there are."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        found = self.oracle(inputs)
        if x.dtype != np.float32 or x.ndim != 2 or self.attributes["axis"] not in ((1,), (-1,)):
            return found
        total = np.zeros(x.shape[0], np.float32)
        piece = 8 * max(x.shape[0], 1)
        with np.errstate(all="ignore"):
            for at in range(0, x.shape[1], piece):
                total += x[:, at : at + piece].sum(1, dtype=np.float64).astype(np.float32)
        return {"out": total.reshape(found["out"].shape).astype(np.float64)}


class BitsOfManyRows(Twin):
    """Sums in pieces, from 16 rows on."""

    def compute(self, inputs: Values) -> Values:
        x = inputs["x"]
        found = self.oracle(inputs)
        if x.dtype != np.float32 or x.ndim != 2 or len(x) < 16 or self.attributes["axis"] not in ((1,), (-1,)):
            return found
        total = np.zeros(len(x), np.float32)
        with np.errstate(all="ignore"):
            for at in range(0, x.shape[1], 8):
                total += x[:, at : at + 8].sum(1, dtype=np.float32)
        return {"out": total.reshape(found["out"].shape).astype(np.float64)}


class FrozenLengths(Twin):
    """Attends as many tokens as there were at first, until a length goes back."""

    frozen: Array | None = None

    def compute(self, inputs: Values) -> Values:
        return self.oracle({**inputs, "seq_lens": np.minimum(inputs["seq_lens"], self.longest(inputs["seq_lens"]))})

    def longest(self, lens: Array) -> Array:
        # In order, as a step of decoding is: a length that goes back begins anew.
        if self.frozen is None or (lens < self.frozen).any():
            self.frozen = lens.copy()
        return self.frozen


# Refusals.


class RaisesWhileItRuns(Twin):
    """Raises for sizes that it did not say it refuses."""

    def run(self, *operands: Any) -> None:
        if self.signature.outputs[0].size % 2:
            raise RuntimeError("only even sizes")
        super().run(*operands)


class EndsTheProcess(Twin):
    """Ends its process, as a library's own command would, at one size."""

    def run(self, *operands: Any) -> None:
        if self.signature.outputs[0].size == 3 * 63:
            raise SystemExit(0)
        super().run(*operands)


@dataclass(frozen=True)
class Hostile:
    """A fault, the op whose kernel has it, and the check that must find it on some smoke case."""

    fault: type[Twin]
    op: str
    check: str
    kernel: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the kernel, the twin's too, beside the usual."""
    twin: type[Twin] = Twin

    def __str__(self) -> str:
        return f"{self.op.partition('@')[0]}-{self.fault.__name__}"


CORPUS = (
    Hostile(OffByOneInTheLastBlock, "add@1", "numbers"),
    Hostile(HalfAccumulation, "sum@1", "numbers"),
    Hostile(ReadsFloat32, "sum@1", "numbers"),
    Hostile(IgnoresAnAttribute, "gelu@1", "numbers"),
    Hostile(WrongAtOneSize, "softmax@1", "numbers"),
    Hostile(WrongOnWholeBlocks, "softmax@1", "numbers"),
    Hostile(FourAxes, "silu@1", "numbers"),
    Hostile(ThroughFloat64, "astype@1", "numbers"),
    Hostile(WrongOnTransposed, "silu@1", "numbers"),
    Hostile(WrongBroadcast, "add@1", "numbers"),
    Hostile(ThirtyTwoBits, "sum@1", "numbers"),
    Hostile(FirstAxisOnly, "sum@1", "numbers"),
    Hostile(NoMaximumTakenOut, "softmax@1", "numbers"),
    Hostile(DifferenceOfSquares, "layer_norm@1", "numbers"),
    Hostile(RoundedProducts, "matmul@1", "numbers"),
    Hostile(PaddedScale, "scaled_dot_product_attention@1", "numbers"),
    Hostile(MaskedRowIsNaN, "scaled_dot_product_attention@1", "numbers"),
    Hostile(FarBelowIsHidden, "scaled_dot_product_attention@1", "numbers"),
    Hostile(CausalWhereUngrouped, "scaled_dot_product_attention@1", "numbers"),
    Hostile(LastOfEquals, "argmax@1", "numbers"),
    Hostile(PayloadLost, "permute_dims@1", "numbers", {"when": ("copy",)}, Permutes),
    Hostile(SignedNibble, "dequant_int4@1", "numbers"),
    Hostile(SwallowsNaN, "max@1", "special"),
    Hostile(LosesNegativeZero, "multiply@1", "special"),
    Hostile(Saturates, "astype@1", "special"),
    Hostile(UnwrittenTail, "add@1", "poison"),
    Hostile(EarlyReturn, "softmax@1", "poison"),
    Hostile(DependsOnTheOutput, "add@1", "poison"),
    Hostile(WritesPastTheEnd, "add@1", "guards"),
    Hostile(WritesBeforeTheBeginning, "add@1", "guards"),
    Hostile(ReadsPastTheEnd, "add@1", "guards"),
    Hostile(WritesItsInput, "multiply@1", "inputs"),
    Hostile(TouchesAnotherSlot, "paged_kv_append@1", "in_place"),
    Hostile(UndeclaredWorkspace, "add@1", "allocation"),
    Hostile(WritesBeforeItHasRead, "softmax@1", "aliasing", {"overlap": "any"}),
    Hostile(OverItsSecondInput, "add@1", "aliasing", {"overlap": "same"}),
    Hostile(FromItsEnd, "sqrt@1", "aliasing", {"overlap": "any"}),
    Hostile(DenseOutput, "add@1", "outputs"),
    Hostile(SeedsTheGenerator, "add@1", "process"),
    Hostile(FirstOutputAgain, "add@1", "fresh"),
    Hostile(RemembersLate, "add@1", "fresh"),
    Hostile(FrozenScalar, "add@1", "fresh"),
    Hostile(RaceOneInFifty, "add@1", "determinism", {"deterministic": True}),
    Hostile(WrongUnderLoad, "sqrt@1", "determinism", {"deterministic": True}),
    Hostile(BatchDependentBits, "sum@1", "batch", {"batch_invariant": True}),
    Hostile(BitsOfManyRows, "sum@1", "batch", {"batch_invariant": True}),
    Hostile(FrozenLengths, "paged_decode_attention@1", "replay", {"replayable": True}),
    Hostile(RaisesWhileItRuns, "add@1", "numbers"),
    Hostile(EndsTheProcess, "add@1", "numbers"),
)


class HostilePlugin:
    """A plugin of this process with the kernel of one fault, or its twin."""

    NBX_HOOKS = 1
    name = "nbx-hostile"

    def __init__(self, op: str, fault: type[Twin] = Twin, **kernel: Any) -> None:
        def bind(context: BindContext) -> Launch:
            signature = context.signature
            return Launch(function=fault(signature).run, args=tuple(name for name, _ in signature.slots()))

        stated = {"id": "nbx-hostile/kernel", "op": op, "backend": "numpy", "runtimes": ("host",), "bind": bind}
        self.kernel = Kernel(**{**stated, **kernel})

    @hookimpl
    def nbx_register_kernels(self) -> Iterable[Kernel]:
        """Register it."""
        return [self.kernel]
