"""Arrays of jax: found without importing it, read where they lie, never written."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import nbx_registry as nbx
from nbx_registry import dtypes, tensor
from nbx_registry.errors import SignatureError

# 64 bits are off in jax unless a process asks for them.
NAMES = [name for name, dtype in dtypes.TABLE.items() if not name.endswith("64") and dtype.dlpack != (0, 4)]
NAMES = [name for name in NAMES if name != "uint4"]


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


@pytest.mark.parametrize("name", [*NAMES, "complex64"])
def test_every_dtype_that_jax_hands_over_is_read_in_place(name: str) -> None:
    x = jnp.asarray(np.arange(6).reshape(2, 3) % 2).astype(getattr(jnp, f"{name}_" if name == "bool" else name))
    t = tensor.asarray(x)
    assert (t.dtype.name, t.shape, t.readonly) == (name, (2, 3), True)
    assert t.address == x.unsafe_buffer_pointer()
    assert t.numpy().tolist() == np.asarray(x).tolist()


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_integers_of_four_bits_do_not_leave_jax_but_by_numpy(name: str) -> None:
    x = jnp.asarray(np.arange(5)).astype(getattr(jnp, name))
    with pytest.raises(SignatureError, match=r"has no DLPack equivalent; give numpy\.asarray\(x\)"):
        tensor.asarray(x)
    assert tensor.asarray(np.asarray(x)).dtype.name == name


@pytest.mark.parametrize("name", [name for name in [*NAMES, "complex64"] if not dtypes.get(name).packed])
def test_jax_takes_tensors_without_a_copy(name: str) -> None:
    t = tensor.asarray(np.ones((2, 3)).astype(dtypes.get(name).numpy), copy=True)
    own = tensor.empty((2, 3), name)
    own.assign(t.numpy())
    y = jax.dlpack.from_dlpack(own)
    assert y.unsafe_buffer_pointer() == own.address
    assert np.asarray(y).tolist() == t.numpy().tolist()


def test_results_are_tensors_that_jax_takes(reg: nbx.Registry) -> None:
    x = jnp.arange(6, dtype=jnp.float32)
    y = reg.call("add", x, x)
    assert isinstance(y, nbx.Tensor)
    assert not y.readonly
    back = jnp.from_dlpack(y)
    assert back.unsafe_buffer_pointer() == y.address
    assert back.tolist() == (x + x).tolist()


def test_the_first_array_of_a_library_that_is_written_decides(reg: nbx.Registry) -> None:
    x = jnp.ones(3)
    assert isinstance(reg.call("add", np.ones(3, np.float32), x), np.ndarray)
    assert isinstance(reg.call("add", torch.ones(3), x), torch.Tensor)
    assert isinstance(reg.call("add", x, torch.ones(3)), nbx.Tensor)
    out = torch.empty(3)
    assert reg.call("add", x, np.ones(3, np.float32), out=out) is out
    assert out.tolist() == [2, 2, 2]


def test_arrays_of_jax_are_never_written(reg: nbx.Registry) -> None:
    x = jnp.ones(3)
    with pytest.raises(SignatureError, match=r"out= is written, but arrays of jax\S* are only read here"):
        reg.call("add", x, x, out=x)
    with pytest.raises(SignatureError, match=r"pool is written, but arrays of jax\S* are only read here"):
        reg.call("paged_kv_append", jnp.ones((1, 1, 2)), np.array([0], np.int32), jnp.zeros((1, 1, 4, 2)))
    assert x.tolist() == [1, 1, 1]


def test_weakly_typed_arrays_are_arrays_all_the_same(reg: nbx.Registry) -> None:
    x = jnp.asarray(2.0)
    assert x.weak_type
    with pytest.raises(SignatureError, match="x2 is float32"):
        reg.call("add", np.ones(3, np.int32), x)


def traced(x: Any, transform: Any) -> None:
    def see(y: Any) -> Any:
        nbx.load(require="any").call("add", y, y)
        return y

    transform(see)(x)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.linearize], ids=["jit", "vmap", "linearize"])
def test_traced_arrays_are_refused_by_name(transform: Any) -> None:
    see = {jax.linearize: lambda f: lambda x: jax.linearize(f, x)}.get(transform, transform)
    with pytest.raises(SignatureError, match=r"add: x1 is traced by jax \(\w+Tracer\).*outside of jit"):
        traced(jnp.ones(3), see)


def test_what_is_no_array_of_numbers_is_refused_by_name(reg: nbx.Registry) -> None:
    gone = jnp.ones(3)
    gone.delete()
    with pytest.raises(SignatureError, match="it has been deleted"):
        reg.call("add", gone, gone)
    with pytest.raises(SignatureError, match="PRNGKeyArray, and no array"):
        reg.call("add", jax.random.key(0), 1.0)
    with pytest.raises(SignatureError, match="ShapeDtypeStruct, and no array"):
        reg.call("add", jax.ShapeDtypeStruct((3,), jnp.float32), 1.0)
