"""Writes a vision transformer that has learned nothing as the Hugging Face folder argv[1]: what its heads show of a
picture comes from the picture and from chance."""

import json
import pathlib
import struct
import sys

import numpy as np

HIDDEN, LAYERS, HEADS, INNER, SIDE, PATCH = 96, 4, 6, 192, 240, 20
CONFIG = {
    "model_type": "vit",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "image_size": SIDE,
    "patch_size": PATCH,
    "num_channels": 3,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "qkv_bias": True,
}


def linear(rng, name, outputs, inputs):
    """Weights whose products have the size of what goes in."""
    weight = rng.standard_normal((outputs, inputs)) * inputs**-0.5
    return {f"{name}.weight": weight, f"{name}.bias": np.zeros(outputs)}


def norm(name):
    return {f"{name}.weight": np.ones(HIDDEN), f"{name}.bias": np.zeros(HIDDEN)}


def weights():
    rng = np.random.default_rng(0)
    patches = linear(rng, "projection", HIDDEN, 3 * PATCH * PATCH)
    tensors = {
        "embeddings.cls_token": rng.standard_normal((1, 1, HIDDEN)),
        "embeddings.position_embeddings": 0.3 * rng.standard_normal((1, 1 + (SIDE // PATCH) ** 2, HIDDEN)),
        "embeddings.patch_embeddings.projection.weight": patches["projection.weight"].reshape(HIDDEN, 3, PATCH, PATCH),
        "embeddings.patch_embeddings.projection.bias": patches["projection.bias"],
        **norm("layernorm"),
    }
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            tensors |= linear(rng, f"{layer}.attention.attention.{part}", HIDDEN, HIDDEN)
        tensors |= linear(rng, f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        tensors |= linear(rng, f"{layer}.intermediate.dense", INNER, HIDDEN)
        tensors |= linear(rng, f"{layer}.output.dense", HIDDEN, INNER)
        tensors |= norm(f"{layer}.layernorm_before") | norm(f"{layer}.layernorm_after")
    return {name: np.ascontiguousarray(tensor, dtype="<f4") for name, tensor in tensors.items()}


def save_safetensors(path, tensors):
    """https://huggingface.co/docs/safetensors: the length of a JSON header, the header, and the numbers, aligned."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensor.tobytes() for tensor in tensors.values()))


folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
(folder / "config.json").write_text(json.dumps(CONFIG))
save_safetensors(folder / "model.safetensors", weights())
