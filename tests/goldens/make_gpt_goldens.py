#!/usr/bin/env python3
"""Writes tests/data/gpt_goldens.safetensors: the published GPTModel's results for some tokens, and one training step of
the published MultiHeadAttention on the six tokens.

Run by hand, from anywhere; no build needs it. It needs PyTorch and NumPy from PyPI:

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/goldens/make_gpt_goldens.py

Parameters are those that PyTorch draws after torch.manual_seed(123), in f32. Everything else is computed from them
in f64. The tensors under f32/ are computed in f32, as naive code would. bound/NAME is the gradient of a bias with
the absolute values of its terms: the gradient of the key bias is 0, because softmax cancels it, so only rounding
is left.
"""
import pathlib

import torch
from torch import nn

from goldens import write_safetensors

FILE = pathlib.Path(__file__).resolve().parent.parent / "data" / "gpt_goldens.safetensors"
CONFIG = {"vocab_size": 11, "context_length": 7, "emb_dim": 12, "n_heads": 3, "n_layers": 2, "qkv_bias": True}
SIX_TOKENS = torch.tensor([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64], [0.22, 0.58, 0.33],
                           [0.77, 0.25, 0.10], [0.05, 0.80, 0.55]])


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)

    def forward(self, x):
        batch, seqlen, _ = x.shape
        q, k, v = (layer(x).view(batch, seqlen, self.num_heads, self.head_dim).transpose(1, 2)
                   for layer in (self.W_query, self.W_key, self.W_value))
        hidden = torch.ones(seqlen, seqlen, dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(2, 3) / self.head_dim**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(batch, seqlen, -1))


class LayerNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.scale * centred / (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt() + self.shift


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"),
                                    nn.Linear(4 * width, width))

    def forward(self, x):
        return self.layers(x)


class TransformerBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["emb_dim"]
        self.att = MultiHeadAttention(width, width, config["n_heads"], config["qkv_bias"])
        self.ff = FeedForward(width)
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)

    def forward(self, x):
        x = x + self.att(self.norm1(x))
        return x + self.ff(self.norm2(x))


class GPTModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["emb_dim"]
        self.tok_emb = nn.Embedding(config["vocab_size"], width)
        self.pos_emb = nn.Embedding(config["context_length"], width)
        self.trf_blocks = nn.Sequential(*(TransformerBlock(config) for _ in range(config["n_layers"])))
        self.final_norm = LayerNorm(width)
        self.out_head = nn.Linear(width, config["vocab_size"], bias=False)

    def forward(self, tokens):
        x = self.tok_emb(tokens) + self.pos_emb(torch.arange(tokens.shape[1]))
        return self.out_head(self.final_norm(self.trf_blocks(x)))


def gpt_tensors():
    torch.manual_seed(123)
    model = GPTModel(CONFIG)
    tensors = {f"state/{name}": value.clone() for name, value in model.state_dict().items()}
    # Not ones and zeros, so that errors in their products show.
    for name, parameter in model.named_parameters():
        if name.endswith(("scale", "shift")):
            nn.init.normal_(parameter)
            tensors[f"changed/{name}"] = parameter.detach().clone()
    tokens = torch.randint(CONFIG["vocab_size"], (3, CONFIG["context_length"] - 1))
    targets = torch.randint(CONFIG["vocab_size"], tokens.shape)
    tensors |= {"tokens": tokens, "targets": targets}
    tensors |= {f"f32/{name}": tensor for name, tensor in results(model, tokens, targets).items()}
    return tensors | results(model.double(), tokens, targets)


def results(model, tokens, targets):
    model.zero_grad()
    bounds = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            layer.register_full_backward_hook(
                lambda _layer, _dx, dy, name=name: bounds.update({f"bound/{name}.bias": dy[0].abs().sum((0, 1))}))
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    gradients = {f"gradient/{name}": parameter.grad.clone() for name, parameter in model.named_parameters()}
    return gradients | bounds | {"logits": logits.detach(), "loss": loss.detach().reshape(1)}


def six_token_tensors():
    """Mean-squared error against zeros, over both entries of the published batch."""
    torch.manual_seed(123)
    module = MultiHeadAttention(3, 2, num_heads=2)
    tensors = {f"six/state/{name}": value.clone() for name, value in module.state_dict().items()}
    module.double()
    output = module(torch.stack((SIX_TOKENS, SIX_TOKENS)).double())
    loss = nn.functional.mse_loss(output, torch.zeros_like(output))
    loss.backward()
    tensors |= {"six/loss": loss.detach().reshape(1)}
    return tensors | {f"six/gradient/{name}": parameter.grad for name, parameter in module.named_parameters()}


if __name__ == "__main__":
    write_safetensors(FILE, gpt_tensors() | six_token_tensors(), {})
    print(f"{FILE}: {FILE.stat().st_size} bytes, PyTorch {torch.__version__}")
