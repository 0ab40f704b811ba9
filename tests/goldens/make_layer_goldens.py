#!/usr/bin/env python3
"""Writes tests/data/layer_goldens.safetensors: the results of PyTorch's layers, loss and optimisers.

Run by hand, from anywhere, when cases are added; no build needs it. It needs PyTorch and NumPy from PyPI:

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/goldens/make_layer_goldens.py

Parameters and inputs are f32 numbers; everything else is computed from them in f64. Tensors are named CASE/x, CASE/dx and so
on. The cases adamw, sgd and clip are those of one module with a parameter `matrix` and a parameter `vector`, whose gradients
in step i are i/matrix and i/vector. The metadata has the arguments of a case as JSON.
"""
import json
import pathlib

import torch
from torch import nn

from goldens import write_safetensors

FILE = pathlib.Path(__file__).resolve().parent.parent / "data" / "layer_goldens.safetensors"
ROWS, DIM, HIDDEN, NUM_CLASSES = 5, 7, 12, 9

ADAMW = {"adamw": {}, "adamw_options": {"lr": 0.1, "betas": [0.5, 0.9], "eps": 1e-3, "weight_decay": 0.3}}
SGD = {"sgd": {"lr": 0.1, "momentum": 0.9},
       "sgd_options": {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.2},
       "sgd_nesterov": {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.2, "nesterov": True}}


def gradients_of(module):
    return {f"d{name}": parameter.grad for name, parameter in module.named_parameters()}


def through(module, x):
    """x, dout, the state, and the results of forward and backward."""
    state = {f"state/{name}": value.clone() for name, value in module.state_dict().items()}
    module = module.double()
    at = x.double().requires_grad_() if x.is_floating_point() else x
    y = module(at)
    dout = torch.randn(y.shape)
    y.backward(dout.double())
    dx = {"dx": at.grad} if x.is_floating_point() else {}
    return state | {"x": x, "dout": dout, "y": y.detach()} | dx | gradients_of(module)


def layers():
    norm = nn.LayerNorm(DIM)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    yield "layer_norm", through(norm, torch.randn(ROWS, DIM) * 3 + 1)
    yield "gelu", through(nn.GELU(approximate="tanh"), torch.randn(ROWS, DIM) * 3)
    yield "embedding", through(nn.Embedding(4, DIM), torch.tensor([[3, 0, 3], [3, 1, 0]]))
    feed_forward = nn.Module()
    feed_forward.layers = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.GELU(approximate="tanh"), nn.Linear(HIDDEN, DIM))
    feed_forward.forward = feed_forward.layers.forward
    yield "feed_forward", through(feed_forward, torch.randn(2, ROWS, DIM))


def cross_entropy():
    logits, targets = torch.randn(ROWS, NUM_CLASSES) * 3, torch.tensor([0, 8, -100, 4, -100])
    at = logits.double().requires_grad_()
    mean = nn.functional.cross_entropy(at, targets)
    mean.backward()
    losses = nn.functional.cross_entropy(at, targets, reduction="none")
    return {"logits": logits, "targets": targets, "mean": mean.detach().reshape(1), "losses": losses.detach(),
            "dlogits": at.grad}


def two_parameters():
    module = nn.Module()
    module.matrix, module.vector = nn.Parameter(torch.randn(3, DIM)), nn.Parameter(torch.randn(DIM))
    return module


def steps(make_optimiser, options):
    module = two_parameters()
    tensors = {f"before/{name}": value.clone() for name, value in module.state_dict().items()}
    module = module.double()
    optimiser = make_optimiser(module.parameters(), **options)
    for step in range(1, 4):
        for name, parameter in module.named_parameters():
            gradient = torch.randn(parameter.shape)
            parameter.grad = gradient.double()
            tensors[f"{step}/{name}"] = gradient
        optimiser.step()
    return tensors | {f"after/{name}": value for name, value in module.state_dict().items()}


def clip():
    module = two_parameters()
    gradients = {}
    for name, parameter in module.named_parameters():
        gradients[f"1/{name}"] = torch.randn(parameter.shape)
        parameter.data, parameter.grad = parameter.data.double(), gradients[f"1/{name}"].double()
    norm = nn.utils.clip_grad_norm_(module.parameters(), max_norm=1.0)
    return gradients | {"norm": norm.reshape(1)} | {f"after/{name}": p.grad for name, p in module.named_parameters()}


def main():
    torch.manual_seed(1)
    cases = dict(layers()) | {"cross_entropy": cross_entropy(), "clip": clip()}
    cases |= {name: steps(torch.optim.AdamW, options) for name, options in ADAMW.items()}
    cases |= {name: steps(torch.optim.SGD, options) for name, options in SGD.items()}
    tensors = {f"{case}/{name}": tensor for case, parts in cases.items() for name, tensor in parts.items()}
    write_safetensors(FILE, tensors, {name: json.dumps(options) for name, options in (ADAMW | SGD).items()})
    print(f"{FILE}: {len(cases)} cases, {FILE.stat().st_size} bytes, PyTorch {torch.__version__}")


main()
