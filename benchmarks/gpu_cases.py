"""What the GPU's kernels are timed on, beside whom, and how fast they are to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import gpu_peers as peers
import torch
import torch.nn.functional as F
from gpu_peers import Way

F16, F32, I32 = torch.float16, torch.float32, torch.int32


@dataclass(frozen=True, kw_only=True)
class Case:
    """One op on given tensors, beside peers that compute the same."""

    op: str
    tensors: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    peers: Mapping[str, Way] = field(default_factory=dict[str, Way])
    compared: str | None = None
    """The peer whose result ours must be close to; None where none computes the same numbers."""
    kernel: str | None = None
    """Asked for by its id; else the registry chooses."""
    nbytes: int | None = None
    """Least bytes that are read and written, where they depend on values; else those that the op declares."""
    copy: float | None = None
    """At least this share of the bandwidth of a copy of the op's least bytes."""
    best: float | None = None
    """At least this many times as fast as the fastest peer."""
    seconds: float | None = None
    """At most so long."""


Maker = Callable[[], Case]
CASES: Final[dict[str, Maker]] = {}
"""By what is timed; tensors are made when a case is called for, and go with it."""

LINE = 1 << 27


def case(label: str) -> Callable[[Maker], Maker]:
    """Register a case."""

    def register(maker: Maker) -> Maker:
        CASES[label] = maker
        return maker

    return register


def normal(*shape: int, dtype: torch.dtype = F16, scale: float = 1.0) -> torch.Tensor:
    """Return normal numbers on the card."""
    return (torch.randn(shape, device="cuda") * scale).to(dtype)


def _elementwise(
    label: str, op: str, torch_way: Callable[[torch.Tensor], torch.Tensor], gems: Callable[..., Any], **facts: Any
) -> None:
    def make() -> Case:
        x = normal(LINE)
        return Case(
            op=op,
            tensors=(x,),
            peers={"torch": lambda: torch_way(x), **gems(x)},
            compared="torch",
            copy=0.96,
            **facts,
        )

    CASES[label] = make


_elementwise("gelu fp16 2^27", "gelu", F.gelu, lambda x: peers.flag_gems("gelu", x))
_elementwise("silu fp16 2^27", "silu", F.silu, lambda x: peers.flag_gems("silu", x))
_elementwise(
    "astype fp16 to fp32 2^27",
    "astype",
    lambda x: x.to(F32),
    lambda x: peers.flag_gems("to_copy", x, dtype=F32),
    attributes={"dtype": "float32"},
)


@case("add fp16 2^27")
def _add() -> Case:
    a, b = normal(LINE), normal(LINE)
    return Case(
        op="add",
        tensors=(a, b),
        peers={"torch": lambda: torch.add(a, b), **peers.flag_gems("add", a, b)},
        compared="torch",
        copy=0.96,
    )


@case("pow 2 fp16 2^27")
def _square() -> Case:
    x = normal(LINE)
    return Case(
        op="pow",
        tensors=(x, 2),
        peers={"torch": lambda: torch.pow(x, 2), **peers.flag_gems("pow_tensor_scalar", x, 2)},
        compared="torch",
        copy=0.96,
    )


@case("pow 1.7 fp16 2^27")
def _power() -> Case:
    x = normal(LINE).abs()
    return Case(op="pow", tensors=(x, 1.7), peers={"torch": lambda: torch.pow(x, 1.7)}, compared="torch", best=3.0)


def _reductions() -> Iterator[tuple[str, Maker]]:
    shapes = {"global 2^27": ((LINE,), None), "rows 16384 x 8192": ((16384, 8192), 1)}
    shapes |= {"columns 16384 x 8192": ((16384, 8192), 0), "128 x 131072": ((128, 131072), 1)}
    for op in ("sum", "prod"):
        for label, (shape, axis) in shapes.items():
            for dtype, name in ((F32, "fp32"), (F16, "fp16")):
                yield f"{op} {name} {label}", _reduction(op, shape, axis, dtype, copy=0.8 if shape[0] == 128 else 0.92)


def _reduction(op: str, shape: tuple[int, ...], axis: int | None, dtype: torch.dtype, copy: float) -> Maker:
    def make() -> Case:
        # Products of many normal numbers vanish; numbers next to 1 keep to the range.
        x = normal(*shape, dtype=dtype) if op == "sum" else (1 + normal(*shape, dtype=F32, scale=1e-3)).to(dtype)
        function = getattr(torch, op)
        return Case(
            op=op,
            tensors=(x,),
            attributes={"axis": axis},
            peers={
                "torch": (lambda: function(x)) if axis is None else (lambda: function(x, dim=axis)),
                **_flag_gems_reduction(op, x, axis),
            },
            compared="torch" if dtype is F32 else None,
            copy=copy,
            best=0.98 if copy > 0.8 else None,
        )

    return make


def _flag_gems_reduction(op: str, x: torch.Tensor, axis: int | None) -> Mapping[str, Way]:
    if axis is None:
        return peers.flag_gems(op, x)
    return peers.flag_gems(f"{op}_dim", x, [axis] if op == "sum" else axis)


CASES.update(_reductions())

_ROWS = {"16384 x 8192": (16384, 8192), "2^20 x 64": (1 << 20, 64), "128 x 131072": (128, 131072)}


def _rows(op: str, shape: tuple[int, int]) -> Maker:
    def make() -> Case:
        x = normal(*shape)
        w, b = normal(shape[1]), normal(shape[1])
        found: Mapping[str, Way]
        if op == "softmax":
            tensors: tuple[Any, ...] = (x,)
            found = {"torch": lambda: torch.softmax(x, -1), **peers.flag_gems("softmax", x, -1)}
        elif op == "rms_norm":
            tensors = (x, w)
            found = {
                "torch": lambda: F.rms_norm(x, x.shape[-1:], w, 1e-6),
                **peers.liger_rms_norm(x, w, 1e-6),
                **peers.flag_gems("rms_norm", x, x.shape[-1:], w, 1e-6),
            }
        else:
            tensors = (x, w, b)
            found = {
                "torch": lambda: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
                **peers.liger_layer_norm(x, w, b, 1e-5),
                **peers.flag_gems("layer_norm", x, x.shape[-1:], w, b, 1e-5),
            }
        long = shape[0] == 128
        return Case(
            op=op,
            tensors=tensors,
            peers=found,
            compared="torch",
            copy=0.8 if long else 0.92,
            best=None if long else 0.98,
        )

    return make


for _op in ("softmax", "rms_norm", "layer_norm"):
    for _label, _shape in _ROWS.items():
        CASES[f"{_op} fp16 {_label}"] = _rows(_op, _shape)


def _pixels(op: str) -> Maker:
    def make() -> Case:
        x = normal(8, 256, 256, 256)
        function = getattr(F, op)
        return Case(
            op=op,
            tensors=(x,),
            attributes={"r": 2},
            peers={"torch": lambda: function(x, 2)},
            compared="torch",
            copy=0.85,
        )

    return make


for _op in ("pixel_shuffle", "pixel_unshuffle"):
    CASES[f"{_op} fp16 8x256x256x256 r 2"] = _pixels(_op)


def _depthwise(shape: tuple[int, ...], kernel: tuple[int, int], dtype: torch.dtype) -> Maker:
    def make() -> Case:
        x, w = normal(*shape, dtype=dtype), normal(shape[1], 1, *kernel, dtype=dtype, scale=0.3)
        padding = (kernel[0] // 2, kernel[1] // 2)
        return Case(
            op="depthwise_conv2d",
            tensors=(x, w),
            attributes={"padding": padding},
            peers={"torch": lambda: F.conv2d(x, w, padding=padding, groups=shape[1])},
            compared="torch",
            copy=0.6,
        )

    return make


CASES["depthwise 3x3 fp32 2x11200x24x40"] = _depthwise((2, 11200, 24, 40), (3, 3), F32)
CASES["depthwise 3x3 fp32 22x13440x21x42"] = _depthwise((22, 13440, 21, 42), (3, 3), F32)
CASES["depthwise 3x3 fp16 8x2048x96x96"] = _depthwise((8, 2048, 96, 96), (3, 3), F16)
CASES["depthwise 1x7 fp16 8x2048x1x8192"] = _depthwise((8, 2048, 1, 8192), (1, 7), F16)


@case("conv2d 3x3 fp16 8x128x256x256 to 256")
def _convolution() -> Case:
    x, w = normal(8, 128, 256, 256), normal(256, 128, 3, 3, scale=0.03)
    return Case(
        op="conv2d",
        tensors=(x, w),
        attributes={"padding": 1},
        peers={"torch": lambda: F.conv2d(x, w, padding=1)},
        compared="torch",
        best=0.8,
    )


def _groups(shape: tuple[int, ...]) -> Maker:
    def make() -> Case:
        x, w, b = normal(*shape), normal(shape[1]), normal(shape[1])
        return Case(
            op="group_norm",
            tensors=(x, w, b),
            attributes={"groups": 32},
            peers={"torch": lambda: F.group_norm(x, 32, w, b)},
            compared="torch",
            copy=0.6,
        )

    return make


for _shape in ((2, 320, 128, 128), (2, 640, 64, 64), (2, 1280, 32, 32), (8, 320, 128, 128)):
    CASES[f"group_norm fp16 {'x'.join(map(str, _shape))}"] = _groups(_shape)


def _decode(batch: int, tokens: int, **facts: Any) -> Maker:
    def make() -> Case:
        q, k, v = normal(batch, 32, 128), normal(batch, 8, tokens, 128), normal(batch, 8, tokens, 128)
        ways = peers.attention(q[:, :, None], k, v, causal=False)
        if batch == 1:
            ways |= peers.flashinfer_decode(q[0], k[0], v[0])
        return Case(op="decode_attention", tensors=(q, k, v), peers=ways, **facts)

    return make


CASES["decode 32/8 D128 T8192 batch 8"] = _decode(8, 8192, copy=0.9, best=1.0)
CASES["decode 32/8 D128 T8192 batch 1"] = _decode(1, 8192, seconds=17e-6)


def _paged(batch: int, tokens: int, **facts: Any) -> Maker:
    def make() -> Case:
        page_tokens, pages = 64, batch * tokens // 64
        q = normal(batch, 32, 128)
        k_pool, v_pool = normal(pages, 8, page_tokens, 128), normal(pages, 8, page_tokens, 128)
        table = torch.randperm(pages, device="cuda").to(I32).reshape(batch, -1)
        lens = torch.full((batch,), tokens, dtype=I32, device="cuda")
        return Case(
            op="paged_decode_attention",
            tensors=(q, k_pool, v_pool, table, lens),
            attributes={"longest": tokens},
            peers=peers.flashinfer_paged(q, k_pool, v_pool, table, lens),
            nbytes=sum(tensor.nbytes for tensor in (q, q, k_pool, v_pool, table, lens)),
            **facts,
        )

    return make


CASES["paged decode 32/8 D128 T8192 batch 8"] = _paged(8, 8192, copy=0.9, best=1.0)
CASES["paged decode 32/8 D128 T8192 batch 1"] = _paged(1, 8192, seconds=17e-6)


def _gemv(kernel: str | None, seconds: float) -> Maker:
    def make() -> Case:
        k, n = 8192, 28672
        packed = torch.randint(-(2**31), 2**31, (k // 8, n), dtype=torch.int64, device="cuda").to(I32)
        scale, low = normal(k // 128, n, scale=1e-3).abs(), normal(k // 128, n, scale=1e-2)
        x = normal(k)
        return Case(
            op="dequant_gemv_int4",
            tensors=(x, packed, scale, low),
            peers=peers.gemlite_gemv(x, normal(n, k, scale=0.02)),
            kernel=kernel,
            seconds=seconds,
        )

    return make


CASES["gemv int4 K8192 N28672, the fastest"] = _gemv(None, 42e-6)
CASES["gemv int4 K8192 N28672, byte for byte"] = _gemv("nbx-triton/dequant_gemv_int4/ordered", 70e-6)


def _product(first: tuple[int, ...], second: tuple[int, ...], best: float) -> Maker:
    def make() -> Case:
        a, b = normal(*first), normal(*second, scale=second[-2] ** -0.5)
        return Case(
            op="matmul", tensors=(a, b), peers={"torch": lambda: torch.matmul(a, b)}, compared="torch", best=best
        )

    return make


CASES["matmul fp16 4096 cubed"] = _product((4096, 4096), (4096, 4096), 0.92)
CASES["matmul fp16 8192 cubed"] = _product((8192, 8192), (8192, 8192), 0.92)
CASES["matmul fp16 80 x 4096 x 4096"] = _product((80, 4096), (4096, 4096), 1.0)
CASES["matmul fp16 64 x 512 cubed"] = _product((64, 512, 512), (64, 512, 512), 1.0)


@case("attention causal fp16 B4 T4096 32/8 D128")
def _prefill() -> Case:
    q, k, v = normal(4, 32, 4096, 128), normal(4, 8, 4096, 128), normal(4, 8, 4096, 128)
    return Case(
        op="scaled_dot_product_attention",
        tensors=(q, k, v),
        attributes={"causal": True},
        peers=peers.attention(q, k, v, causal=True),
        compared="torch flash",
        best=1.0,
    )


@case("topk 64 fp16 16384 x 8192")
def _topk() -> Case:
    x = normal(16384, 8192)
    ways = {"torch": lambda: torch.topk(x, 64), **peers.flag_gems("topk", x, 64)}
    return Case(op="topk", tensors=(x,), attributes={"k": 64}, peers=ways, best=2.0)


@case("embedding fp16 65536 of 128256 x 4096")
def _embedding() -> Case:
    w, index = normal(128256, 4096), torch.randperm(128256, device="cuda")[:65536]
    return Case(
        op="embedding",
        tensors=(w, index),
        peers={"torch": lambda: F.embedding(index, w), **peers.flag_gems("embedding", w, index)},
        compared="torch",
        nbytes=2 * len(index) * w[0].nbytes + index.nbytes,
        copy=0.92,
    )


@case("rfft fp32 4096 x 1024")
def _rfft() -> Case:
    x = normal(4096, 1024, dtype=F32)
    return Case(op="rfft", tensors=(x,), peers={"torch": lambda: torch.fft.rfft(x)}, compared="torch", best=0.8)


@case("irfft fp32 4096 x 1024")
def _irfft() -> Case:
    x = torch.fft.rfft(normal(4096, 1024, dtype=F32))
    return Case(
        op="irfft",
        tensors=(x,),
        attributes={"n": 1024},
        peers={"torch": lambda: torch.fft.irfft(x, 1024)},
        compared="torch",
        best=0.8,
    )
