"""The example agrees with PyTorch's run of the model, whatever shares its batch."""

import ast
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import nbx_examples.minilm.model
import nbx_registry as nbx
from nbx_examples.minilm import MiniLM, Tokens, find
from nbx_examples.minilm.reference import TOLERANCE, pinned


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens(find().tokenizer_file())


@pytest.fixture(scope="module")
def model() -> MiniLM:
    files = find()
    config = files.config()
    return MiniLM(config, files.weights(config))


def test_embeddings_agree_with_the_pinned_ones(model: MiniLM, tokens: Tokens) -> None:
    sentences, expected = pinned()
    embeddings = model(tokens(sentences))
    assert embeddings.dtype == np.float32
    np.testing.assert_allclose(embeddings, expected, rtol=0, atol=TOLERANCE)


def test_a_sentence_embeds_the_same_alone_and_beside_a_longer_one(model: MiniLM, tokens: Tokens) -> None:
    sentences, expected = pinned()
    shortest = min(range(len(sentences)), key=lambda i: len(sentences[i]))
    alone = model(tokens([sentences[shortest]]))
    np.testing.assert_allclose(alone[0], expected[shortest], rtol=0, atol=TOLERANCE)


def test_a_text_longer_than_the_model_reads_is_cut(model: MiniLM, tokens: Tokens) -> None:
    batch = tokens(["word " * 300, "word"])
    assert batch.ids.shape == (2, 256)
    assert batch.keep.sum(axis=1).tolist() == [256, 3]
    norms = np.linalg.norm(model(batch), axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-6)


def test_the_same_code_runs_on_tensors_of_ours(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MiniLM, "_place", lambda _, array: nbx.asarray(array, device="cpu"))
    files = find()
    config = files.config()
    sentences, expected = pinned()
    embeddings = MiniLM(config, files.weights(config))(tokens(sentences))
    assert isinstance(embeddings, nbx.Tensor)
    np.testing.assert_allclose(embeddings.numpy(), expected, rtol=0, atol=TOLERANCE)


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", Path(__file__).with_name("make_reference.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pinned_embeddings_are_what_pytorch_computes(maker: ModuleType) -> None:
    sentences, expected = pinned()
    assert sentences == list(maker.SENTENCES)
    with torch.inference_mode():
        made = maker.embed(find(), sentences).numpy()
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-8)
    assert "torch" in json.loads(maker.PINNED.read_text("utf-8"))["made"]["with"]


def test_the_network_calls_nothing_but_ops() -> None:
    """NumPy's arrays are the inputs; whatever computes is ``nbx.ops``."""
    tree = ast.parse(Path(nbx_examples.minilm.model.__file__).read_text("utf-8"))
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    numpy = {name for name in called if name.startswith("np.")}
    assert numpy == set()
    operators = [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.BinOp) and not isinstance(n.op, ast.BitOr)]
    sizes = ["config.hidden ** -0.5", "self.config.hidden // self.config.heads", "hidden // self.config.heads"]
    assert operators == [ast.unparse(ast.parse(size)) for size in sizes]
