"""One process with torch, Triton's own JIT and the registry's kernels: neither disturbs the others."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
    import ctypes
    import os
    import sys
    import threading
    from pathlib import Path

    CACHE = Path(sys.argv[1])
    os.environ["TRITON_CACHE_DIR"] = str(CACHE / "triton")
    os.environ["NBX_CACHE_DIR"] = str(CACHE / "nbx")

    import torch
    import triton
    import triton.language as tl

    import nbx_registry as nbx
    from nbx_cuda.runtime import driver

    COUNT = 100_003

    @triton.jit
    def own_add(x, y, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

    def jitted(x, y, block=1024):
        out = torch.empty_like(x)
        own_add[(triton.cdiv(COUNT, block),)](x, y, out, COUNT, BLOCK=block)
        return out

    def ours(reg, x, y):
        return reg.call("add", x, y, kernel="nbx-triton/add/strided", require="any")

    def current_context():
        handle = ctypes.c_void_p()
        assert driver.library().cuCtxGetCurrent(ctypes.byref(handle)) == 0
        return handle.value

    def state():
        groups = ("build", "cache", "compilation", "runtime", "language", "nvidia", "amd")
        return (
            dict(os.environ),
            [dict(vars(getattr(triton.knobs, name))) for name in groups],
            triton.runtime.driver.active,
            current_context(),
            torch.cuda.current_device(),
            torch.cuda.current_stream().cuda_stream,
            torch.cuda.get_rng_state().tolist(),
            torch.get_default_dtype(),
            torch.backends.cuda.matmul.allow_tf32,
        )

    torch.manual_seed(0)
    x, y = torch.randn(COUNT, device="cuda"), torch.randn(COUNT, device="cuda")
    expected = x + y
    assert torch.equal(jitted(x, y), expected)
    files = sorted(CACHE.joinpath("triton").rglob("*"))
    before = state()

    reg = nbx.load()
    assert torch.equal(ours(reg, x, y), expected)
    assert state() == before, "the first call, which compiles and loads, changed what others see"
    assert sorted(CACHE.joinpath("triton").rglob("*")) == files, "Triton's cache is its own"

    # In turn, on each of torch's streams: each sees what the one before it wrote, without waiting.
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            inside = state()
            for turn in range(20):
                a = x * (turn + 1)
                b = jitted(a, y)
                c = ours(reg, b, y)
                d = jitted(c, y)
                assert torch.equal(d, ((a + y) + y) + y), (stream, turn)
            assert state() == inside
        torch.cuda.default_stream().wait_stream(stream)

    # At once, while both compile.
    wrong = []

    def jit_on():
        try:
            for block in (64, 128, 256, 512, 2048):
                if not torch.equal(jitted(x, y, block), expected):
                    wrong.append(block)
        except Exception as error:
            wrong.append(error)

    def ours_on():
        try:
            for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64):
                a, b = x.to(dtype), y.to(dtype)
                if not torch.equal(ours(reg, a, b), a + b):
                    wrong.append(dtype)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for work in (jit_on, ours_on, jit_on, ours_on)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong

    # Memory that torch and the runtime hand out is told apart, and each takes back its own.
    held = torch.cuda.memory_allocated()
    kept = nbx.asarray(x.cpu().numpy(), device="cuda:0")
    assert torch.cuda.memory_allocated() == held
    del kept
    torch.cuda.empty_cache()
    assert torch.equal(ours(reg, x, y), jitted(x, y))
    print("undisturbed")
"""


@pytest.mark.filterwarnings("default")  # torch's own, at import
def test_torch_and_tritons_jit_share_the_process(torch: Any, tmp_path: Path) -> None:
    del torch
    pytest.importorskip("triton")
    # From a file, since Triton reads the source of its functions, and in a process of its own, where it comes first.
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, path, tmp_path], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "undisturbed\n"
