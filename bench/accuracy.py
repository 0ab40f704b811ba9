#!/usr/bin/env python3
"""Compares the errors of saccade and of PyTorch on the CPU, against float64, on FlashAttention's grid of shapes.

    python -m pip install torch numpy && python -m pip install .
    python bench/accuracy.py [--quick] [--dtype f32|bf16]... [--draws N] [--lines]

The grid is that of FlashAttention's tests (tests/test_flash_attn.py): its head dimensions and lengths, causal or not,
a kv head for each head or for three. An error is max |x - reference| of a problem, as in those tests, and in brackets
the root of the mean square. Gradients follow from each library's own forward pass. PyTorch's is the fused kernel where
that takes the problem.

The largest of some thousand errors is that of one large score, and so mostly luck: in one draw of a problem it was 6
times PyTorch's, in the median of 21 draws 0.9. So the errors of a problem are medians over N draws (default 9), and the
column "luck" has the worst ratio of PyTorch with head_dim in reverse order, the same sums in another order, to PyTorch.
The exit status is 1 unless both ratios of the f32 errors are at most 1 in the median, to two digits, and at most 2 at
worst.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Iterator
from typing import NamedTuple

import saccade
import torch
import torch.nn.functional as F
from torch import Tensor

HEAD_DIMS = (32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256)
LENGTHS = (
    (113, 203),
    (128, 217),
    (113, 211),
    (108, 256),
    (256, 512),
    (512, 256),
    (1024, 1024),
    (1023, 1024),
    (1024, 1023),
    (2048, 2048),
)
HEADS = 6
NAMES = ("o", "lse", "dq", "dk", "dv")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Problem(NamedTuple):
    dtype: str
    head_dim: int
    seqlen_q: int
    seqlen_k: int
    causal: bool
    kv_heads: int

    def inputs(self, draw: int) -> list[Tensor]:
        """q, k, v and the gradient of o: [1, heads, seqlen, head_dim], normal numbers."""
        torch.manual_seed(sum(a * b for a, b in zip((*self[1:], draw), (1, 1009, 9176, 7, 31, 1000003))))
        shapes = [(HEADS, self.seqlen_q), (self.kv_heads, self.seqlen_k), (self.kv_heads, self.seqlen_k)]
        shapes.append((HEADS, self.seqlen_q))
        return [torch.randn(1, *shape, self.head_dim).to(DTYPES[self.dtype]) for shape in shapes]


def problems(dtype: str, quick: bool) -> Iterator[Problem]:
    lengths = [pair for pair in LENGTHS if not quick or max(pair) <= 512]
    for head_dim, pair, causal, kv_heads in itertools.product(HEAD_DIMS, lengths, (False, True), (HEADS, HEADS // 3)):
        yield Problem(dtype, head_dim, *pair, causal, kv_heads)


def reference(p: Problem, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> list[Tensor]:
    q, k, v = (x.double().requires_grad_() for x in (q, k, v))
    group = HEADS // p.kv_heads
    scores = q @ k.repeat_interleave(group, 1).mT / math.sqrt(p.head_dim)
    if p.causal:
        scores = scores.masked_fill(~torch.ones(p.seqlen_q, p.seqlen_k).tril().bool(), -math.inf)
    o = scores.softmax(-1) @ v.repeat_interleave(group, 1)
    gradients = torch.autograd.grad(o, (q, k, v), dout.double())
    return [o.detach(), scores.detach().logsumexp(-1), *gradients]


def ours(p: Problem, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> list[Tensor]:
    causal = "top_left" if p.causal else None
    o, lse = saccade.attention(q, k, v, causal=causal, return_lse=True)
    return [o, lse, *saccade.attention_backward(q, k, v, o, lse, dout, causal=causal)[:3]]


def pytorch(p: Problem, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> list[Tensor]:
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    group = HEADS // p.kv_heads
    o = F.scaled_dot_product_attention(q, k, v, is_causal=p.causal, enable_gqa=group > 1)
    gradients = torch.autograd.grad(o, (q, k, v), dout)
    with torch.no_grad():
        keys, values = (x.repeat_interleave(group, 1) for x in (k, v))
        lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, keys, values, 0.0, p.causal)[1]
    return [o.detach(), lse, *gradients]


def reversed_pytorch(p: Problem, *inputs: Tensor) -> list[Tensor]:
    results = pytorch(p, *(x.flip(-1).contiguous() for x in inputs))
    return [x.flip(-1) if x.dim() == 4 else x for x in results]


class Errors(NamedTuple):
    largest: float
    root_mean_square: float


def errors(results: list[Tensor], expected: list[Tensor]) -> list[Errors]:
    differences = [(x.double() - y).abs() for x, y in zip(results, expected)]
    return [Errors(float(d.max()), float(d.square().mean().sqrt())) for d in differences]


def medians(draws: list[list[Errors]]) -> list[Errors]:
    """The medians of each result's errors."""
    return [Errors(*map(statistics.median, zip(*of_draws))) for of_draws in zip(*draws)]


def compared(problem: Problem, draws: int) -> list[list[Errors]]:
    """The errors of saccade, PyTorch and PyTorch in reverse order."""
    found: list[list[list[Errors]]] = []
    for draw in range(draws):
        inputs = problem.inputs(draw)
        expected = reference(problem, *inputs)
        found.append([errors(solve(problem, *inputs), expected) for solve in (ours, pytorch, reversed_pytorch)])
    return [medians(list(of_solver)) for of_solver in zip(*found)]


def ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else 1.0 if not ours else math.inf


def report(found: dict[Problem, list[list[Errors]]], dtype: str) -> bool:
    """Prints a table; returns whether the errors are as small as wanted. Each problem has those of saccade, PyTorch
    and PyTorch in reverse order."""
    holds = True
    print(f"{dtype}, {len(found)} problems: largest error (root of the mean square)")
    print(f"     {'saccade':>21} {'PyTorch':>21} {'ratio':>14} {'at worst':>14} {'luck':>14}")
    for i, name in enumerate(NAMES):
        columns = []
        for kind in (0, 1):
            mine, theirs, reverse = zip(*([errors[i][kind] for errors in of] for of in found.values()))
            ratios = [ratio(*pair) for pair in zip(mine, theirs)]
            luck = max(ratio(*pair) for pair in zip(reverse, theirs))
            columns.append((*map(statistics.median, (mine, theirs, ratios)), max(ratios), luck))
        holds = holds and all(round(column[2], 2) <= 1 and column[3] <= 2 for column in columns)
        print(
            f"{name:4}",
            *(f"{largest:10.2e} ({mean:8.1e})" for largest, mean in list(zip(*columns))[:2]),
            *(f"{largest:6.2f} ({mean:5.2f})" for largest, mean in list(zip(*columns))[2:]),
        )
        worst = max(found, key=lambda p: ratio(found[p][0][i].largest, found[p][1][i].largest))
        print(f"     at worst {worst}")
    return holds


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="lengths up to 512")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="only this type of q, k and v")
    parser.add_argument("--draws", type=int, default=9, help="the errors of a problem are medians over so many")
    parser.add_argument("--lines", action="store_true", help="a line for each problem")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    holds = True
    for dtype in arguments.dtype or DTYPES:
        found: dict[Problem, list[list[Errors]]] = {}
        for problem in problems(dtype, arguments.quick):
            found[problem] = compared(problem, arguments.draws)
            if arguments.lines:
                ratios = [ratio(a.largest, b.largest) for a, b in zip(*found[problem][:2])]
                print(*problem, " ".join(f"{name} {r:.2f}" for name, r in zip(NAMES, ratios)), flush=True)
        holds = report(found, dtype) and (holds or dtype != "f32")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
