#!/usr/bin/env python3
"""Writes tests/data/module_goldens.safetensors: the results of torch.nn.MultiheadAttention
and their gradients.

Run by hand, from anywhere, when cases are added; no build needs it. It needs PyTorch (2.9 or newer, so that dropout
draws as in the published examples) and NumPy from PyPI:

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/goldens/make_module_goldens.py

Parameters and inputs are f32 numbers; output, weights and gradients are computed from them in f64. The metadata has an
entry for each case: JSON with the arguments. Tensors are named CASE/query, CASE/state/in_proj_weight, CASE/output and so
on; CASE/gradient/query and CASE/gradient/in_proj_weight are those of the sum of output * dout. Masks are stored as
PyTorch takes them (true = ignore).
"""
import itertools
import json
import pathlib
import random

import torch

from goldens import write_safetensors

FILE = pathlib.Path(__file__).resolve().parent.parent / "data" / "module_goldens.safetensors"
BATCH, SEQLEN_Q, SEQLEN_K, EMBED = 2, 3, 5, 6

DEFAULTS = {"num_heads": 2, "bias": True, "add_bias_kv": False, "add_zero_attn": False, "kdim": EMBED, "vdim": EMBED,
            "batch_first": True, "batched": True, "mask": "none", "key_mask": "none", "average": False, "dropout": 0.0}
CHOICES = {"num_heads": [1, 2, 3], "bias": [True, False], "add_bias_kv": [True, False], "add_zero_attn": [True, False],
           "kdim": [EMBED, 5], "vdim": [EMBED, 4], "batch_first": [True, False], "batched": [True, False],
           "mask": ["none", "bool", "float", "bool3", "float3", "causal"],
           "key_mask": ["none", "padding", "bool", "float"], "average": [True, False], "dropout": [0.0, 0.5]}


def cases():
    """Every argument alone, every pair of masks, and all combined."""
    yield DEFAULTS
    for argument, values in CHOICES.items():
        yield from ({**DEFAULTS, argument: value} for value in values if value != DEFAULTS[argument])
    for mask, key_mask in itertools.product(CHOICES["mask"][1:], CHOICES["key_mask"][1:]):
        yield {**DEFAULTS, "mask": mask, "key_mask": key_mask}
    draw = random.Random(0)
    for _ in range(40):
        yield {argument: draw.choice(values) for argument, values in CHOICES.items()}


def attention_mask(kind, case):
    heads_shape = ((BATCH if case["batched"] else 1) * case["num_heads"], SEQLEN_Q, SEQLEN_K)
    shape = heads_shape if kind.endswith("3") else (SEQLEN_Q, SEQLEN_K)
    if kind == "none":
        return None
    if kind == "causal":
        return torch.triu(torch.ones(shape, dtype=torch.bool), diagonal=1)
    hidden = torch.rand(shape) < 0.4
    hidden[..., 0] = False  # PyTorch gives NaN where every key is hidden
    return hidden if kind.startswith("bool") else torch.randn(shape).masked_fill(hidden, -torch.inf)


def key_padding_mask(kind, case):
    if kind == "none":
        return None
    hidden = torch.tensor([[False, False, True, True, True], [False, False, False, False, True]])
    if kind != "padding":
        hidden = torch.tensor([[False, True, False, False, True], [False, False, True, True, False]])
    mask = torch.randn(hidden.shape).masked_fill(hidden, -torch.inf) if kind == "float" else hidden
    return mask if case["batched"] else mask[0]


def as_f64(mask):
    return mask.double() if mask is not None and mask.is_floating_point() else mask


def inputs(case):
    widths = {"query": (SEQLEN_Q, EMBED), "key": (SEQLEN_K, case["kdim"]), "value": (SEQLEN_K, case["vdim"])}
    for name, (seqlen, width) in widths.items():
        x = torch.randn(BATCH, seqlen, width)
        x = x if case["batched"] else x[0]
        yield name, x if case["batch_first"] or not case["batched"] else x.transpose(0, 1).contiguous()


def tensors_of(case, seed):
    torch.manual_seed(seed)
    arguments = ["num_heads", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim", "batch_first", "dropout"]
    module = torch.nn.MultiheadAttention(EMBED, **{name: case[name] for name in arguments})
    if case["bias"]:  # PyTorch initialises biases with 0
        for bias in (module.in_proj_bias, module.out_proj.bias):
            torch.nn.init.normal_(bias)
    tensors = {f"state/{name}": value.clone() for name, value in module.state_dict().items()}
    tensors |= dict(inputs(case))
    mask, key_mask = attention_mask(case["mask"], case), key_padding_mask(case["key_mask"], case)
    tensors |= {name: value for name, value in (("mask", mask), ("key_mask", key_mask)) if value is not None}

    torch.manual_seed(seed)  # for dropout: the module is in training mode
    double = {name: tensors[name].double().requires_grad_() for name in ("query", "key", "value")}
    output, weights = module.double()(*double.values(), key_padding_mask=as_f64(key_mask), attn_mask=as_f64(mask),
                                      need_weights=True, average_attn_weights=case["average"])
    dout = torch.randn(output.shape, dtype=torch.float32)
    (output * dout).sum().backward()
    gradients = {name: x.grad for name, x in itertools.chain(double.items(), module.named_parameters())}
    tensors |= {f"gradient/{name}": gradient for name, gradient in gradients.items()}
    return tensors | {"dout": dout, "output": output.detach(), "weights": weights.detach()}


def main():
    tensors, metadata = {}, {}
    for seed, case in enumerate(cases()):
        metadata[str(seed)] = json.dumps({**case, "seed": seed})
        tensors |= {f"{seed}/{name}": tensor for name, tensor in tensors_of(case, seed).items()}
    write_safetensors(FILE, tensors, metadata)
    print(f"{FILE}: {len(metadata)} cases, {FILE.stat().st_size} bytes, PyTorch {torch.__version__}")


main()
