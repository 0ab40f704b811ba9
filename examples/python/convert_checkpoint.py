#!/usr/bin/env python3
"""Converts a checkpoint to the folder that saccade reads: config.json, model.safetensors and tokenizer.json.

    pip install torch transformers safetensors gguf accelerate
    examples/python/convert_checkpoint.py SmolLM2-135M-Instruct.Q8_0.gguf SmolLM2
    examples/python/convert_checkpoint.py folder-with-pytorch_model.bin converted --dtype bfloat16

A GGUF file's quantised weights become numbers of --dtype; rows of queries and keys return to Hugging Face's order.
"""

import argparse
import pathlib

import torch
import transformers


def source_of(checkpoint):
    """The folder and, for GGUF, the file in it, as from_pretrained takes them."""
    if checkpoint.suffix == ".gguf":
        return checkpoint.parent, {"gguf_file": checkpoint.name}
    if (checkpoint / "config.json").exists():
        return checkpoint, {}
    raise SystemExit(f"{checkpoint} is neither a .gguf file nor a folder with config.json")


def model_of(folder, options, dtype):
    """The model of the class that the checkpoint was saved from."""
    config = transformers.AutoConfig.from_pretrained(folder, **options)
    architectures = getattr(config, "architectures", None) or []
    if "gguf_file" in options or not architectures:
        cls = transformers.AutoModelForCausalLM if "gguf_file" in options else transformers.AutoModel
    else:
        cls = getattr(transformers, architectures[0])
    model = cls.from_pretrained(folder, dtype=getattr(torch, dtype), **options)
    if "gguf_file" not in options:
        return model
    # A model that was read from GGUF refuses to be saved; its numbers do not.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = type(model)(model.config).to(model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.tie_weights()
    return plain


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path, help="a .gguf file, or a folder with config.json")
    parser.add_argument("target", type=pathlib.Path, help="the folder to write")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    arguments = parser.parse_args()
    folder, options = source_of(arguments.checkpoint)
    model_of(folder, options, arguments.dtype).save_pretrained(arguments.target)
    try:
        transformers.AutoTokenizer.from_pretrained(folder, **options).save_pretrained(arguments.target)
    except (ValueError, OSError) as error:
        print(f"no tokenizer was converted: {error}")
    print(f"wrote {arguments.target}")


if __name__ == "__main__":
    main()
