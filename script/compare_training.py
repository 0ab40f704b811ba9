#!/usr/bin/env python3
"""Compares the tokens per second of `saccade train` and of the same model in PyTorch on this machine.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python script/compare_training.py build/release/saccade

Both train on random bytes of the same sizes with AdamW and gradients clipped; PyTorch runs eagerly, with
scaled_dot_product_attention. The numbers are medians over rounds; in each round, one runs after the other.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, seqlen, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seqlen, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(context.transpose(1, 2).reshape(batch, seqlen, width))
        return x + self.ff(self.norm2(x))


class Model(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, sizes.d_model), nn.Embedding(sizes.context, sizes.d_model)
        self.blocks = nn.Sequential(*(Block(sizes.d_model, sizes.heads) for _ in range(sizes.layers)))
        self.norm, self.head = nn.LayerNorm(sizes.d_model), nn.Linear(sizes.d_model, 256, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions.weight[: tokens.shape[1]])))


def torch_tokens_per_second(sizes):
    model = Model(sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        tokens = torch.randint(256, (sizes.batch, sizes.context + 1))
        logits = model(tokens[:, :-1])
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()
    start = time.perf_counter()
    for _ in range(sizes.steps):
        step()
    return sizes.steps * sizes.batch * sizes.context / (time.perf_counter() - start)


def saccade_tokens_per_second(command, sizes):
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_bytes(os.urandom(200_000))
        options = [f"--{name.replace('_', '-')}={value}" for name, value in vars(sizes).items()]
        outcome = subprocess.run(
            [
                command,
                "train",
                f"--text={text}",
                f"--output={folder}/run",
                "--heatmaps-at=none",
                "--json",
                f"--checkpoint-every={sizes.steps}",
                *options,
            ],
            check=True,
            capture_output=True,
        )
        return json.loads(outcome.stdout)["tokens_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the saccade command")
    for name, default in (
        ("layers", 4),
        ("heads", 4),
        ("d-model", 128),
        ("context", 128),
        ("batch", 16),
        ("steps", 20),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = vars(parser.parse_args())
    command, rounds = arguments.pop("command"), arguments.pop("rounds")
    sizes = argparse.Namespace(**arguments)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(saccade_tokens_per_second(command, sizes))
        theirs.append(torch_tokens_per_second(sizes))
    print(
        f"saccade {statistics.median(ours):.0f} tokens/s, PyTorch {torch.__version__} "
        f"{statistics.median(theirs):.0f} tokens/s ({torch.get_num_threads()} threads), "
        f"{statistics.median(o / t for o, t in zip(ours, theirs)):.2f} times as fast"
    )


main()
