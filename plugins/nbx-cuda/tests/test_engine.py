"""What an engine does on a card: records, prepares, brings the memory, looks for a faulty kernel. Kernels are PTX."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry import BindContext, Kernel, Launch, Scalar, ScalarOf, Workspace, hookimpl
from nbx_registry.launch import Artifact
from nbx_registry.memory.slab import UNIT
from nbx_registry.registry import set_default

SIZE = 1000


def kernel(name: str, artifact: Artifact, error: float = 0.0) -> Kernel:
    """Return a kernel of a vector and a Python float: their sum, by way of workspace, plus ``error``."""

    def bind(context: BindContext) -> list[Launch]:
        function = context.load(artifact)
        size = context.signature.outputs[0].size
        common: dict[str, Any] = {"function": function, "grid": (-(-size // 128), 1, 1), "block": (128, 1, 1)}
        count = Scalar(size, "uint32")
        return [
            Launch(args=("x1", "scratch", ScalarOf("x2", "float32"), count), **common),
            Launch(args=("scratch", "out", Scalar(error, "float32"), count), **common),
        ]

    return Kernel(
        id=f"ptx/add/{name}", op="add@1", backend="ptx", runtimes=("cuda",), bind=bind, key=("out.size", "x1.dtype"),
        when=("x2.weak", "x1.rank == 1", "x1.contiguous", "x1.dtype == float32"),
        workspace=(Workspace(name="scratch", dtype="float32", shape=("out.size",)),),
    )  # fmt: skip


@pytest.fixture
def reg(cuda: Any, kernels: Any) -> Iterator[nbx.Registry]:
    del cuda
    artifact = kernels("add_value", 4)
    own = [kernel("right", artifact), kernel("wrong", artifact, 1.0)]
    plugin = SimpleNamespace(
        name="ptx",
        NBX_HOOKS=1,
        nbx_register_backends=hookimpl(lambda: [nbx.Backend(name="ptx")], specname="nbx_register_backends"),
        nbx_register_kernels=hookimpl(lambda: own, specname="nbx_register_kernels"),
    )
    made = nbx.load(plugins=[plugin], require="any")
    if made.target("cuda:0").device is None:
        pytest.skip("no device file describes this card")
    before = set_default(made)
    yield made
    set_default(before)


X = np.arange(SIZE, dtype=np.float32)


def test_a_slab_is_all_the_memory_there_is(reg: nbx.Registry) -> None:
    runtime = reg.runtime("cuda")
    with reg.record() as plan:
        x = nbx.asarray(X, device="cuda:0")
        for _ in range(3):
            x = reg.call("add", x, 1.5, kernel="ptx/add/right")
    price = reg.price(plan)
    # An output while the one before it lives, and the workspace between them.
    assert price.slab_bytes == 3 * -(-X.nbytes // UNIT) * UNIT
    slab = nbx.SlabAllocator(runtime.allocate(0, price.slab_bytes), "cuda:0")
    given = nbx.asarray(X, device="cuda:0")
    reg.prepare(plan, device="cuda:0")
    before = runtime.memory(0).allocations
    with nbx.allocating(slab):
        for _ in range(5):
            y = given
            for _ in range(3):
                y = reg.call("add", y, 1.5, kernel="ptx/add/right")
            np.testing.assert_array_equal(y.numpy(), X + 4.5)
            del y
    assert runtime.memory(0).allocations == before
    assert slab.extent == price.slab_bytes
    assert slab.live == 0


def test_the_census_needs_no_card_and_says_what_one_forms(reg: nbx.Registry) -> None:
    with reg.record() as plan:
        reg.call("add", nbx.asarray(X, device="cuda:0"), 1.5, kernel="ptx/add/right")
    product = reg.target("cuda:0").device
    assert product is not None
    (key,) = reg.keys(plan, device=product.id)
    assert (key.kernel, key.arch, key.key) == ("ptx/add/right", product.arch, (("out.size", SIZE), ("x1.dtype", "f32")))


def test_the_faulty_kernel_is_found_on_the_card(reg: nbx.Registry) -> None:
    def run() -> np.ndarray:
        x = nbx.asarray(X, device="cuda:0")
        for name in ("right", "right", "wrong", "right", "wrong"):
            x = reg.call("add", x, 0.5, kernel=f"ptx/add/{name}")
        return x.numpy()

    found = reg.bisect(run, np.array_equal)
    assert (found.outcome, found.kernel, found.call) == ("found", "ptx/add/wrong", 2)


def test_the_current_stream_of_cupy_is_followed(reg: nbx.Registry, cuda: Any, cupy: Any) -> None:
    x = cupy.asarray(X)
    for seed in (1, 2):
        stream = cupy.cuda.Stream(non_blocking=True)
        for numbers, delay_s in rehearsed(seed):
            new = cupy.asarray(numbers)
            cupy.cuda.runtime.deviceSynchronize()
            with stream:
                # A call on any other stream would be done before the new numbers are there.
                cuda.delay(0, stream.ptr, delay_s)
                x[...] = new
                y = reg.call("add", x, 1.0, kernel="ptx/add/right")
                z = y + 1
                assert isinstance(y, cupy.ndarray)
                assert not (delay_s and stream.done)
            stream.synchronize()
            np.testing.assert_array_equal(cupy.asnumpy(z), numbers + 1 + 1)
            del y, z


def test_the_current_stream_of_torch_is_followed(reg: nbx.Registry, cuda: Any, torch: Any) -> None:
    x = torch.from_numpy(X).cuda()
    for seed in (1, 2):
        stream = torch.cuda.Stream()
        for numbers, delay_s in rehearsed(seed):
            new = torch.from_numpy(numbers).cuda()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                cuda.delay(0, stream.cuda_stream, delay_s)
                x.copy_(new)
                y = reg.call("add", x, 1.0, kernel="ptx/add/right")
                z = y + 1
                assert not (delay_s and stream.query())
            stream.synchronize()
            np.testing.assert_array_equal(z.cpu().numpy(), numbers + 1 + 1)
            del y, z


def rehearsed(seed: int) -> Iterator[tuple[Any, float]]:
    """Yield new numbers, twice, and by how many seconds the stream is to be kept from them.

    First by none: what compiles, loads or allocates does so then. Behind a delay it would outlast it, or wait for it,
    and something else than the order of the stream would decide.
    """
    rng = np.random.default_rng(seed)
    for delay_s in (0.0, 0.2):
        yield rng.standard_normal(SIZE, np.float32), delay_s
