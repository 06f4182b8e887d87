"""The process's compiler: what Triton makes, for every vendor, beside others that use Triton."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton
from triton.compiler import ASTSource

import nbx_registry as nbx
from nbx_registry.errors import NbxError
from nbx_triton import targets
from nbx_triton.compiler import Options, Source
from nbx_triton.store import Store
from nbx_triton.triton_compiler import Triton

AMD = ("amd/mi250x", "amd/mi300x")


@pytest.mark.parametrize("target", ["sm_70", "sm_90", "sm_100"])
def test_the_code_is_what_tritons_own_compile_gives(
    target: str, tmp_path: Path, source: Callable[..., Source], options: Options
) -> None:
    made_for, asked = targets.of(target), source()
    with triton.knobs.cache.scope():
        # Code in Triton's own cache may have been compiled in another checkout, whose lines and paths it names.
        triton.knobs.cache.dir = str(tmp_path / "triton")
        expected = triton.compile(
            ASTSource(
                asked.function,
                dict(asked.signature),
                constexprs=dict(asked.constants),
                attrs={path: [["tt.divisibility", 16]] for path in asked.divisible},
            ),
            target=made_for.triton,
            options=made_for.options(options),
        )
    made = Triton(store=Store(tmp_path)).compile(asked, target, options)
    assert made.image == expected.asm["cubin"]
    assert (made.entry, made.shared_bytes) == (expected.metadata.name, expected.metadata.shared)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_a_code_object_is_for_waves_of_64(
    target: str, tmp_path: Path, source: Callable[..., Source], options: Options
) -> None:
    made = Triton(store=Store(tmp_path)).compile(source(), target, options)
    assert (made.kind, made.arch, made.threads, made.parameters, made.spills) == ("hsaco", target, 128, 6, 0)


@pytest.mark.parametrize("target", ["sm_", "90", "sm_90b", "gfx", "gfx1100", "apple9"])
def test_a_target_of_neither_vendor_is_refused(target: str) -> None:
    with pytest.raises(NbxError, match=f"target '{target}' is none of this compiler's"):
        targets.of(target)


def test_stages_that_take_more_memory_than_a_block_has_are_left_out(options: Options) -> None:
    tried = list(targets.of("gfx942").variants(replace(options, num_stages=4)))
    assert [options.num_stages for options in tried] == [2, 1]
    assert not targets.of("gfx942").fits(65537)
    assert list(targets.of("sm_90").variants(replace(options, num_stages=4))) == [replace(options, num_stages=4)]


@pytest.mark.parametrize("device", AMD)
@pytest.mark.parametrize(
    ("kernel", "tensors"),
    [
        ("nbx-triton/gelu/strided", ["bfloat16[1000]"]),
        ("nbx-triton/softmax/rows", ["float16[63, 1000]"]),
        ("nbx-triton/matmul/tiles", ["float16[129, 64]", "float16[64, 63]"]),
    ],
)
def test_the_same_kernels_build_for_amd(bind: Callable[..., Any], kernel: str, tensors: list[str], device: str) -> None:
    bound = bind(kernel, tensors, device)
    for launch in bound.launches:
        made = launch.function
        assert made.kind == "hsaco"
        assert launch.block == (made.threads, 1, 1)
        assert made.threads % 64 == 0
        assert made.shared_bytes <= 65536
        assert made.registers <= 512
        assert len(launch.args) == made.parameters


@pytest.mark.parametrize("device", AMD)
def test_amd_is_decided_and_priced_from_the_device_file(registry: nbx.Registry, device: str) -> None:
    asked = ("softmax", "float16[16384, 8192]")
    found = registry.decide(*asked, device=device, require="any")
    assert (found.chosen or "").startswith("nbx-triton/softmax/")
    assert registry.price(*asked, device=device).floor_s > 0
    refused = registry.decide(*asked, device="hip:0").candidate("nbx-triton/softmax/rows")
    assert refused.code == "RUNTIME_MISSING"
    assert "unknown runtime 'hip'" in refused.reason


def run(script: str, tmp_path: Path) -> str:
    """Run a script in a process of its own, from a file: Triton reads the source of its functions."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiling_leaves_triton_to_its_other_users(tmp_path: Path) -> None:
    script = f"""
        import os, sys
        from pathlib import Path
        os.environ["TRITON_CACHE_DIR"] = {str(tmp_path / "triton")!r}
        os.environ["NBX_CACHE_DIR"] = {str(tmp_path / "nbx")!r}
        import triton
        import triton.language as tl
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        @triton.jit
        def double(x, BLOCK: tl.constexpr):
            index = tl.arange(0, BLOCK)
            tl.store(x + index, 2 * tl.load(x + index))

        def own():
            source = ASTSource(double, {{"x": "*fp32", "BLOCK": "constexpr"}}, constexprs={{(1,): 64}})
            return triton.compile(source, target=GPUTarget("cuda", 90, 32))

        def state():
            groups = [vars(getattr(triton.knobs, name)) for name in ("build", "cache", "compilation", "runtime",
                      "language", "nvidia", "amd", "autotuning")]
            return dict(os.environ), [dict(group) for group in groups], triton.runtime.driver.__dict__.keys()

        heard = []
        triton.knobs.compilation.listener = lambda **told: heard.append(told["src"].name)
        before = own().asm["ptx"]
        files = sorted(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*"))
        left = state()

        import nbx_registry as nbx
        from nbx_registry import spec
        reg = nbx.load()
        for device in ("nvidia/h200-sxm", "amd/mi300x"):
            signature = reg.ops["sqrt"].signature([spec.parse("float32[1000]")], {{}})
            reg.bind_specs("sqrt", signature, device=device, kernel="nbx-triton/sqrt/strided", require="any")

        assert state() == left
        assert sorted(Path(os.environ["TRITON_CACHE_DIR"]).rglob("*")) == files, "Triton's cache is its own"
        assert len([p for p in Path(os.environ["NBX_CACHE_DIR"]).rglob("*") if p.is_file()]) == 2
        assert heard == ["double"]
        assert own().asm["ptx"] == before
        assert heard == ["double", "double"]
        assert "torch" not in sys.modules
        print("undisturbed")
    """
    assert run(script, tmp_path) == "undisturbed\n"


def test_a_call_on_an_amd_card_is_refused_for_its_runtime(
    registry: nbx.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ndarray:
        dtype, shape, strides = np.dtype(np.float16), (63, 1000), (2000, 2)
        data, device = SimpleNamespace(ptr=4096), SimpleNamespace(id=0)

    ndarray.__module__ = "cupy"
    runtime = SimpleNamespace(is_hip=True)
    stream = SimpleNamespace(ptr=0)
    cupy = SimpleNamespace(ndarray=ndarray, cuda=SimpleNamespace(runtime=runtime, get_current_stream=lambda _: stream))
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    with pytest.raises(nbx.Refused, match="RUNTIME_MISSING") as raised:
        registry.call("softmax", ndarray())
    refused = raised.value.decision.candidate("nbx-triton/softmax/rows")
    assert (refused.code, refused.would_run_if) == ("RUNTIME_MISSING", "a plugin brings the runtime 'hip'")
