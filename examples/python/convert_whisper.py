#!/usr/bin/env python3
"""Converts a Whisper checkpoint of CTranslate2 (faster-whisper) to the folder that saccade reads.

    pip install numpy safetensors
    examples/python/convert_whisper.py faster-whisper-base whisper-base

The folder has model.bin (format 6) and tokenizer.json. Weights keep their type; names and fused projections become
those of Hugging Face's WhisperForConditionalGeneration.
"""

import argparse
import json
import pathlib
import shutil
import struct

import numpy as np
from safetensors.numpy import save_file

TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def read_model(path):
    """The variables of a model.bin by name."""
    data, at = path.read_bytes(), 0

    def take(form):
        nonlocal at
        (value,) = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize(form)
        return value

    def text():
        nonlocal at
        length = take("H")
        at += length
        return data[at - length : at - 1].decode()

    version, specification, _ = take("I"), text(), take("I")
    if version != 6 or specification != "WhisperSpec":
        raise SystemExit(f"{path} is not a Whisper model of CTranslate2's format 6, but {specification} {version}")
    variables = {}
    for _ in range(take("I")):
        name, rank = text(), take("B")
        shape = [take("I") for _ in range(rank)]
        kind, size = take("B"), take("I")
        if kind not in TYPES:
            raise SystemExit(f"{path}: {name} has element type {kind}, which is not known")
        variables[name] = np.frombuffer(data, TYPES[kind], size // np.dtype(TYPES[kind]).itemsize, at).reshape(shape)
        at += size
    return variables


def layer_tensors(variables, source, target):
    """The tensors of one layer by their names in Hugging Face's order."""
    tensors = {}

    def put(name, weight, bias):
        tensors[f"{target}.{name}.weight"] = weight
        if bias is not None:
            tensors[f"{target}.{name}.bias"] = bias

    def linear(name):
        return variables[f"{source}/{name}/weight"], variables[f"{source}/{name}/bias"]

    def norm(name, part):
        put(name, variables[f"{source}/{part}/layer_norm/gamma"], variables[f"{source}/{part}/layer_norm/beta"])

    norm("self_attn_layer_norm", "self_attention")
    weight, bias = linear("self_attention/linear_0")
    for name, w, b in zip("qkv", np.split(weight, 3), np.split(bias, 3)):
        put(f"self_attn.{name}_proj", w, None if name == "k" else b)  # a key's bias changes no weight
    put("self_attn.out_proj", *linear("self_attention/linear_1"))
    if f"{source}/attention/linear_0/weight" in variables:
        norm("encoder_attn_layer_norm", "attention")
        put("encoder_attn.q_proj", *linear("attention/linear_0"))
        weight, bias = linear("attention/linear_1")
        put("encoder_attn.k_proj", np.split(weight, 2)[0], None)
        put("encoder_attn.v_proj", np.split(weight, 2)[1], np.split(bias, 2)[1])
        put("encoder_attn.out_proj", *linear("attention/linear_2"))
    norm("final_layer_norm", "ffn")
    put("fc1", *linear("ffn/linear_0"))
    put("fc2", *linear("ffn/linear_1"))
    return tensors


def converted(variables):
    """The tensors and the config of a model."""
    tensors = {
        "model.decoder.embed_tokens.weight": variables["decoder/embeddings/weight"],
        "model.decoder.embed_positions.weight": variables["decoder/position_encodings/encodings"],
        "model.encoder.embed_positions.weight": variables["encoder/position_encodings/encodings"],
    }
    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            tensors[f"model.encoder.{conv}.{part}"] = variables[f"encoder/{conv}/{part}"]
    config = {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "num_mel_bins": variables["encoder/conv1/weight"].shape[1],
        "d_model": variables["encoder/conv1/weight"].shape[0],
        "max_source_positions": variables["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": variables["decoder/position_encodings/encodings"].shape[0],
        "vocab_size": variables["decoder/embeddings/weight"].shape[0],
        "bos_token_id": 50257,
        "eos_token_id": 50257,
        "pad_token_id": 50257,
        "decoder_start_token_id": 50258,
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
    }
    for half in ("encoder", "decoder"):
        layers = len([name for name in variables if name.startswith(half) and name.endswith("/ffn/linear_0/weight")])
        for i in range(layers):
            tensors |= layer_tensors(variables, f"{half}/layer_{i}", f"model.{half}.layers.{i}")
        tensors[f"model.{half}.layer_norm.weight"] = variables[f"{half}/layer_norm/gamma"]
        tensors[f"model.{half}.layer_norm.bias"] = variables[f"{half}/layer_norm/beta"]
        config[f"{half}_layers"] = layers
        config[f"{half}_attention_heads"] = int(variables[f"{half}/num_heads"])
        config[f"{half}_ffn_dim"] = variables[f"{half}/layer_0/ffn/linear_0/bias"].shape[0]
    return tensors, config


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the folder with model.bin and tokenizer.json")
    parser.add_argument("target", type=pathlib.Path, help="the folder to write")
    arguments = parser.parse_args()
    tensors, config = converted(read_model(arguments.folder / "model.bin"))
    arguments.target.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    save_file(tensors, arguments.target / "model.safetensors", {"format": "pt"})
    (arguments.target / "config.json").write_text(json.dumps(config, indent=2))
    shutil.copy(arguments.folder / "tokenizer.json", arguments.target)
    print(f"wrote {arguments.target}")


if __name__ == "__main__":
    main()
