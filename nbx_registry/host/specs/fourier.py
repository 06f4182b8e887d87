"""The host's Fourier kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

KERNELS = (
    numpy_kernel("rfft_basis", "fourier", "One turn of the circle in float64, looked up at k j mod n."),
    numpy_kernel("irfft_basis", "fourier", "One turn of the circle in float64, weighted, looked up at k j mod n."),
    numpy_kernel("rfft", "fourier", "numpy.fft.rfft, in float32.", batch_invariant=True),
    numpy_kernel("irfft", "fourier", "numpy.fft.irfft, in float32.", batch_invariant=True),
)
