"""Specs of kernels that normalise: rms_norm, group_norm, softmax and layer_norm of dense rows."""

from __future__ import annotations

from nbx_registry.kernel import Workspace
from nbx_triton.specs.common import FLOATS, HALVES, kernel

_MOMENTS = ("counts", "means", "m2s")

_RMS_KEY = ("x.dtype", "x.shape", "x.strides", "weight.given", "weight.strides", "out.strides")
_GROUP_KEY = (
    "x.dtype",
    "x.shape",
    "x.strides",
    "weight.given",
    "weight.strides",
    "bias.given",
    "bias.strides",
    "groups",
    "out.strides",
)

_LAYER_NORM_ROWS = (f"x.dtype in {HALVES}", "x.contiguous", "out.contiguous")
_LAYER_NORM_KEY = (
    "x.dtype",
    "x.shape",
    "x.strides",
    "weight.given",
    "weight.strides",
    "bias.given",
    "bias.strides",
    "out.strides",
)
_SOFTMAX_KEY = ("x.dtype", "x.shape", "x.strides", "axis", "out.strides")
_SOFTMAX_ROWS = (
    f"x.dtype in {HALVES}",
    "axis == -1 or axis == x.rank - 1",
    "x.strides[-1] == 1 or L == 1 or x.size == 0",
)


def _found(names: tuple[str, ...], rows: str, pieces: str) -> tuple[Workspace, ...]:
    """Return memory for what a first launch finds of each piece of each row, which a second launch merges."""
    return tuple(Workspace(name=name, dtype="float32", shape=(rows, pieces), lifetime=(0, 1)) for name in names)


KERNELS = (
    kernel(
        "softmax@1",
        "rows",
        "softmax:bind",
        when=(f"x.dtype in {FLOATS}",),
        key=_SOFTMAX_KEY,
        batch_invariant=True,
        overlap="same",
        doc="One program normalises up to 4096 elements of whole rows, or one row: read once up to 16384 elements.",
    ),
    kernel(
        "softmax@1",
        "split",
        "softmax:bind_split",
        # Few rows, each long enough for several programs.
        when=(*_SOFTMAX_ROWS, "x.size <= 96 * L", "L >= 20000"),
        key=_SOFTMAX_KEY,
        workspace=_found(("peaks", "sums"), "x.size // max(L, 1)", "min(cdiv(L, 8192), 1024)"),
        batch_invariant=True,
        overlap="same",
        preference=1,
        doc="Up to 1024 programs a row write largest and sum, which each of a second launch merges before it scales.",
    ),
    kernel(
        "rms_norm@1",
        "rows",
        "rms_norm:bind",
        when=(f"x.dtype in {FLOATS}",),
        key=_RMS_KEY,
        batch_invariant=True,
        overlap="same",
        doc="One program normalises up to 4096 elements of whole rows, or one row: read once up to 16384 elements.",
    ),
    kernel(
        "rms_norm@1",
        "split",
        "rms_norm:bind_split",
        # Few rows, each long enough for several programs.
        when=(f"x.dtype in {HALVES}", "prod(B) <= 96", "D >= 20000"),
        key=_RMS_KEY,
        workspace=_found(("partial",), "prod(B)", "min(cdiv(D, 8192), 1024)"),
        batch_invariant=True,
        overlap="same",
        preference=1,
        doc="Up to 1024 programs a row write sums of squares, which each of a second launch adds before it scales.",
    ),
    kernel(
        "layer_norm@1",
        "rows",
        "layer_norm:bind",
        when=(f"x.dtype in {FLOATS}",),
        key=_LAYER_NORM_KEY,
        batch_invariant=True,
        overlap="same",
        doc="One program normalises up to 4096 elements of whole rows, or one row: read once up to 16384 elements.",
    ),
    kernel(
        "layer_norm@1",
        "split",
        "layer_norm:bind_split",
        # Few rows, each long enough for several programs.
        when=(*_LAYER_NORM_ROWS, "x.size <= 96 * x.shape[-1]", "x.shape[-1] >= 20000"),
        key=_LAYER_NORM_KEY,
        workspace=_found(_MOMENTS, "x.size // max(x.shape[-1], 1)", "256"),
        batch_invariant=True,
        overlap="same",
        preference=1,
        doc="Up to 256 programs a row write mean and M2; those of a second launch merge them and normalise.",
    ),
    kernel(
        "group_norm@1",
        "groups",
        "group_norm:bind",
        when=(f"x.dtype in {FLOATS}",),
        key=_GROUP_KEY,
        batch_invariant=True,
        overlap="same",
        doc="One program normalises one group: read once up to 8192 elements, else twice; merged variances.",
    ),
    kernel(
        "group_norm@1",
        "split",
        "group_norm:bind_split",
        # Few groups, each long enough for several programs.
        when=(f"x.dtype in {HALVES}", "N * groups <= 264", "M >= 32768"),
        key=_GROUP_KEY,
        workspace=_found(_MOMENTS, "N * groups", "256"),
        batch_invariant=True,
        overlap="same",
        preference=1,
        doc="Up to 256 programs a group write mean and M2; those of a second launch merge them and normalise.",
    ),
)
