"""Reads a model folder as float64 arrays."""

import json

from safetensors.torch import load_file


def read(folder):
    """All tensors of the folder's *.safetensors, listed by an index or not."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= {name: tensor.double().numpy() for name, tensor in load_file(path).items()}
    return tensors


def below(prefix, tensors):
    """The tensors under `prefix`, without it."""
    return {name[len(prefix):]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def text_config(folder):
    """The text hyper-parameters, nested or flat, with `tie_word_embeddings` from either level."""
    root = json.loads((folder / "config.json").read_text())
    text = root.get("text_config", root)
    tied = root.get("tie_word_embeddings", False) or text.get("tie_word_embeddings", False)
    return {**text, "tie_word_embeddings": tied}
