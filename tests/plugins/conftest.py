"""Makes the two fixture distributions importable where they are not installed, and runs an op on the simulation.

nbx-acme is what ``nbx new-plugin`` writes, with the files beside this one on top.
"""

from __future__ import annotations

import atexit
import pkgutil
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbx_registry import scaffold

HERE = Path(__file__).parent
ACME = Path(tempfile.mkdtemp(prefix="nbx-acme-")) / "nbx-acme"
atexit.register(shutil.rmtree, ACME.parent, ignore_errors=True)

scaffold.write(scaffold.name_of("nbx-acme"), ACME.parent)
shutil.copytree(HERE / "nbx-acme", ACME, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
for distribution in (HERE / "nbx-simulated", ACME):
    sys.path.append(str(distribution))


@pytest.fixture(scope="session")
def acme_folder() -> Path:
    return ACME


@pytest.fixture
def run_kernel() -> Callable[..., tuple[np.ndarray, ...]]:
    """Give a function that binds a kernel of the simulation by itself, without a registry, and runs it."""
    from nbx_simulated.runtime import SimulatedRuntime

    return KernelRunner(SimulatedRuntime())


class KernelRunner:
    """Runs one kernel on ``sim:0`` over buffers with room around each tensor, which start and end as ``guard``."""

    ROOM = 512

    def __init__(self, sim: Any) -> None:
        self.sim = sim
        self.program: Any = None
        self.signature: Any = None

    def bind(self, kernel: Any, op: Any, specs: list[Any], **attributes: Any) -> None:
        from nbx_registry.launch import BindContext
        from nbx_registry.runtime import Slot

        self.signature = op.signature(specs, attributes)
        context = BindContext(kernel=kernel, signature=self.signature, device=None, settings=kernel.defaults)
        outputs = {output.name for output in op.outputs}
        slots = [Slot(n, s, "output" if n in outputs else "input") for n, s in self.signature.slots()]
        self.program = self.sim.program(0, [pkgutil.resolve_name(kernel.bind)(context)], slots)

    def buffer(self, array: np.ndarray, guard: int) -> Any:
        """Return a buffer with ``array`` in the middle."""
        image = np.full(array.nbytes + 2 * self.ROOM, guard, np.uint8)
        image[self.ROOM : self.ROOM + array.nbytes] = array.reshape(-1).view(np.uint8)
        buffer = self.sim.allocate(0, image.nbytes)
        self.sim.copy_in(0, buffer.address, image)
        return buffer

    def contents(self, buffer: Any) -> np.ndarray:
        image = np.empty(buffer.nbytes, np.uint8)
        self.sim.copy_out(0, image, buffer.address)
        return image

    def run(
        self,
        arrays: list[np.ndarray],
        *,
        guard: int = 0xFF,
        poison: int = 0xFF,
        stream: Any = None,
        aliased: bool = False,
    ) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Return the output, and the images of the first input and of the output with the room around them.

        ``aliased`` puts the output over the first input.
        """
        (spec,) = self.signature.outputs
        buffers = [self.buffer(array, guard) for array in arrays]
        empty = np.frombuffer(bytes([poison]) * spec.nbytes, np.uint8)
        out = buffers[0] if aliased else self.buffer(empty, guard)
        self.sim.synchronize(0)
        self.program.run([b.address + self.ROOM for b in (*buffers, out)], stream)
        self.sim.synchronize(0)
        image = self.contents(out)
        values = image[self.ROOM : self.ROOM + spec.nbytes].view(spec.dtype.numpy).reshape(spec.shape)
        return values, self.contents(buffers[0]), image
