"""The ops as functions, for editors and type checkers. Written from the contracts: nbx ops --stub."""

# Namespaces of plugins are attributes too.
# pyright: reportIncompleteStub=none

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from nbx_registry.registry import Registry
from nbx_registry.typing import ArrayLike, DTypeLike, Require

class Namespace:
    """Ops of a registry as attributes; a plugin's namespace is an attribute of its own."""

    def __init__(self, registry: Callable[[], Registry], prefix: str = "") -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __dir__(self) -> Iterable[str]: ...

namespace: Namespace

def abs(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the magnitude of each element.

    Parameters
    ----------
    x : numeric, any shape

    Returns
    -------
    numeric, the shape of ``x``
        In the dtype of ``x``, exact: +0.0 for -0.0; unsigned integers as they are; the most negative integer stays
        what it is. Of complex64 float32, within 3 ulp and without overflow on the way: sqrt(re^2 + im^2), infinite
        where a part is, even beside NaN.

    Notes
    -----
    Python array API standard 2024.12, ``abs``.
    """

def add(
    x1: ArrayLike | complex,
    x2: ArrayLike | complex,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Add two tensors element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : numeric, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    numeric, the broadcast shape
        In the dtype the two promote to. Integers wrap around; floating sums are rounded once.

    Raises
    ------
    SignatureError
        For shapes that do not broadcast, and dtypes that do not promote (integer with floating, float16 with bfloat16,
        signed with uint64): convert one with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``add``.
    """

def arange(
    *,
    start: int | float,
    stop: int | float | None = None,
    step: int | float = 1,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Make the numbers ``start, start + step, start + 2 step, ...`` up to, not including, ``stop``.

    Parameters
    ----------
    start : integer or float
        The end, from 0 on, where ``stop`` is left out.
    stop : integer or float, optional
    step : integer or float
        Below 0 to count down.
    dtype : real dtype, optional
        Left out, int64 where the three are integers, else float32.

    Returns
    -------
    ``dtype`` [L]
        L is ``ceil((stop - start) / step)``, exact for integers, computed in float64 where one of the three is a
        float, and 0 where ``stop`` lies the other way. Element i is ``start + i step``: exact in an integer dtype; in
        a floating one computed in float32 (float64 in float64) from the three in it, so within a few roundings of the
        larger term, then rounded once. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        For a step of 0, a bound or step that is not finite, an element outside the range of an integer dtype; for
        floats with an integer dtype; for bool and complex dtypes.

    Notes
    -----
    Python array API standard 2024.12, ``arange``; float32 is this project's choice of the default floating-point dtype.
    The numbers are multiplied out, never added up: no error grows along the sequence.
    """

def argmax(
    x: ArrayLike,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Find where the largest element is, along one axis or in all.

    Parameters
    ----------
    x : any dtype but complex, any shape
    axis : int or None
        Negative ones count from the end. None looks at everything.
    keepdims : bool
        Keep the axes reduced over, with extent 1.

    Returns
    -------
    int64, the shape of ``x`` without the axis
        Indices along the axis; for None one index into the elements in row-major order. Of equal elements the first is
        named (zeros of both signs are equal). NaN counts as the largest: where there is one, the first is named.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks; for the largest of no elements, which is not defined (a result without elements is
        none).

    Notes
    -----
    Python array API standard 2024.12, ``argmax``; the place of NaN is NumPy's.
    """

def astype(
    x: ArrayLike,
    *,
    dtype: DTypeLike,
    saturate: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Convert each element to another dtype, always into a new tensor.

    Parameters
    ----------
    x : any dtype and shape
    dtype : dtype
    saturate : bool
        Clamp numbers beyond the target's range, infinities too, to its ends.

    Returns
    -------
    ``dtype``, the shape of ``x``
        To a floating dtype: rounded once, to nearest even. Beyond the largest number an infinity (float8_e4m3fn and
        float8_e4m3fnuz: NaN; float4_e2m1fn, which has neither: the largest number, and any value for NaN). From an
        integer to an integer: modulo 2^bits. From a floating to an integer dtype: truncated towards zero; NaN gives
        0, and a number beyond the range without ``saturate`` anything: no kernel may be relied on there. To bool:
        False for zeros alone. From bool: 0 and 1.

    Raises
    ------
    SignatureError
        For a complex tensor and a dtype that is not.

    Notes
    -----
    Python array API standard 2024.12, ``astype``; IEEE 754-2019, section 4.3.1; saturation as the conversions of PTX
    (``.satfinite``) have it.
    """

def broadcast_to(
    x: ArrayLike,
    *,
    shape: int | Sequence[int],
    copy: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Repeat axes of extent 1, and add leading ones, until the shape is ``shape``.

    Parameters
    ----------
    x : any dtype, a shape that broadcasts to ``shape``
    shape : integers
    copy : bool
        Write the result out, row-major, rather than return a view that shares the memory of ``x``.

    Returns
    -------
    the dtype of ``x``, of shape ``shape``
        The same elements; an exact copy if one is asked for. In a view the axes that are repeated have stride 0: what
        is written to one of its elements is written to all that share its memory.

    Raises
    ------
    SignatureError
        For a shape that ``x`` does not broadcast to, with both.

    Notes
    -----
    Python array API standard 2024.12, ``broadcast_to``; ``copy`` is this project's.
    """

def clip(
    x: ArrayLike,
    min: ArrayLike | float | None = None,
    max: ArrayLike | float | None = None,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Keep each element between two bounds, broadcasting.

    Parameters
    ----------
    x : integer or floating
    min, max : the dtype of ``x``, shapes that broadcast with its own, optional
        Either may be a Python scalar, which takes the dtype of ``x``. Left out: no bound on that side.

    Returns
    -------
    the dtype of ``x``, the broadcast shape
        ``minimum(maximum(x, min), max)``, exact: where min > max it is max. NaN where any of them is NaN; of zeros of
        both signs either.

    Raises
    ------
    SignatureError
        For bounds of another dtype (convert them with `astype`), shapes that do not broadcast, a Python scalar for
        ``x``, and complex64, which has no order.

    Notes
    -----
    Python array API standard 2024.12, ``clip``; the order of the bounds is that of ``numpy.clip``.
    """

def concat(
    arrays: Sequence[ArrayLike],
    *,
    axis: int | None = 0,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Join tensors along an axis they have.

    Parameters
    ----------
    arrays : list of tensors, any dtypes that promote, at least one
        Of the same shape, but for the extent along ``axis``.
    axis : int or None
        None joins the elements of each, in row-major order, whatever their shapes.

    Returns
    -------
    the dtype that all promote to, the extents along ``axis`` added up
        An exact copy; what is converted to another dtype of the standard's table keeps its value.

    Raises
    ------
    SignatureError
        For no tensors, an axis they lack, shapes that differ elsewhere, and dtypes that do not promote (integer with
        floating, float16 with bfloat16, signed with uint64): convert with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``concat``.
    """

def conv2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
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

def decode_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    scale: float | None = None,
    q_dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Attend with one query a sequence to a cache of keys and values.

    ``softmax(scale q k^T + bias) v``, head by head.

    Parameters
    ----------
    q : floating [B, Hq, D]
    k, v : floating [B, Hkv, T, D] and [B, Hkv, T, Dv]
        With strides of their own: a prefix of a larger buffer is read in place, and nothing past T. Hkv is at
        least 1, and Hq a multiple of it; query head h reads head h div (Hq / Hkv).
    bias : floating [T], optional
        Added to the scaled products; -inf hides a key.
    scale : float or None
        D^-0.5 unless given.
    q_dtype : dtype or None
        Round ``q`` to it on load: the cache's dtype or nothing. To float16 finite values saturate.

    Returns
    -------
    the dtype of ``q``, [B, Hq, Dv]
        A query that sees no key (T = 0, all scores -inf) gives 0. Scores, softmax, sums and partial results are in
        float32 (float64 where ``q`` is float64); with a 16-bit cache the weights may be rounded to its dtype before
        they meet v. Hidden values must be finite.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, Hkv = 0 or Hq no multiple of it, a ``q_dtype`` that is not the cache's.

    Notes
    -----
    Kernels cut the keys into `paged_decode_splits` and join the parts by `decode_attention_reduce`: Dao et al.,
    "Flash-Decoding for long-context inference", 2023. ``flops`` counts the two products.
    """

def decode_attention_reduce(
    o: ArrayLike,
    m: ArrayLike,
    l: ArrayLike,
    *,
    dtype: DTypeLike = "float32",
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Join the parts that split attention left: R rows of S splits.

    From m = -inf, acc = l = 0, for s ascending: M = max(m, m_s), skipped if that is -inf; acc = e^(m - M) acc +
    e^(m_s - M) o_s, l likewise, m = M. The result is acc / l, or 0 where l = 0.

    Parameters
    ----------
    o : float32 [R, S, Dv]
        The sums of p v of each split, not normalised.
    m : float32 [R, S]
        The largest score of each split; -inf where it is empty. Never NaN or +inf.
    l : float32 [R, S]
        The sum of p of each split; 0 where it is empty.
    dtype : floating dtype
        Of the result.

    Returns
    -------
    ``dtype`` [R, Dv]
        Accumulated in float32 (float64 where ``dtype`` is float64), rounded once.

    Raises
    ------
    SignatureError
        For extents that differ, and for a ``dtype`` that is not floating.

    Notes
    -----
    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018 (arXiv:1805.02867).
    """

def depthwise_conv2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
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

def dequant_gemv_int4(
    x: ArrayLike,
    w: ArrayLike,
    scale: ArrayLike,
    zero_min: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Multiply a vector by a packed weight: ``out[n] = sum over k of x[k] (q[k, n] scale + zero_min)``.

    Parameters
    ----------
    x : float16, bfloat16 or float32 [K]
    w : int32 [K/8, N]
        As `quantize_int4` packs it.
    scale, zero_min : float16 [ceil(K/128), N]

    Returns
    -------
    the dtype of ``x``, [N]
        Weights as `dequant_int4` has them, products and sums in float32, rounded once. K = 0 gives zeros.

    Raises
    ------
    SignatureError
        For extents that do not fit each other, and another dtype.

    Notes
    -----
    ``flops`` counts the product alone; dequantising rides along.
    """

def dequant_int4(
    w: ArrayLike,
    scale: ArrayLike,
    zero_min: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Return the weight that a packed one stands for: ``q scale + zero_min``.

    Parameters
    ----------
    w : int32 [K/8, N]
        As `quantize_int4` packs it.
    scale, zero_min : float16 [ceil(K/128), N]

    Returns
    -------
    float32 [K, N]
        Rounded once. The product is exact in float32, so contraction changes nothing.

    Raises
    ------
    SignatureError
        For extents that do not fit each other.

    Notes
    -----
    The inverse of `quantize_int4` but for its rounding; the layout is described there.
    """

def dequant_matmul_int4(
    x: ArrayLike,
    w: ArrayLike,
    scale: ArrayLike,
    zero_min: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Multiply a matrix by a packed weight, each row as `dequant_gemv_int4` has it.

    Parameters
    ----------
    x : float16, bfloat16 or float32 [M, K]
    w : int32 [K/8, N]
        As `quantize_int4` packs it.
    scale, zero_min : float16 [ceil(K/128), N]

    Returns
    -------
    the dtype of ``x``, [M, N]
        Weights as `dequant_int4` has them, products and sums in float32, rounded once; float32 products are IEEE,
        never TF32. K = 0 gives zeros.

    Raises
    ------
    SignatureError
        For extents that do not fit each other, and another dtype.

    Notes
    -----
    ``flops`` counts the product alone; dequantising rides along.
    """

def divide(
    x1: ArrayLike | float,
    x2: ArrayLike | float,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Divide two floating tensors element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : floating, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    floating, the broadcast shape
        In the dtype the two promote to. A finite nonzero number over zero is an infinity of the proper sign, 0/0 is
        NaN. float32 quotients are within 2.5 ulp, what the shader languages promise; narrower ones are rounded once
        from such.

    Raises
    ------
    SignatureError
        As `add` does, and for integers, whose quotient the standard leaves open: convert them with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``divide``; WebGPU Shading Language, section Floating Point Accuracy.
    """

def embedding(
    w: ArrayLike,
    index: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Gather rows of a table: ``out[b, :] = w[index[b], :]``.

    Parameters
    ----------
    w : any dtype [V, D]
    index : int32 or int64 [*B]
        From 0 to V - 1. Outside: refused by name where the indices are on the host, out of contract on a device.

    Returns
    -------
    the dtype of ``w``, [*B, D]
        An exact copy.

    Raises
    ------
    SignatureError
        For another index dtype; for an index out of range on the host, with the index and V.

    Notes
    -----
    ``torch.nn.functional.embedding``, without negative indices.
    """

def erf(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the error function of each element: ``2 / sqrt(pi)`` times the integral of ``exp(-t^2)`` from 0 to x.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        -1 and 1 for infinities, zeros as they are. float32 results are within 4.5 ulp, near zero too; narrower ones are
        rounded once from such.

    Notes
    -----
    ``torch.erf``; NIST Digital Library of Mathematical Functions, section 7.2.
    """

def exp(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Raise e to each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        0.0 for -inf, +inf for +inf. float32 results are within 4.5 ulp, subnormal ones too: what precise functions of
        shader languages promise (4 ulp), and far less than an exponent that was multiplied by log2(e) in float32 is
        off; narrower ones are rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``exp``; Metal Shading Language Specification, section Numerical Compliance.
    """

def full(
    *,
    shape: int | Sequence[int],
    fill_value: int | float | bool,
    dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Make a tensor that holds one value everywhere.

    Parameters
    ----------
    shape : integers
        One integer is a tensor of rank 1.
    fill_value : integer, float or bool
    dtype : dtype, optional
        Left out, int64 for an integer, float32 for a float, bool for a bool.

    Returns
    -------
    ``dtype``, ``shape``
        The value rounded once, to nearest even; beyond the largest number what the dtype overflows to, as `astype`
        has it. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        For an extent below 0; for an integer outside the range of an integer dtype; for a value of another kind than
        the dtype: a float in an integer dtype, a bool in any but bool, anything else in bool.

    Notes
    -----
    Python array API standard 2024.12, ``full``; which kinds go together is the standard's rule for scalars beside
    arrays, and float32 for floats this project's choice of the standard's default floating-point dtype.
    """

def gelu(
    x: ArrayLike,
    *,
    approximate: Literal["none", "tanh"] = "none",
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Apply the Gaussian error linear unit to each element.

    ``approximate="none"`` is ``x Phi(x) = x/2 (1 + erf(x / sqrt(2)))``; ``"tanh"`` is
    ``x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))``.

    Parameters
    ----------
    x : floating, any shape
    approximate : "none" or "tanh"

    Returns
    -------
    floating, the shape and dtype of ``x``
        Computed in float32 (float64 in float64), rounded once. NaN gives NaN, +inf gives +inf, -inf gives NaN (-inf
        times 0). A result of zero has the sign of ``x``.

    Raises
    ------
    SignatureError
        For another ``approximate``.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016 (arXiv:1606.08415).
    """

def group_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    groups: int,
    eps: float = 1e-05,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Normalise groups of channels, with all their pixels, to mean 0 and variance 1, then scale and shift channels.

    Channels are cut into ``groups`` runs of C / groups. Each run of each image is one row for
    ``(x - mean) / sqrt(variance + eps)``, the variance the mean squared deviation; then ``* weight[c] + bias[c]``.

    Parameters
    ----------
    x : floating [N, C, ...]
        Any number of axes after the channels, none included.
    weight, bias : the dtype of ``x``, [C], optional
        Ones and zeros where left out.
    groups : int
        At least 1; C is a multiple of it. 1 normalises all channels together, C each by itself (``num_groups`` of
        torch).
    eps : float
        Added to the variance.

    Returns
    -------
    floating, the shape and dtype of ``x``
        Computed in float32 (float64 in float64) and rounded once. The variance is that of the deviations: a
        difference of mean squares loses it where the mean is large. A group with NaN or an infinity in it is NaN. What
        squares of deviations beyond float32 leave is open.

    Raises
    ------
    SignatureError
        For fewer than two axes, groups < 1, C no multiple of groups, and a weight or bias of another extent or dtype.

    Notes
    -----
    Wu and He, "Group Normalization", 2018 (arXiv:1803.08494); ``torch.nn.functional.group_norm``.
    """

def irfft(
    x: ArrayLike,
    *,
    n: int,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Transform non-negative frequencies along the last axis back to a real signal of length ``n``.

    ``out[j] = 1/n sum over k of w (re[k] cos(2 pi k j / n) - im[k] sin(2 pi k j / n))`` for k from 0 to n div 2: w is 1
    at k = 0 and, for an even n, at k = n / 2, else 2.

    Parameters
    ----------
    x : complex64 [*B, K]
        Of more than n div 2 + 1 frequencies the last are left out; missing ones are 0. The imaginary parts at k = 0
        and, for an even n, at k = n / 2 are ignored, NaN and all.
    n : int
        At least 1, odd or even.

    Returns
    -------
    float32 [*B, n]
        Computed in float32. An error is a few roundings, 2 log2(2n), of the weighted mean of the magnitudes. What a
        row gives that is not finite where it counts is a kernel's own; other rows are as they were.

    Raises
    ------
    SignatureError
        For another dtype, a tensor without axes, n below 1.

    Notes
    -----
    Python array API standard 2024.12, ``fft.irfft`` with ``norm="backward"``. ``flops`` counts butterflies.
    """

def irfft_basis(
    *,
    n: int,
    out: tuple[ArrayLike, ArrayLike] | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> tuple[Any, Any]:
    """Write the tables of an inverse transform, applied as ``re @ C + im @ S``.

    ``C[k, j] = w cos(2 pi k j / n) / n``, ``S[k, j] = -w sin(2 pi k j / n) / n``: w is 1 at k = 0 and, for an even n,
    at k = n / 2, else 2.

    Parameters
    ----------
    n : int
        The length of a frame, at least 1, odd or even.

    Returns
    -------
    C, S : float32 [n div 2 + 1, n]
        Within 1e-6 w / n, with k j taken modulo n in 64-bit integers. The rows of S with w = 1 are exactly 0: their
        imaginary parts are ignored.

    Raises
    ------
    SignatureError
        For n below 1, and for n above 2^31, where k j would leave 64 bits.

    Notes
    -----
    ``flops`` counts one operation a cosine or sine, and one for its weight; the least as `rfft_basis` has it.
    """

def layer_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    eps: float = 1e-05,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Normalise the last axis to mean 0 and variance 1, then scale and shift it.

    ``(x - mean) / sqrt(variance + eps) * weight + bias``, with the variance the mean squared deviation (divided by D).

    Parameters
    ----------
    x : floating [*B, D]
    weight, bias : the dtype of ``x``, [D], optional
        Ones and zeros where left out.
    eps : float
        Added to the variance.

    Returns
    -------
    floating [*B, D]
        Computed in float32 (float64 in float64) and rounded once. The variance is that of the deviations: a
        difference of mean squares loses it where the mean is large. A row with NaN or an infinity in it is NaN. What
        squares of deviations beyond float32 leave is open.

    Raises
    ------
    SignatureError
        For a weight or bias of another extent or dtype.

    Notes
    -----
    Ba, Kiros and Hinton, "Layer Normalization", 2016 (arXiv:1607.06450).
    """

def linear(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] | None = None,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Apply a linear layer: ``activation(x w^T + bias)``.

    Parameters
    ----------
    x : floating [*B, K]
    w : the dtype of ``x``, [N, K]
    bias : the dtype of ``x``, [N], optional
    activation : None, "relu", "gelu", "gelu_tanh" or "silu"
        ``gelu`` is the erf form, ``gelu_tanh`` the tanh form, ``silu`` is ``z / (1 + exp(-z))``.

    Returns
    -------
    floating [*B, N]
        Products, sums, bias and activation in float32 (float64 in float64), rounded once, at the end; float32
        products are IEEE, never TF32.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, and for an unknown activation.

    Notes
    -----
    ``torch.nn.functional.linear``; the epilogue is this project's choice. ``flops`` counts the products alone.
    """

def log(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the natural logarithm of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN for numbers below zero, -inf for zeros of either sign, 0.0 for 1, +inf for +inf. float32 results are within
        4.5 ulp, near 1 too, where a base-2 logarithm with an absolute error has no digits left; narrower ones are
        rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``log``; Metal Shading Language Specification, section Numerical Compliance.
    """

def matmul(
    x1: ArrayLike,
    x2: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Multiply matrices: ``out[..., m, n] = sum over k of x1[..., m, k] x2[..., k, n]``.

    Parameters
    ----------
    x1 : floating [..., M, K], or [K]
    x2 : the dtype of ``x1``, [..., K, N], or [K]
        Leading axes broadcast. A tensor of rank 1 is a row on the left, a column on the right, and its axis leaves the
        result.

    Returns
    -------
    floating [..., M, N]
        Products and sums in float32 (float64 in float64), rounded once; float32 products are IEEE, never TF32. K = 0
        gives zeros.

    Raises
    ------
    SignatureError
        For differing K or dtypes, leading axes that do not broadcast, a tensor of rank 0.

    Notes
    -----
    Python array API standard 2024.12, ``matmul``, for floating tensors of one dtype.
    """

def max(
    x: ArrayLike,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Find the largest element along one axis, several, or all.

    Parameters
    ----------
    x : any dtype but complex, any shape
    axis : int, integers, or None
        Negative ones count from the end. None looks at everything, an empty tuple at each element alone.
    keepdims : bool
        Keep the axes reduced over, with extent 1.

    Returns
    -------
    the dtype of ``x``, its shape without those axes
        One of the elements, exactly. NaN wherever there is one. Which zero comes of zeros of both signs is open.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice; for the largest of no elements, which is not defined (a result
        without elements is none).

    Notes
    -----
    Python array API standard 2024.12, ``max``.
    """

def maximum(
    x1: ArrayLike | float,
    x2: ArrayLike | float,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the larger of two elements, broadcasting.

    Parameters
    ----------
    x1, x2 : integer or floating, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    integer or floating, the broadcast shape
        In the dtype the two promote to, exact. NaN where either is NaN; of zeros of both signs either.

    Raises
    ------
    SignatureError
        As `add` does, and for complex64, which has no order.

    Notes
    -----
    Python array API standard 2024.12, ``maximum``.
    """

def mean(
    x: ArrayLike,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Average the elements along one axis, several, or all.

    Parameters
    ----------
    x : any dtype and shape
    axis : int, integers, or None
        Negative ones count from the end. None averages everything, an empty tuple nothing.
    keepdims : bool
        Keep the axes averaged over, with extent 1.

    Returns
    -------
    the shape of ``x`` without those axes
        The sum, then divided by the number of elements. Floating and complex numbers keep their dtype; they are
        accumulated in float32 (float64 in float64), partial results included, and rounded once; what a sum beyond
        float32 leaves is open. Integers and booleans give float32. The mean of no elements is NaN. A kernel's order of
        summation is its own, and fixed.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice.

    Notes
    -----
    Python array API standard 2024.12, ``mean``; that integers have a mean, and its dtype, are this project's choice.
    """

def minimum(
    x1: ArrayLike | float,
    x2: ArrayLike | float,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the smaller of two elements, broadcasting.

    Parameters
    ----------
    x1, x2 : integer or floating, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    integer or floating, the broadcast shape
        In the dtype the two promote to, exact. NaN where either is NaN; of zeros of both signs either.

    Raises
    ------
    SignatureError
        As `maximum` does.

    Notes
    -----
    Python array API standard 2024.12, ``minimum``.
    """

def multiply(
    x1: ArrayLike | complex,
    x2: ArrayLike | complex,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Multiply two tensors element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : numeric, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    numeric, the broadcast shape
        In the dtype the two promote to. Integers wrap around; floating products are rounded once.

    Raises
    ------
    SignatureError
        As `add` does.

    Notes
    -----
    Python array API standard 2024.12, ``multiply``.
    """

def negative(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Change the sign of each element.

    Parameters
    ----------
    x : numeric, any shape

    Returns
    -------
    numeric, the shape and dtype of ``x``
        Exact. Zeros change their sign too. Integers wrap around: the most negative one stays what it is, and an
        unsigned x gives 2^bits - x (0 gives 0).

    Notes
    -----
    Python array API standard 2024.12, ``negative``, extended to unsigned integers.
    """

def normal(
    *,
    shape: int | Sequence[int],
    seed: int,
    offset: int = 0,
    dtype: DTypeLike = "float32",
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Draw numbers of the standard normal distribution from the stream of a seed.

    Parameters
    ----------
    shape, seed, offset
        As `random_bits` has them.
    dtype : float32, float16, bfloat16 or float64

    Returns
    -------
    ``dtype``, ``shape``
        ``q((word + 1/2) 2^-32)``, where q is the inverse of the standard normal distribution function: from -6.34 to
        6.34, never 0, symmetric about it. float32 numbers, those nearest to 0 too, are within 8 roundings; narrower
        ones are computed in float32 and rounded once; float64 ones are computed in float64 from the same 32 bits. On
        ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        As `random_bits` does, and for another dtype.

    Notes
    -----
    Words by Philox 4x32-10, see `random_bits`. By inversion an element takes one word, as `uniform` does, and grows
    with it; the reference is M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988,
    as Python's `statistics.NormalDist` has it.
    """

def paged_decode_attention(
    q: ArrayLike,
    k_pool: ArrayLike,
    v_pool: ArrayLike,
    block_table: ArrayLike,
    seq_lens: ArrayLike,
    *,
    longest: int | None = None,
    scale: float | None = None,
    q_dtype: DTypeLike | None = None,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Attend with one query a sequence to a paged cache: `decode_attention` through a table of pages.

    Token t of sequence b is at position ``t mod page_tokens`` of page ``block_table[b, t div page_tokens]``.

    Parameters
    ----------
    q : floating [B, Hq, D]
    k_pool, v_pool : floating [pages, Hkv, page_tokens, D] and [pages, Hkv, page_tokens, Dv]
        Hkv is at least 1, and Hq a multiple of it; query head h reads head h div (Hq / Hkv).
    block_table : int32 [B, max_pages]
        The pages of each sequence; sequences may share some. Below 0 there is no page: its tokens are not attended.
    seq_lens : int32 [B]
        Tokens to attend; 0 or below: none. Past it, and past what the table reaches, nothing is looked at, NaN or not.
    longest : int or None
        A bound on the lengths, known on the host: by default what the table reaches. It settles the grid
        (`paged_decode_splits`), and what the cost counts; the result does not depend on it, and a recorded graph is
        right for all lengths up to it. Longer ones are refused by name on the host, out of contract on a device; so
        are pages beyond the pool.
    scale : float or None
        D^-0.5 unless given.
    q_dtype : dtype or None
        Round ``q`` to it on load: the cache's dtype or nothing. To float16 finite values saturate.

    Returns
    -------
    the dtype of ``q``, [B, Hq, Dv]
        A sequence without tokens gives 0. Scores, softmax, sums and partial results are in float32 (float64 where ``q``
        is float64); with a 16-bit cache the weights may be rounded to its dtype before they meet v.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, Hkv = 0 or Hq no multiple of it, a negative ``longest``, a ``q_dtype`` that
        is not the cache's; on the host for a length or a page out of range.

    Notes
    -----
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
    (arXiv:2309.06180). ``flops`` counts the two products.
    """

def paged_kv_append(
    new: ArrayLike,
    slot: ArrayLike,
    pool: ArrayLike,
    *,
    saturate: bool = False,
    out: None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> None:
    """Write new keys or values into their places in a paged cache: ``pool[page, :, position] = new[n]``.

    Parameters
    ----------
    new : floating [N, Hkv, D]
    slot : int32 [N]
        page * page_tokens + position. A negative one is padding: its row is skipped. One beyond the pool is refused by
        name where the slots are on the host, out of contract on a device. One given twice is out of contract
        everywhere: either row may be what stays.
    pool : floating [pages, Hkv, page_tokens, D], written in place
        Nothing else of it changes.
    saturate : bool
        Clamp numbers beyond the pool's dtype, infinities too, to its largest.

    Returns
    -------
    nothing
        What is written is rounded once, to nearest even: float32 1e5 becomes inf in float16, or 65504 with
        ``saturate``.

    Raises
    ------
    SignatureError
        For extents that differ; for a slot beyond the pool on the host, with the slot and the pool's slots.

    Notes
    -----
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
    (arXiv:2309.06180).
    """

def paged_kv_append_step(
    k_new: ArrayLike,
    v_new: ArrayLike,
    k_pool: ArrayLike,
    v_pool: ArrayLike,
    block_table: ArrayLike,
    lens: ArrayLike,
    *,
    saturate: bool = False,
    out: None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> None:
    """Write the next key and value of each sequence behind its last ones: one step of decoding.

    Sequence b has ``lens[b]`` tokens, so the new one goes to position ``lens[b] mod page_tokens`` of page
    ``block_table[b, lens[b] div page_tokens]``. No value of the host takes part: a recorded graph replays it.
    `paged_lens_advance` follows.

    Parameters
    ----------
    k_new, v_new : floating [B, Hkv, D] and [B, Hkv, Dv]
    k_pool, v_pool : floating [pages, Hkv, page_tokens, D] and [pages, Hkv, page_tokens, Dv], written in place
        Nothing else of them changes. Both may be views of one buffer in which pages, or rows, take turns.
    block_table : int32 [B, max_pages]
        The pages of each sequence. Below 0 there is no page: nothing is written. A page beyond the pool is refused by
        name where the table is on the host, out of contract on a device. Two sequences that write to one place are out
        of contract everywhere: either row may be what stays.
    lens : int32 [B]
        Below 0, or beyond what the table reaches: nothing is written.
    saturate : bool
        Clamp numbers beyond the pools' dtype, infinities too, to its largest.

    Returns
    -------
    nothing
        What is written is rounded once, to nearest even, as `paged_kv_append` does.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ; for a page beyond the pool on the host, with the page and the pool's pages.

    Notes
    -----
    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023
    (arXiv:2309.06180).
    """

def paged_lens_advance(
    lens: ArrayLike,
    *,
    n: int = 1,
    out: None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> None:
    """Count the tokens that every sequence has gained: ``lens[b] += n``.

    Follows `paged_kv_append_step` in stream order; lengths stay where they are, so that a recorded graph goes on from
    where its last replay ended.

    Parameters
    ----------
    lens : int32 [B], written in place
        Every one is advanced, those too for which nothing was written.
    n : int
        Of 32 bits; negative to take tokens back.

    Returns
    -------
    nothing
        Sums wrap around in 32 bits.

    Raises
    ------
    SignatureError
        For another dtype, and for n of more than 32 bits.

    Notes
    -----
    This project's own: a length that passed through the host would freeze in a recorded graph.
    """

def permute_dims(
    x: ArrayLike,
    *,
    axes: int | Sequence[int],
    copy: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Reorder the axes: axis i of the result is axis ``axes[i]`` of ``x``.

    Parameters
    ----------
    x : any dtype and shape
    axes : integers
        Every axis once; negative ones count from the end.
    copy : bool
        Write the result out, row-major, rather than return a view that shares the memory of ``x``.

    Returns
    -------
    the dtype of ``x``, its extents in that order
        The same elements; an exact copy if one is asked for.

    Raises
    ------
    SignatureError
        For axes that are no permutation.

    Notes
    -----
    Python array API standard 2024.12, ``permute_dims``; ``copy`` is this project's.
    """

def pixel_shuffle(
    x: ArrayLike,
    *,
    r: int,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Rearrange channels into pixels: each group of ``r^2`` channels becomes an ``r`` by ``r`` block.

    ``out[n, c, oh, ow] = x[n, c r^2 + (oh mod r) r + (ow mod r), oh div r, ow div r]``

    Parameters
    ----------
    x : any dtype [N, C, H, W], or [N, P, B, H, W]
        The second form stands for [N, P B, H, W]. With stride 0 on B it is an expanded tensor that was never written
        out: a kernel reads through the strides, and at the least the elements that are there are read once.
    r : int
        At least 1.

    Returns
    -------
    the dtype of ``x``, [N, C / r^2, H r, W r]
        An exact copy.

    Raises
    ------
    SignatureError
        For another rank, r < 1, and C (or P B) no multiple of r^2.

    Notes
    -----
    Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
    Network", 2016 (arXiv:1609.05158); ``torch.nn.functional.pixel_shuffle``.
    """

def pixel_unshuffle(
    x: ArrayLike,
    *,
    r: int,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Rearrange pixels into channels: each ``r`` by ``r`` block becomes a group of ``r^2`` channels.

    ``out[n, c r^2 + i r + j, h, w] = x[n, c, h r + i, w r + j]``, the inverse of `pixel_shuffle`

    Parameters
    ----------
    x : any dtype [N, C, H, W]
    r : int
        At least 1.

    Returns
    -------
    the dtype of ``x``, [N, C r^2, H / r, W / r]
        An exact copy.

    Raises
    ------
    SignatureError
        For another rank, r < 1, and H or W no multiple of r: nothing is cut off.

    Notes
    -----
    ``torch.nn.functional.pixel_unshuffle``; Shi et al. as for `pixel_shuffle`.
    """

def pow(
    x: ArrayLike | float,
    e: ArrayLike | float,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Raise each element to a power, broadcasting.

    Parameters
    ----------
    x : integer or floating
    e : integer or floating, a shape that broadcasts with that of ``x``
        Either may be a Python scalar, which takes the other's dtype: an integer beside a floating tensor is a floating
        number.

    Returns
    -------
    integer or floating, the broadcast shape
        In the dtype the two promote to.

        Floating: as IEEE 754 ``pow``. x to the 0 is 1, NaN too; 1 to the NaN is 1. A finite x below zero with an
        integer e gives |x| to the e with the sign of an odd e, with another finite e NaN; an infinite e is even. Zeros
        to an e above zero give zero, below zero infinity, negative for -0.0 with an odd integer e alone; so do
        infinities with the reciprocals. (-inf) to the 0.5 is +inf, (-0.0) to the 0.5 is +0.0. In float32: squares
        within 0.5 ulp, cubes within 1.5, all others within 2, or (for an integer e up to 8 in magnitude) as many
        roundings as repeated multiplication and one reciprocal make, where these are more. Results below the normal
        numbers are no zeros. float64 the same in float64; narrower dtypes are rounded once from float32.

        Integers: exact, wrapping around. 0 to the 0 is 1.

    Raises
    ------
    SignatureError
        As `add` does; for complex64, and for a Python scalar that is bool or complex. For a negative exponent of an
        integer tensor: a Python integer anywhere, a tensor of exponents on the host; on a device such a tensor is out
        of contract. Convert x with `astype`.

    Notes
    -----
    Python array API standard 2024.12, ``pow``; IEEE 754-2019, section 9.2.1.
    """

def prod(
    x: ArrayLike,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Multiply the elements along one axis, several, or all.

    Parameters
    ----------
    x : any dtype and shape
    axis : int, integers, or None
        Negative ones count from the end. None multiplies everything, an empty tuple nothing.
    keepdims : bool
        Keep the axes multiplied over, with extent 1.

    Returns
    -------
    the shape of ``x`` without those axes
        Integers and booleans give int64, unsigned ones uint64, exactly (modulo 2^64). Floating and complex numbers keep
        their dtype; they are multiplied in float32 (float64 in float64), partial products included, and rounded once:
        float16 partial products may pass its largest number where the whole does not. Partial products beyond float32,
        or below its normal numbers, are a matter of the order, which is open. A product of no elements is 1.
        A kernel's order is its own, and fixed: the same tensor gives the same bits again.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice.

    Notes
    -----
    Python array API standard 2024.12, ``prod``; the dtypes of integer products are this project's choice.
    """

def quantize_int4(
    w: ArrayLike,
    *,
    out: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> tuple[Any, Any, Any]:
    """Quantise a weight to 4 bits an element, 128 rows of a column at a time.

    Parameters
    ----------
    w : float16, bfloat16 or float32 [K, N]
        Finite. K a multiple of 8.

    Returns
    -------
    packed : int32 [K/8, N]
        Bits 4 i to 4 i + 3 of word r are row 8 r + i, unsigned: ``q = clip(round((w - zero_min) / scale), 0, 15)``,
        half to even.
    scale : float16 [ceil(K/128), N]
        ``(largest - least) / 15`` of each group's rows; 1 where that is, or rounds to, 0.
    zero_min : float16 [ceil(K/128), N]
        The least of each group's rows; a zero is +0.

    Raises
    ------
    SignatureError
        For K that is no multiple of 8, and another dtype. For weights on the host also where one of them is not
        finite, or a scale or minimum is beyond float16: nothing is written then. On a device that is out of contract.

    Notes
    -----
    All arithmetic is in float32, each operation rounded once; scale and minimum are rounded to float16 before they
    quantise. To quantise from the rounded values, so that dequantising undoes what was done, is this project's choice.
    """

def random_bits(
    *,
    shape: int | Sequence[int],
    seed: int,
    offset: int = 0,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Draw words of 32 random bits from the stream of a seed.

    Parameters
    ----------
    shape : integers
        One integer is a tensor of rank 1.
    seed : integer, 0 to 2^64 - 1
        Names the stream.
    offset : integer, 0 to 2^64 - 1
        The word that the first element is.

    Returns
    -------
    uint32, ``shape``
        Element i, in row-major order, is word ``(offset + i) mod 4`` of block ``(offset + i) div 4`` of Philox 4x32-10:
        counter words the block's number, low half first, then 0, 0; key words the halves of the seed, low half first.
        The same bits on every backend. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        For a seed or an offset below 0 or of more than 64 bits; for elements past the stream's last word.

    Notes
    -----
    J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. A round
    is counted as 10 operations.
    """

def reciprocal(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Divide 1 by each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        Zeros give infinities of their sign and infinities zeros of theirs. float32 results are within 2.5 ulp, what
        the shader languages promise; narrower ones are rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``reciprocal``; WebGPU Shading Language, section Floating Point Accuracy.
    """

def relu(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Replace what is below zero by zero.

    Parameters
    ----------
    x : integer or floating, any shape

    Returns
    -------
    integer or floating, the shape and dtype of ``x``
        Exact. NaN gives NaN; -0.0 a zero of either sign.

    Raises
    ------
    SignatureError
        For complex64, which has no order.

    Notes
    -----
    ``torch.nn.functional.relu``.
    """

def rfft(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Transform the last axis of a real tensor to its frequencies, the non-negative ones.

    ``out[k] = sum over j of x[j] exp(-2 pi i k j / N)`` for k from 0 to N div 2.

    Parameters
    ----------
    x : float32 [*B, N]
        Any N from 1 on. Narrower dtypes are converted first (`astype`), which is exact; the transform of float64 would
        need a complex dtype that the table lacks.

    Returns
    -------
    complex64 [*B, N div 2 + 1]
        Computed in float32. An error is a few roundings, 2 log2(2N), of the sum of the magnitudes. What a row
        gives that is not finite is a kernel's own; other rows are as they were.

    Raises
    ------
    SignatureError
        For another dtype, a tensor without axes, N = 0.

    Notes
    -----
    Python array API standard 2024.12, ``fft.rfft`` with ``norm="backward"``. ``flops`` counts butterflies.
    """

def rfft_basis(
    *,
    n: int,
    out: tuple[ArrayLike, ArrayLike] | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> tuple[Any, Any]:
    """Write the tables of a transform: cosines and negative sines, applied as ``frames @ table.T``.

    ``C[k, j] = cos(2 pi k j / n)``, ``S[k, j] = -sin(2 pi k j / n)``: real and imaginary part of what `rfft` sums with.

    Parameters
    ----------
    n : int
        The length of a frame, at least 1, odd or even.

    Returns
    -------
    C, S : float32 [n div 2 + 1, n]
        Within 1e-6. That takes k j modulo n in 64-bit integers before there is an angle: without it the error is 8e-4
        at n = 4096.

    Raises
    ------
    SignatureError
        For n below 1, and for n above 2^31, where k j would leave 64 bits.

    Notes
    -----
    ``flops`` counts one operation a cosine or sine, the least those of an eighth of the circle: the others repeat them.
    """

def rms_norm(
    x: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    eps: float = 1e-06,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Divide the last axis by its root mean square, then scale it.

    ``x / sqrt(mean(x^2) + eps) * weight``

    Parameters
    ----------
    x : floating [*B, D]
    weight : the dtype of ``x``, [D], optional
        Ones where left out.
    eps : float
        Added to the mean square.

    Returns
    -------
    floating [*B, D]
        Computed in float32 (float64 in float64) and rounded once. A row with NaN in it is NaN; of one with an infinity
        that is NaN, and the rest zeros. What squares beyond float32 leave is open.

    Raises
    ------
    SignatureError
        For a weight of another extent or dtype.

    Notes
    -----
    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019 (arXiv:1910.07467);
    ``torch.nn.functional.rms_norm``.
    """

def rotary_embedding(
    x: ArrayLike,
    position: ArrayLike,
    cos: ArrayLike,
    sin: ArrayLike,
    *,
    interleaved: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Rotate pairs of elements by angles that grow with the position: rotary position embedding.

    A pair (a, b) of token t becomes ``(a cos - b sin, b cos + a sin)``; pair i takes ``cos[position[b, t], i]`` and
    ``sin`` likewise.

    Parameters
    ----------
    x : floating [B, H, T, D]
        Queries or keys; D is even.
    position : int32 or int64 [B, T]
        Rows of the tables, from 0 to P - 1. Outside: refused by name where they are on the host, out of contract on a
        device.
    cos, sin : float32 or the dtype of ``x``, [P, D / 2]
        Row p holds cosines and sines of p times each pair's frequency, usually ``10000^(-2i / D)``.
    interleaved : bool
        Pairs are neighbours, (2i, 2i + 1), as in GPT-J; else they are half of D apart, (i, i + D / 2), as in GPT-NeoX
        and Llama.

    Returns
    -------
    the shape and dtype of ``x``
        Computed in float32 (float64 in float64), rounded once.

    Raises
    ------
    SignatureError
        For extents that differ, an odd D, tables of another width or dtype; for a position out of range on the host,
        with the position and P.

    Notes
    -----
    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021 (arXiv:2104.09864).
    """

def rsqrt(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the reciprocal of the square root of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN for numbers below zero, +inf for 0.0, -inf for -0.0, 0.0 for +inf. float32 results are within 5.5 ulp: a
        root and a reciprocal, each as the shader languages promise; narrower ones are rounded once from such.

    Notes
    -----
    ``torch.rsqrt``; IEEE 754-2019, section 9.2.1, rSqrt.
    """

def scaled_dot_product_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Attend: weight the values by the softmax of the scaled products of queries and keys.

    ``softmax(scale q k^T + mask) v``, head by head.

    Parameters
    ----------
    q : floating [B, Hq, Tq, D]
    k, v : the dtype of ``q``, [B, Hkv, Tk, D] and [B, Hkv, Tk, Dv]
        Hkv is at least 1, and Hq a multiple of it; query head h reads head h div (Hq / Hkv).
    mask : bool or floating, broadcasts to [B, Hq, Tq, Tk], optional
        A boolean one keeps a key where True; a floating one is added to the scaled product.
    causal : bool
        Hide later keys: query i sees keys up to i + Tk - Tq (aligned bottom-right). Holds beside a mask.
    scale : float or None
        D^-0.5 unless given.

    Returns
    -------
    floating [B, Hq, Tq, Dv]
        A query that sees no key (all hidden, all scores -inf, Tk = 0) gives 0. Scores, softmax and sums are in float32
        (float64 in float64); with 16-bit inputs the weights may be rounded to their dtype before they meet v, as matrix
        units ask. Hidden keys and values must be finite: 0 times NaN is not 0 in every kernel.

    Raises
    ------
    SignatureError
        For extents or dtypes that differ, Hkv = 0 or Hq no multiple of it, a mask that does not broadcast or is an
        integer's.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017 (arXiv:1706.03762); grouped queries: Ainslie et al., 2023
    (arXiv:2305.13245). ``flops`` counts the two products.
    """

def sigmoid(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Apply the logistic function to each element: ``1 / (1 + exp(-x))``.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        0.0 for -inf, 1 for +inf, no NaN for any number. float32 results are within 7.5 ulp: an exponential, a sum and a
        reciprocal, each as its own contract allows; what is below the normal numbers may be zero. Narrower ones are
        rounded once from such.

    Notes
    -----
    ``torch.sigmoid``. ``flops`` counts an exponential as one operation.
    """

def silu(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Apply the sigmoid linear unit to each element: ``x sigmoid(x)``.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN gives NaN, +inf gives +inf, -inf gives NaN (-inf times 0). A result of zero has the sign of ``x``. float32
        results are within 8.5 ulp, one more than those of `sigmoid`; where `sigmoid` is below the normal numbers the
        result may be zero. Narrower ones are rounded once from such.

    Notes
    -----
    Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units for neural network function approximation in
    reinforcement learning", 2017 (arXiv:1702.03118); ``torch.nn.functional.silu``.
    """

def softmax(
    x: ArrayLike,
    *,
    axis: int = -1,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Turn an axis into weights: exponentials that add up to 1.

    ``exp(x - max(x)) / sum(exp(x - max(x)))``: a large x does not overflow.

    Parameters
    ----------
    x : floating, at least rank 1
    axis : int

    Returns
    -------
    floating, the shape and dtype of ``x``
        Computed in float32 (float64 in float64) and rounded once; an exponential below the smallest normal number may
        be flushed to zero. NaN, +inf, or nothing but -inf along the axis makes all of it NaN.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks.

    Notes
    -----
    Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs", 1990.
    """

def sqrt(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the square root of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        NaN for numbers below zero, -0.0 for -0.0, +inf for +inf. float32 roots are within 2.5 ulp, what the shader
        languages promise; narrower ones are rounded once from such.

    Notes
    -----
    Python array API standard 2024.12, ``sqrt``.
    """

def subtract(
    x1: ArrayLike | complex,
    x2: ArrayLike | complex,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Subtract one tensor from another element by element, broadcasting.

    Parameters
    ----------
    x1, x2 : numeric, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    numeric, the broadcast shape
        ``x1 - x2`` in the dtype the two promote to. Integers wrap around; floating differences are rounded once.

    Raises
    ------
    SignatureError
        As `add` does.

    Notes
    -----
    Python array API standard 2024.12, ``subtract``.
    """

def sum(
    x: ArrayLike,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Add up the elements along one axis, several, or all.

    Parameters
    ----------
    x : any dtype and shape
    axis : int, integers, or None
        Negative ones count from the end. None adds up everything, an empty tuple nothing.
    keepdims : bool
        Keep the axes added up over, with extent 1.

    Returns
    -------
    the shape of ``x`` without those axes
        Integers and booleans give int64, unsigned ones uint64, exactly (modulo 2^64). Floating and complex numbers keep
        their dtype; they are accumulated in float32 (float64 in float64), partial results included, and rounded once.
        A sum of no elements is 0. A kernel's order of summation is its own, and fixed: the same tensor gives the same
        bits again.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, or one given twice.

    Notes
    -----
    Python array API standard 2024.12, ``sum``; the dtypes of integer sums are this project's choice.
    """

def take(
    x: ArrayLike,
    indices: ArrayLike,
    *,
    axis: int | None = None,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Pick elements along an axis by their indices: ``out[..., i, ...] = x[..., indices[i], ...]``.

    Parameters
    ----------
    x : any dtype, at least rank 1
    indices : int32 or int64 [K]
        From 0 to the extent of the axis - 1; they may repeat. Outside, negative ones included: refused by name where
        the indices are on the host, out of contract on a device.
    axis : int or None
        May be left out where ``x`` has one axis.

    Returns
    -------
    the dtype of ``x``, its shape with K in place of the axis
        An exact copy.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks or that is missing; for another index dtype; for an index out of range on the host,
        with the index and the extent.

    Notes
    -----
    Python array API standard 2024.12, ``take``, which leaves indices out of range open. That negative ones are such is
    this project's choice, the one of `embedding`: a kernel need not look at their sign.
    """

def tanh(
    x: ArrayLike,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take the hyperbolic tangent of each element.

    Parameters
    ----------
    x : floating, any shape

    Returns
    -------
    floating, the shape and dtype of ``x``
        -1 and 1 for infinities, zeros as they are. float32 results are within 5.5 ulp (precise functions of shader
        languages promise 5), near zero too, where a quotient of exponentials cancels; narrower ones are rounded once
        from such.

    Notes
    -----
    Python array API standard 2024.12, ``tanh``; Metal Shading Language Specification, section Numerical Compliance.
    """

def topk(
    x: ArrayLike,
    *,
    k: int,
    axis: int = -1,
    largest: bool = True,
    out: tuple[ArrayLike, ArrayLike] | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> tuple[Any, Any]:
    """Find the k largest (or smallest) elements along an axis, the best first, and where they are.

    Parameters
    ----------
    x : any dtype but complex, at least rank 1
    k : int
        From 0 to the extent of the axis.
    axis : int
    largest : bool
        False for the smallest.

    Returns
    -------
    values : the dtype of ``x``, its shape with k in place of the axis
        The elements themselves, in descending order (ascending for the smallest).
    indices : int64, the same shape
        Where along the axis they are. Of equal elements the one with the lower index comes first (zeros of both signs
        are equal). NaN counts as larger than every number: first among the largest, last among the smallest.

    Raises
    ------
    SignatureError
        For an axis that ``x`` lacks, and k below 0 or beyond the axis.

    Notes
    -----
    ``torch.topk`` with ``sorted=True``, which leaves the order of equal elements open; it is fixed here, so that every
    kernel gives the same indices.
    """

def uniform(
    *,
    shape: int | Sequence[int],
    seed: int,
    offset: int = 0,
    dtype: DTypeLike = "float32",
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Draw numbers from 0 to below 1, each as likely as every other, from the stream of a seed.

    Parameters
    ----------
    shape, seed, offset
        As `random_bits` has them.
    dtype : float32, float16, bfloat16 or float64

    Returns
    -------
    ``dtype``, ``shape``
        ``(word >> 8) 2^-24`` in float32, and the same number in float64. In float16 ``(word >> 21) 2^-11`` and in
        bfloat16 ``(word >> 24) 2^-8``: as many bits as the dtype has, the float32 number cut off and not rounded, so
        that none is 1. Exact: the same bits on every backend. On ``device=``, the host unless named.

    Raises
    ------
    SignatureError
        As `random_bits` does, and for another dtype.

    Notes
    -----
    Words by Philox 4x32-10, see `random_bits`; what is made of them is this project's choice, and `torch.rand`'s in its
    number of bits.
    """

def where(
    condition: ArrayLike,
    x1: ArrayLike | complex,
    x2: ArrayLike | complex,
    *,
    out: ArrayLike | None = None,
    device: str | None = None,
    kernel: str | None = None,
    require: Require | None = None,
) -> Any:
    """Take elements of one tensor where a condition holds, of another where it does not, broadcasting.

    Parameters
    ----------
    condition : bool
    x1, x2 : any dtype, shapes that broadcast with that of ``condition``
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    any dtype, the broadcast shape
        In the dtype that ``x1`` and ``x2`` promote to: exact copies where that is their own.

    Raises
    ------
    SignatureError
        As `add` does, and for a condition that is no tensor of bool.

    Notes
    -----
    Python array API standard 2024.12, ``where``.
    """

def __getattr__(name: str) -> Namespace: ...
