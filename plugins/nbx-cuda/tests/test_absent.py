"""What the runtime says where there is no driver, no device, or no cuda-core."""

import ctypes
import subprocess
import sys
import textwrap

import pytest

from nbx_cuda.runtime import CudaRuntime, driver
from nbx_registry.errors import CaptureError, NbxError
from nbx_registry.streams import recorded


def forget() -> None:
    for cached in (driver.library, driver.device_count, driver._missing_toolkit):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def fresh():
    forget()
    yield
    forget()


class Library:
    """A driver library that starts with ``result`` and shows ``count`` devices."""

    def __init__(self, result: int, count: int = 0) -> None:
        self.result = result
        self.count = count

    def cuInit(self, flags: int) -> int:
        return self.result

    def cuDeviceGetCount(self, count: object) -> int:
        count._obj.value = self.count
        return 0

    def cuGetErrorName(self, code: int, name: object) -> int:
        name._obj.value = b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        return 0

    def cuGetErrorString(self, code: int, text: object) -> int:
        text._obj.value = b"system has unsupported display driver / cuda driver combination"
        return 0


def no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")


def test_a_missing_driver_is_named_with_its_file(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    runtime = CudaRuntime()
    assert runtime.devices() == ()
    assert "no NVIDIA driver" in runtime.why_absent()
    assert driver.LIBRARY in runtime.why_absent()
    assert "install the NVIDIA driver" in runtime.why_absent()


@pytest.mark.parametrize("library", [Library(100), Library(0, 0)], ids=["cuInit-says-so", "count-is-zero"])
def test_a_driver_without_a_device_points_at_visibility(monkeypatch, library):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    runtime = CudaRuntime()
    assert runtime.devices() == ()
    assert "no device" in runtime.why_absent()
    assert "CUDA_VISIBLE_DEVICES" in runtime.why_absent()


def test_a_driver_that_does_not_start_is_quoted(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(803))
    why = CudaRuntime().why_absent()
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)" in why
    assert "unsupported display driver" in why


@pytest.mark.parametrize(("module", "distribution"), [("cuda.core", "cuda-core"), ("cuda.bindings", "cuda-bindings")])
def test_a_missing_toolkit_is_named_with_the_command(monkeypatch, module, distribution):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(0, 1))
    find = driver.importlib.util.find_spec
    monkeypatch.setattr(driver.importlib.util, "find_spec", lambda name: None if name == module else find(name))
    why = CudaRuntime().why_absent()
    assert why.startswith(f"{distribution} is not installed")
    assert "pip install 'nbx-registry[cuda]'" in why


def test_using_an_absent_device_says_why(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    with pytest.raises(NbxError, match="there is no cuda:0: no NVIDIA driver"):
        CudaRuntime().allocate(0, 16)


@pytest.mark.parametrize("method", ["synchronize", "trim"])
def test_what_waits_is_refused_while_calls_are_recorded(method):
    with recorded(True), pytest.raises(CaptureError, match="cuda:0 is waited for") as refused:
        getattr(CudaRuntime(), method)(0)
    assert refused.value.code == "HOST_READ"


def test_registering_and_asking_for_devices_imports_no_toolkit():
    script = """
        import sys
        import nbx_cuda.plugin
        assert nbx_cuda.plugin.nbx_register_runtimes()[0].factory == "nbx_cuda.runtime:create"
        assert "nbx_cuda.runtime" not in sys.modules
        from nbx_cuda.runtime import create
        create()
        assert not [name for name in sys.modules if name.split(".")[0] in ("cuda", "torch", "triton")]
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(script)], check=True)
