"""Times saccade.torch.flex_attention on the gallery of python/tests/flex_gallery.py: forward and backward, beside the
forward pass of PyTorch's flex_attention, compiled, which has no backward pass on the CPU. One thread, f32, batch 1, 4
heads, head_dim 64.

    python bench/flex.py [--seqlen N] [NAME...]

Prints the best of some calls by turns, in milliseconds, and the largest difference of the outputs.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import warnings

import torch
from saccade.torch import flex_attention
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.flex_attention import flex_attention as of_pytorch

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python/tests"))
from flex_gallery import gallery  # noqa: E402

HEADS, HEAD_DIM = 4, 64


def seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def times(functions, least: int = 3, most: float = 2.0) -> list[float]:
    """The best time of each, by turns: at least `least` turns, then until `most` seconds are over."""
    best, start, turns = [float("inf")] * len(functions), time.perf_counter(), 0
    while turns < least or time.perf_counter() - start < most:
        best = [min(a, seconds(function)) for a, function in zip(best, functions)]
        turns += 1
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=int, default=1024)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    seqlen = arguments.seqlen
    q, k, v = (torch.randn(1, HEADS, seqlen, HEAD_DIM, requires_grad=True) for _ in range(3))
    print(f"{'':22}{'forward':>10}{'backward':>10}{'PyTorch':>10}{'times':>7}{'error':>10}")
    for name, (score_mod, mask_mod, _) in gallery(seqlen, HEADS, 1, torch.float32).items():
        if arguments.names and name not in arguments.names:
            continue
        mask = None if mask_mod is None else create_block_mask(mask_mod, 1, HEADS, seqlen, seqlen, device="cpu")
        torch._dynamo.reset()
        compiled = torch.compile(of_pytorch, dynamic=False)

        def theirs(compiled=compiled, score_mod=score_mod, mask=mask):
            with torch.no_grad():
                return compiled(q.detach(), k.detach(), v.detach(), score_mod, mask)

        def ours(score_mod=score_mod, mask=mask):
            with torch.no_grad():
                return flex_attention(q, k, v, score_mod, mask)

        o = flex_attention(q, k, v, score_mod, mask)
        dout = torch.randn_like(o)

        def backward(o=o, dout=dout):
            return torch.autograd.grad(o, (q, k, v), dout, retain_graph=True)

        try:
            error = f"{(ours() - theirs()).abs().max():10.1e}"
            best = times((ours, backward, theirs))
            rest = f"{best[2] * 1e3:10.2f}{best[2] / best[0]:7.2f}{error}"
        except Exception as refusal:  # PyTorch's compiler has several kinds
            best, rest = times((ours, backward)), f"  {type(refusal).__name__}"
        print(f"{name:22}{best[0] * 1e3:10.2f}{best[1] * 1e3:10.2f}{rest}", flush=True)


if __name__ == "__main__":
    main()
