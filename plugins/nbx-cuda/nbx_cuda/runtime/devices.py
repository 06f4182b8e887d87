"""The devices the driver shows, and what it says about each."""

from __future__ import annotations

import importlib.metadata

from nbx_cuda.runtime.driver import bindings, call, device_count
from nbx_registry.runtime import LiveDevice

_FACTS = {
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "l2.bytes": "L2_CACHE_SIZE",
    "warp.width": "WARP_SIZE",
    "threads.per_block": "MAX_THREADS_PER_BLOCK",
    "threads.per_multiprocessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "blocks.per_multiprocessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "registers.per_block": "MAX_REGISTERS_PER_BLOCK",
    "registers.per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared.bytes_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared.bytes_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared.bytes_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "grid.x": "MAX_GRID_DIM_X",
    "grid.y": "MAX_GRID_DIM_Y",
    "grid.z": "MAX_GRID_DIM_Z",
}
"""Facts of device files, by the driver's attribute."""


def live_devices() -> list[LiveDevice]:
    """Return every device the driver shows, in its order. Raises `CudaError` without a driver."""
    versions = _versions()
    return [_live_device(index, versions) for index in range(device_count())]


def _live_device(index: int, versions: dict[str, str]) -> LiveDevice:
    doing = f"asking about cuda:{index}"
    device = call(doing, "cuDeviceGet", index)
    detected: dict[str, object] = {"memory.bytes": int(call(doing, "cuDeviceTotalMem", device))}
    for fact, name in _FACTS.items():
        detected[fact] = _attribute(doing, name, device)
    name = call(doing, "cuDeviceGetName", 256, device).split(b"\0")[0].decode()
    major = _attribute(doing, "COMPUTE_CAPABILITY_MAJOR", device)
    minor = _attribute(doing, "COMPUTE_CAPABILITY_MINOR", device)
    return LiveDevice(
        runtime="cuda",
        index=index,
        name=name,
        arch=f"sm_{major}{minor}",
        detected=detected,
        versions=versions,
    )


def _attribute(doing: str, name: str, device: object) -> int:
    attribute = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call(doing, "cuDeviceGetAttribute", attribute, device))


def _versions() -> dict[str, str]:
    version = int(call("asking for the driver's version", "cuDriverGetVersion"))
    return {
        "driver": f"{version // 1000}.{version % 1000 // 10}",
        "cuda-core": importlib.metadata.version("cuda-core"),
        "cuda-bindings": importlib.metadata.version("cuda-bindings"),
    }
