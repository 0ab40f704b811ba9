"""Times PyTorch's calls for bench/levels.py: answers lines of levels.txt as bench/timer.cpp does, on one thread.

Prints "inf" for a line with a word that PyTorch has no option for.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any, Callable

import torch
import torch.nn.functional as F

SAMPLE_SECONDS = 0.015
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "bool": torch.bool}
KNOWN = {"b", "h", "hkv", "s", "sq", "sk", "d", "dv", "dtype", "causal", "lse", "mask", "per_head", "dropout"}

Work = Callable[[], Any]


def work_of(line: str) -> Work | None:
    function, *listed = line.split()
    words = {key: value for key, _, value in (word.partition("=") for word in listed)}
    if function == "linear":
        return linear(words)
    if function not in ("attention", "decode", "attention_backward") or not words.keys() <= KNOWN:
        return None
    return attention(words, function == "attention_backward")


def linear(words: dict[str, str]) -> Work:
    dtype = DTYPES[words.get("dtype", "f32")]
    rows, d_in, d_out = (int(words[name]) for name in ("rows", "in", "out"))
    x, weight, bias = (torch.rand(shape).to(dtype) for shape in ((rows, d_in), (d_out, d_in), (d_out,)))
    return lambda: F.linear(x, weight, bias)


def attention(words: dict[str, str], is_backward: bool) -> Work:
    def number(name: str, otherwise: int) -> int:
        return int(words.get(name, otherwise))

    batch, heads = number("b", 1), number("h", 1)
    kv_heads, seqlen_q = number("hkv", heads), number("sq", number("s", 1))
    seqlen_k, dim, dtype = number("sk", seqlen_q), number("d", 64), DTYPES[words.get("dtype", "f32")]
    dim_v = number("dv", dim)
    q = torch.rand(batch, heads, seqlen_q, dim).to(dtype)
    k, v = (torch.rand(batch, kv_heads, seqlen_k, width).to(dtype) for width in (dim, dim_v))
    options: dict[str, Any] = {"dropout_p": float(words.get("dropout", 0)), "enable_gqa": kv_heads < heads}
    if "mask" in words:
        shape = (1, heads, seqlen_q, seqlen_k) if "per_head" in words else (seqlen_q, seqlen_k)
        mask = torch.rand(shape)
        options["attn_mask"] = mask > 0.5 if words["mask"] == "bool" else mask.to(dtype)
    elif "causal" in words and seqlen_q == seqlen_k:
        options["is_causal"] = True
    elif "causal" in words and seqlen_q > 1:
        options["attn_mask"] = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool).tril(seqlen_k - seqlen_q)
    if not is_backward:
        return lambda: F.scaled_dot_product_attention(q, k, v, **options)
    operands = [q, k, v]
    for operand in operands:
        operand.requires_grad_()
    with torch.enable_grad():
        o = F.scaled_dot_product_attention(q, k, v, **options)
    dout = torch.rand_like(o)
    return lambda: torch.autograd.grad(o, operands, dout, retain_graph=True)


def seconds_of(work: Work, calls: int) -> float:
    start = time.thread_time()
    for _ in range(calls):
        work()
    return time.thread_time() - start


def calls_of_a_sample(work: Work) -> int:
    calls = 1
    while (seconds := seconds_of(work, calls)) <= SAMPLE_SECONDS / 8:
        calls *= 2
    return math.ceil(SAMPLE_SECONDS / seconds * calls)


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    held, work, calls = "", None, 0
    for line in sys.stdin:
        if line != held:
            held, work = line, work_of(line)
            if work:
                work()
                calls = calls_of_a_sample(work)
        if work and calls > 2:
            work()  # another program may have filled the caches
        print(f"{seconds_of(work, calls) / calls:.6e}" if work else "inf", flush=True)


if __name__ == "__main__":
    main()
