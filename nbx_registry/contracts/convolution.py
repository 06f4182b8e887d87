"""Convolution of images: depthwise_conv2d, conv2d."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import numpy as np

from nbx_registry.cost import Cost, default_cost, distinct_bytes
from nbx_registry.op import op
from nbx_registry.signature import Signature

Array = np.ndarray[Any, np.dtype[Any]]
Pair = tuple[int, int]

OUTPUT = {
    "OH": "(H + 2 * padding[0] - dilation[0] * (KH - 1) - 1) // stride[0] + 1",
    "OW": "(W + 2 * padding[1] - dilation[1] * (KW - 1) - 1) // stride[1] + 1",
}
"""The extents of the output."""

WINDOW = (
    "min(stride) >= 1",
    "min(padding) >= 0",
    "min(dilation) >= 1",
    "KH >= 1 and KW >= 1",
    "dilation[0] * (KH - 1) + 1 <= H + 2 * padding[0]",
    "dilation[1] * (KW - 1) + 1 <= W + 2 * padding[1]",
)
"""What a window must be like: it moves on, and fits the padded input."""


# What a window meets along one axis -----------------------------------------------------------------------------------


class Sweep(NamedTuple):
    """A window along one axis: output o meets tap i at place ``o stride + i dilation``, counted from the padding on.

    The counts are closed forms: a window may have any number of taps.
    """

    extent: int
    """Places that hold input, the first of them ``padding``; all others hold zeros."""
    outputs: int
    taps: int
    stride: int
    padding: int
    dilation: int

    def meetings(self) -> int:
        """Return how many pairs of output and tap meet where there is input."""
        return self._meetings_before(self.padding + self.extent) - self._meetings_before(self.padding)

    def _meetings_before(self, place: int) -> int:
        if place <= 0 or self.outputs == 0:
            return 0
        # The first taps meet every output before there, the next ones some, the others none.
        every = (place - 1 - (self.outputs - 1) * self.stride) // self.dilation + 1
        every = min(max(every, 0), self.taps)
        some = min((place - 1) // self.dilation + 1, self.taps) - every
        left = place - 1 - (every + some - 1) * self.dilation
        return self.outputs * every + some + floor_sum(some, self.stride, self.dilation, left)

    def taps_used(self) -> int:
        """Return how many taps meet input anywhere."""
        if self.stride >= self.extent:
            # Places of one tap are a stride apart: it meets input once or never.
            return self.meetings()
        # Before these it never reaches the input, and after those it starts beyond.
        first = -(((self.outputs - 1) * self.stride - self.padding) // self.dilation)
        last = (self.padding + self.extent - 1) // self.dilation
        return max(0, min(last, self.taps - 1) - max(first, 0) + 1)

    def places_read(self) -> int:
        """Return how many places that hold input are met at all."""
        # Taps `step` apart meet the same places, `shift` outputs apart; others never do.
        common = gcd(self.stride, self.dilation)
        step, shift = self.stride // common, self.dilation // common
        found = 0
        for tap in range(min(self.taps, step)):
            count = -(-(self.taps - tap) // step)
            end, start = (
                self._places(-(-(place - tap * self.dilation) // self.stride), count, shift)
                for place in (self.padding + self.extent, self.padding)
            )
            found += end - start
        return found

    def _places(self, below: int, count: int, shift: int) -> int:
        """Return how many numbers ``t shift + o`` are below: t of ``count`` taps, o of the outputs."""
        if below <= 0:
            return 0
        if self.outputs >= shift:
            return min(below, (count - 1) * shift + self.outputs)
        whole, rest = divmod(below, shift)
        return count * self.outputs if whole >= count else whole * self.outputs + min(rest, self.outputs)


def floor_sum(count: int, divisor: int, factor: int, start: int) -> int:
    """Return the sum of ``(factor i + start) // divisor`` over i from 0 to ``count - 1``; nothing is negative.

    By Euclid's algorithm: Graham, Knuth and Patashnik, "Concrete Mathematics", 2nd edition, section 3.5.
    """
    total = 0
    while count > 0:
        total += count * (count - 1) // 2 * (factor // divisor) + count * (start // divisor)
        factor, start = factor % divisor, start % divisor
        count, start = divmod(factor * count + start, divisor)
        divisor, factor = factor, divisor
    return total


def sweeps(signature: Signature) -> tuple[Sweep, Sweep]:
    """Return how the window of a convolution moves down and along."""
    axes, given = signature.axes, signature.attributes
    down, along = (
        Sweep(*(axes[name] for name in names), *(given[name][i] for name in ("stride", "padding", "dilation")))
        for i, names in enumerate((("H", "OH", "KH"), ("W", "OW", "KW")))
    )
    return down, along


def cost_convolution(signature: Signature) -> Cost:
    """One product and one sum a tap; at the least for the taps that lie inside the input, and what they read."""
    x, w, bias = signature.operands
    (out,) = signature.outputs
    down, along = sweeps(signature)
    each = 2 * w.shape[1]
    met = down.meetings() * along.meetings()
    read = (*x.shape[:2], down.places_read(), along.places_read())
    used = (*w.shape[:2], down.taps_used(), along.taps_used())
    least_read = distinct_bytes(x, read) + distinct_bytes(w, used) + (0 if bias is None else bias.distinct_bytes)
    return default_cost(
        signature,
        flops=each * out.size * down.taps * along.taps,
        least_flops=each * out.shape[0] * out.shape[1] * met,
        least_bytes=least_read + out.nbytes if out.size else 0,
    )


# The ops --------------------------------------------------------------------------------------------------------------


def correlate(x: Array, w: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Array:
    """Return the correlation of x[N, C, H, W] with w[O, C / groups, KH, KW], tap by tap over a padded copy."""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    n, c, h, width = x.shape
    o, _, kh, kw = w.shape
    oh = (h - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    x = x.reshape(n, groups, c // groups, h, width)
    w = w.reshape(groups, o // groups, c // groups, kh, kw)
    out = np.zeros((n, groups, o // groups, oh, ow))
    for i, j in np.ndindex(kh, kw):
        rows = slice(i * dilation[0], i * dilation[0] + (oh - 1) * stride[0] + 1, stride[0])
        columns = slice(j * dilation[1], j * dilation[1] + (ow - 1) * stride[1] + 1, stride[1])
        out += np.einsum("ngchw,goc->ngohw", x[..., rows, columns], w[..., i, j])
    return out.reshape(n, o, oh, ow)


def convolve(x: Array, w: Array, bias: Array | None, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Array:
    """Return the correlation and the bias."""
    out = correlate(x, w, stride, padding, dilation, groups)
    return out if bias is None else out + bias[:, None, None]


def magnitude_depthwise_conv2d(
    signature: Signature, x: Array, w: Array, bias: Array | None, *, stride: Pair, padding: Pair, dilation: Pair
) -> Array:
    """Return the convolution of the magnitudes."""
    size = None if bias is None else np.abs(bias)
    return convolve(np.abs(x), np.abs(w), size, stride, padding, dilation, max(x.shape[1], 1))


@op(
    "depthwise_conv2d@1(x: F[N, C, H, W], w: F[C, 1, KH, KW], bias: F[C]? = None, *,"
    " stride: int[2] = 1, padding: int[2] = 0, dilation: int[2] = 1) -> F[N, C, OH, OW]",
    where=OUTPUT,
    require=WINDOW,
    cost=cost_convolution,
    accumulation="KH * KW + 1",
    magnitude=magnitude_depthwise_conv2d,
)
def depthwise_conv2d(x: Array, w: Array, bias: Array | None, *, stride: Pair, padding: Pair, dilation: Pair) -> Array:
    """Convolve each channel with its own filter.

    ``out[n, c, oh, ow] = bias[c] + sum over i, j of x[n, c, oh stride + i dilation - padding, ...] w[c, 0, i, j]``:
    the filter is not flipped, and beyond the input there are zeros.

    Parameters
    ----------
    x : floating [N, C, H, W]
        An image in one dimension has H = 1.
    w : the dtype of ``x``, [C, 1, KH, KW]
        Finite where the window reaches over the input's edge: 0 times an infinity is not 0 in every kernel.
    bias : the dtype of ``x``, [C], optional
    stride, padding, dilation : one integer, or two: down and along
        Steps between windows, at least 1; zeros on either side, at least 0; steps between taps, at least 1.

    Returns
    -------
    floating [N, C, OH, OW]
        OH = (H + 2 padding - dilation (KH - 1) - 1) div stride + 1, and OW likewise. Products, sums and bias in float32
        (float64 in float64), whatever the padding, rounded once.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, a filter without taps or larger than the padded input, a stride or dilation
        below 1, negative padding.

    Notes
    -----
    ``torch.nn.functional.conv2d`` with ``groups = C`` and one filter a channel. ``flops`` counts every tap, the least
    those inside the input.
    """
    return convolve(x, w, bias, stride, padding, dilation, max(x.shape[1], 1))


def magnitude_conv2d(
    signature: Signature,
    x: Array,
    w: Array,
    bias: Array | None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """Return the convolution of the magnitudes."""
    size = None if bias is None else np.abs(bias)
    return convolve(np.abs(x), np.abs(w), size, stride, padding, dilation, groups)


@op(
    "conv2d@1(x: F[N, C, H, W], w: F[O, CG, KH, KW], bias: F[O]? = None, *,"
    " stride: int[2] = 1, padding: int[2] = 0, dilation: int[2] = 1, groups: int = 1) -> F[N, O, OH, OW]",
    where=OUTPUT,
    require=("groups >= 1", "C == CG * groups", "O % groups == 0", *WINDOW),
    cost=cost_convolution,
    unit="matrix",
    accumulation="CG * KH * KW + 1",
    magnitude=magnitude_conv2d,
)
def conv2d(
    x: Array, w: Array, bias: Array | None, *, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Array:
    """Convolve: every output channel is a sum over the input channels of its group, each with a filter.

    ``out[n, o, oh, ow] = bias[o] + sum over c, i, j of x[n, g C / groups + c, oh stride + i dilation - padding, ...]
    w[o, c, i, j]`` with g = o div (O / groups): the filters are not flipped, and beyond the input there are zeros.

    Parameters
    ----------
    x : floating [N, C, H, W]
        An image in one dimension has H = 1.
    w : the dtype of ``x``, [O, C / groups, KH, KW]
        Finite where the window reaches over the input's edge: 0 times an infinity is not 0 in every kernel.
    bias : the dtype of ``x``, [O], optional
    stride, padding, dilation : one integer, or two: down and along
        Steps between windows, at least 1; zeros on either side, at least 0; steps between taps, at least 1.
    groups : int
        At least 1; divides O, and C is that many times w's.

    Returns
    -------
    floating [N, O, OH, OW]
        OH = (H + 2 padding - dilation (KH - 1) - 1) div stride + 1, and OW likewise. Products, sums and bias in float32
        (float64 in float64), rounded once; float32 products are IEEE, never TF32. Without input channels it is the
        bias, or 0.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, channels that the groups do not divide, a filter without taps or larger than
        the padded input, a stride or dilation below 1, negative padding.

    Notes
    -----
    ``torch.nn.functional.conv2d``. ``flops`` counts every tap, the least those inside the input.
    """
    return convolve(x, w, bias, stride, padding, dilation, groups)
