"""Errors of the driver and of cuda-core, as errors of ours."""

from __future__ import annotations

from nbx_registry.errors import NbxError


class CudaError(NbxError):
    """The CUDA driver, or cuda-core, refused something. ``result`` is the driver's code, None where it is unknown."""

    code = "CUDA"

    def __init__(self, message: str, *, result: int | None = None) -> None:
        super().__init__(message)
        self.result = result
