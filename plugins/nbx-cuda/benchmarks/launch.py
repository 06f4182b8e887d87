"""Host time of one enqueue: the driver's launch call entered in several ways, a program's run, and torch beside it.

    python plugins/nbx-cuda/benchmarks/launch.py [--elements N] [--repeats N]

Prints the median over batches of 200 launches, each batch after a synchronisation so that the queue never fills.
``program.run`` minus ``nbx_cuda.runtime.launch`` is what packing operands costs, ``program.fixed`` minus it what a
Bound adds.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import statistics
import time
from collections.abc import Callable

from nbx_cuda.runtime import create
from nbx_cuda.runtime.driver import bindings, library
from nbx_cuda.runtime.launch import Prepared, launcher
from nbx_registry.launch import Artifact, Launch, Scalar
from nbx_registry.runtime import Slot
from nbx_registry.spec import parse

ADD = b"""\
.version 6.4
.target sm_70
.address_size 64
.visible .entry add(.param .u64 x1, .param .u64 x2, .param .u64 out, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %block, %width, %thread, %i, %n;
    .reg .b64 %a, %b, %to, %offset;
    .reg .f32 %u, %v;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    ld.param.u32 %n, [count];
    setp.ge.u32 %outside, %i, %n;
    @%outside bra done;
    mul.wide.u32 %offset, %i, 4;
    ld.param.u64 %a, [x1];
    ld.param.u64 %b, [x2];
    ld.param.u64 %to, [out];
    add.u64 %a, %a, %offset;
    add.u64 %b, %b, %offset;
    add.u64 %to, %to, %offset;
    ld.global.f32 %u, [%a];
    ld.global.f32 %v, [%b];
    add.f32 %u, %u, %v;
    st.global.f32 [%to], %u;
done:
    ret;
}
"""


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--elements", type=int, default=1 << 20)
    arguments.add_argument("--repeats", type=int, default=50)
    given = arguments.parse_args()

    cuda = create()
    if not cuda.devices():
        raise SystemExit(cuda.why_absent())
    live = cuda.devices()[0]
    print(f"{live.name}, {live.arch}, {dict(live.versions)}, {given.elements} float32 elements")

    count = given.elements
    function = cuda.load(0, Artifact(image=ADD, kind="ptx", entry="add", arch="sm_70", toolkit="ptx 6.4"))
    grid, block = (-(-count // 256), 1, 1), (256, 1, 1)
    buffers = [cuda.allocate(0, 4 * count) for _ in range(3)]
    addresses = tuple(buffer.address for buffer in buffers)
    queue = cuda.stream(0)
    stream = queue.handle
    spec = parse(f"float32[{count}]")
    launch = Launch(
        function=function, args=("x1", "x2", "out", Scalar(count, "uint32")), grid=grid, block=block, shared_bytes=0
    )
    slots = [Slot("x1", spec, "input"), Slot("x2", spec, "input"), Slot("out", spec, "output")]
    program = cuda.program(0, [launch], slots)
    run, fixed = program.run, program.fixed(addresses)

    cells = (ctypes.c_uint64 * 4)(*addresses, count)
    base = ctypes.addressof(cells)
    pointers = (ctypes.c_void_p * 4)(*(base + 8 * i for i in range(4)))
    prepared = Prepared(function.handle, grid, block, 0, tuple(base + 8 * i for i in range(4)))
    prepared.on(stream)
    ours, ours_arguments = launcher(), prepared.arguments
    plain = library().cuLaunchKernel
    plain_arguments = (
        ctypes.c_void_p(function.handle), *grid, *block, 0, ctypes.c_void_p(stream), pointers, None,
    )  # fmt: skip
    driver = bindings()
    bound_arguments = (
        driver.CUfunction(function.handle), *grid, *block, 0, driver.CUstream(stream), ctypes.addressof(pointers), 0,
    )  # fmt: skip
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.hStream = driver.CUstream(stream)
    extended_arguments = (config, driver.CUfunction(function.handle), ctypes.addressof(pointers), 0)

    rows: list[tuple[str, Callable[[], object]]] = [
        ("nbx_cuda.runtime.launch (ctypes cuLaunchKernelEx)", lambda: ours(*ours_arguments)),
        ("ctypes cuLaunchKernel", lambda: plain(*plain_arguments)),
        ("cuda-bindings cuLaunchKernel", lambda: driver.cuLaunchKernel(*bound_arguments)),
        ("cuda-bindings cuLaunchKernelEx", lambda: driver.cuLaunchKernelEx(*extended_arguments)),
        ("program.run", lambda: run(addresses, stream)),
        ("program.fixed", lambda: fixed(stream)),
    ]
    if importlib.util.find_spec("torch") is not None:
        rows += torch_rows(count)
    for name, enqueue in rows:
        print(f"{name:52s} {measure(enqueue, queue.synchronize, given.repeats):7.2f} us")


def torch_rows(count: int) -> list[tuple[str, Callable[[], object]]]:
    """Return what torch offers for the same work, where it has a device."""
    import torch

    if not torch.cuda.is_available():
        return []
    a, b, out = (torch.randn(count, device="cuda:0") for _ in range(3))
    return [("torch.add(out=)", lambda: torch.add(a, b, out=out)), ("torch x + y", lambda: a + b)]


def measure(enqueue: Callable[[], object], wait: Callable[[], object], repeats: int, batch: int = 200) -> float:
    """Return the median host time of one enqueue, in microseconds."""
    for _ in range(batch):
        enqueue()
    times: list[float] = []
    for _ in range(repeats):
        wait()
        started = time.perf_counter()
        for _ in range(batch):
            enqueue()
        times.append((time.perf_counter() - started) / batch)
    wait()
    return statistics.median(times) * 1e6


if __name__ == "__main__":
    main()
