"""Fourier transforms: tables looked up in one turn of the circle; rfft and irfft are NumPy's own, in float32."""

from __future__ import annotations

import numpy as np

from nbx_registry.contracts.fourier import circle, weights
from nbx_registry.host.kernels.blocks import BLOCK, Array
from nbx_registry.launch import BindContext, Launch


def rfft_basis(context: BindContext) -> Launch:
    """Bind the tables of cosines and negative sines."""
    n = context.signature.attributes["n"]

    def run(c: Array, s: Array) -> None:
        cosines, sines = circle(n)
        _look_up(n, cosines.astype(np.float32), (0.0 - sines).astype(np.float32), c, s)

    return Launch(function=run, args=("C", "S"))


def irfft_basis(context: BindContext) -> Launch:
    """Bind the tables of the inverse, with their weights, rounded once."""
    n = context.signature.attributes["n"]

    def run(c: Array, s: Array) -> None:
        cosines, sines = circle(n)
        scale = 2 / n
        _look_up(n, (scale * cosines).astype(np.float32), (0.0 - scale * sines).astype(np.float32), c, s)
        for k in np.flatnonzero(weights(n) == 1):
            # Halves are exact.
            np.multiply(c[k], np.float32(0.5), c[k])
            s[k] = 0

    return Launch(function=run, args=("C", "S"))


def _look_up(n: int, cosines: Array, sines: Array, c: Array, s: Array) -> None:
    """Write what stands at k j mod n to c[k, j] and s[k, j], some rows at a time."""
    step = max(1, BLOCK // n)
    columns = np.arange(n, dtype=np.int64)
    for k in range(0, len(c), step):
        rows = np.arange(k, min(k + step, len(c)), dtype=np.int64)[:, None]
        place = np.remainder(rows * columns, n)
        np.copyto(c[k : k + step], cosines[place])
        np.copyto(s[k : k + step], sines[place])


def rfft(context: BindContext) -> Launch:
    """Bind numpy.fft.rfft."""

    def run(x: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            np.fft.rfft(x, out=out)

    return Launch(function=run, args=context.signature.names)


def irfft(context: BindContext) -> Launch:
    """Bind numpy.fft.irfft."""
    n = context.signature.attributes["n"]

    def run(x: Array, out: Array) -> None:
        if x.shape[-1] == 0:
            # NumPy 2.4 reads a first frequency that is not there.
            out[...] = 0
            return
        with np.errstate(all="ignore"):
            np.fft.irfft(x, n, out=out)

    return Launch(function=run, args=("x", "out"))
