"""Fixtures: the runtime on a real device, and kernels written as PTX, so that no compiler is needed."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nbx_cuda.runtime import CudaRuntime, create
from nbx_cuda.runtime.driver import LIBRARY
from nbx_registry.launch import Artifact
from nbx_registry.runtime import Buffer

PTX = b"""\
.version 6.4
.target sm_70
.address_size 64

// y[i] = x[i] + value for i < count
.visible .entry add_value(.param .u64 x, .param .u64 y, .param .f32 value, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %block, %width, %thread, %i, %n;
    .reg .b64 %from, %to, %offset;
    .reg .f32 %v, %sum;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    ld.param.u32 %n, [count];
    setp.ge.u32 %outside, %i, %n;
    @%outside bra done;
    ld.param.u64 %from, [x];
    ld.param.u64 %to, [y];
    ld.param.f32 %v, [value];
    mul.wide.u32 %offset, %i, 4;
    add.u64 %from, %from, %offset;
    add.u64 %to, %to, %offset;
    ld.global.f32 %sum, [%from];
    add.f32 %sum, %sum, %v;
    st.global.f32 [%to], %sum;
done:
    ret;
}

// Every parameter after the first goes to out, as the device sees it, 8 bytes each.
.visible .entry dump(.param .u64 out, .param .u64 address, .param .u32 word, .param .u16 half, .param .u8 byte,
                     .param .f64 real)
{
    .reg .b64 %to, %a, %r;
    .reg .b32 %w;
    .reg .b16 %h, %b;
    ld.param.u64 %to, [out];
    ld.param.u64 %a, [address];
    st.global.u64 [%to], %a;
    ld.param.u32 %w, [word];
    cvt.u64.u32 %a, %w;
    st.global.u64 [%to+8], %a;
    ld.param.u16 %h, [half];
    cvt.u64.u16 %a, %h;
    st.global.u64 [%to+16], %a;
    ld.param.u8 %b, [byte];
    cvt.u64.u16 %a, %b;
    st.global.u64 [%to+24], %a;
    ld.param.b64 %r, [real];
    st.global.b64 [%to+32], %r;
    ret;
}

.extern .shared .align 16 .b8 scratch[];

// out[0] = value, by way of the last four of `bytes` bytes of dynamic shared memory
.visible .entry far_shared(.param .u64 out, .param .u32 bytes, .param .u32 value)
{
    .reg .b32 %at, %n, %v;
    .reg .b64 %to;
    ld.param.u32 %n, [bytes];
    ld.param.u32 %v, [value];
    mov.u32 %at, scratch;
    add.u32 %at, %at, %n;
    st.shared.u32 [%at+-4], %v;
    ld.shared.u32 %v, [%at+-4];
    ld.param.u64 %to, [out];
    st.global.u32 [%to], %v;
    ret;
}
"""


def ptx(entry: str, parameters: int, shared_bytes: int = 0) -> Artifact:
    return Artifact(
        image=PTX,
        kind="ptx",
        entry=entry,
        arch="sm_70",
        toolkit="ptx 6.4",
        parameters=parameters,
        shared_bytes=shared_bytes,
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """On a machine with cards, to fail where tests would skip for want of one."""
    parser.addoption("--cards", type=int, default=0, help="NVIDIA cards that must be here, else tests fail")


@pytest.fixture(scope="session")
def cuda(pytestconfig: pytest.Config) -> CudaRuntime:
    wanted = pytestconfig.getoption("--cards", default=0)
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        if wanted:
            raise
        pytest.skip("no NVIDIA driver on this machine")
    runtime = create()
    assert len(runtime.devices()) >= max(wanted, 1), runtime.why_absent() or runtime.devices()
    return runtime


def _neighbour(name: str, config: pytest.Config) -> Any:
    """Return another library of the card; where cards must be, so must it."""
    return importlib.import_module(name) if config.getoption("--cards", default=0) else pytest.importorskip(name)


@pytest.fixture
def torch(cuda: CudaRuntime, pytestconfig: pytest.Config) -> Any:
    del cuda
    found = _neighbour("torch", pytestconfig)
    if not found.cuda.is_available():
        assert not pytestconfig.getoption("--cards", default=0), "this torch sees no card"
        pytest.skip("this torch sees no card")
    return found


@pytest.fixture
def cupy(cuda: CudaRuntime, pytestconfig: pytest.Config) -> Any:
    del cuda
    return _neighbour("cupy", pytestconfig)


@pytest.fixture
def second_device(cuda: CudaRuntime) -> int:
    if len(cuda.devices()) < 2:
        pytest.skip("one device on this machine")
    return 1


class Placed:
    """A host array on the device, and back."""

    def __init__(self, runtime: CudaRuntime, device: int = 0) -> None:
        self.runtime = runtime
        self.device = device

    def put(self, array: np.ndarray) -> Buffer:
        buffer = self.runtime.allocate(self.device, array.nbytes)
        self.runtime.copy_in(self.device, buffer.address, array)
        return buffer

    def empty(self, nbytes: int) -> Buffer:
        buffer = self.runtime.allocate(self.device, nbytes)
        # So that any stream may use it from here on.
        self.runtime.default_stream(self.device).synchronize()
        return buffer

    def get(self, buffer: Buffer, dtype: object, stream: object = None) -> np.ndarray:
        array = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
        self.runtime.copy_out(self.device, array, buffer.address, stream)
        return array


@pytest.fixture
def placed(cuda: CudaRuntime) -> Iterator[Placed]:
    yield Placed(cuda)
    cuda.synchronize(0)


@pytest.fixture
def kernels() -> object:
    """Give `ptx`, the artifacts of the kernels above, by entry and parameter count."""
    return ptx
