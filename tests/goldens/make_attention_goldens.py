#!/usr/bin/env python3
"""Writes tests/data/attention_goldens.safetensors: the results of PyTorch's flex_attention with our options, in f64.

Run by hand, from anywhere, when cases are added; no build needs it. It needs PyTorch (2.9 or newer) and NumPy from PyPI:

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python tests/goldens/make_attention_goldens.py

Inputs are f32 numbers, shared by the cases of one shape: SHAPE/q, SHAPE/k, SHAPE/v. The metadata has an entry for each
case, JSON with its options; tensors of a case are named CASE/mask, CASE/kv_lengths and so on, its results CASE/o and
CASE/lse. Where scaled_dot_product_attention can do the same, this script checks that it does.
"""
import json
import pathlib
import random
import warnings

import torch
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from goldens import write_safetensors

FILE = pathlib.Path(__file__).resolve().parent.parent / "data" / "attention_goldens.safetensors"
BATCH, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM_V = 2, 4, 2, 4, 3
SHAPES = {"wide": (3, 5), "tall": (5, 3)}  # seqlen_q, seqlen_k

DEFAULTS = {"shape": "wide", "scale": None, "softcap": 0.0, "causal": "none", "query_offset": None, "query_offsets": False,
            "window_left": -1, "window_right": -1, "mask": "none", "kv_lengths": False, "alibi": "none", "sinks": False}
CHOICES = {"shape": ["wide", "tall"], "scale": [None, 1.0, -0.3], "softcap": [0.0, 2.0],
           "causal": ["none", "top_left", "bottom_right"], "query_offset": [None, 2, -1], "query_offsets": [False, True],
           "window_left": [-1, 0, 2], "window_right": [-1, 0, 1],
           "mask": ["none", "bool_k", "bool_qk", "bool_hqk", "bool_b11k", "float_qk", "float_bhqk", "float_q1"],
           "kv_lengths": [False, True], "alibi": ["none", "h", "bh"], "sinks": [False, True]}


def cases():
    """Every option alone, in either shape, and all combined."""
    for shape in SHAPES:
        yield {**DEFAULTS, "shape": shape}
        for option, values in CHOICES.items():
            yield from ({**DEFAULTS, "shape": shape, option: value} for value in values if value != DEFAULTS[option])
    draw = random.Random(0)
    for _ in range(60):
        case = {option: draw.choice(values) for option, values in CHOICES.items()}
        yield {**case, "query_offset": None if case["query_offsets"] else case["query_offset"]}


def tensors_of_options(case):
    """The options that are tensors, as our library accepts them."""
    seqlen_q, seqlen_k = SHAPES[case["shape"]]
    if case["mask"] != "none":
        kind, axes = case["mask"].split("_")
        lengths = {"b": BATCH, "h": HEADS, "q": seqlen_q, "k": seqlen_k, "1": 1}
        shape = [lengths[axis] for axis in axes]
        hidden = torch.rand(shape) < 0.3
        yield "mask", ~hidden if kind == "bool" else torch.randn(shape).masked_fill(hidden, -torch.inf)
    if case["kv_lengths"]:
        yield "kv_lengths", torch.tensor([seqlen_k - 2, seqlen_k])
    if case["query_offsets"]:
        yield "query_offsets", torch.tensor([3, -2])
    if case["alibi"] != "none":
        yield "alibi_slopes", torch.rand((BATCH, HEADS) if case["alibi"] == "bh" else (HEADS,))
    if case["sinks"]:
        yield "sinks", torch.randn(HEADS)


def flex_results(case, q, k, v, options):
    seqlen_q, seqlen_k = SHAPES[case["shape"]]
    lengths = options.get("kv_lengths", torch.full((BATCH,), seqlen_k))
    offsets = torch.zeros(BATCH, dtype=torch.int64)
    if case["query_offsets"]:
        offsets = options["query_offsets"]
    elif case["query_offset"] is not None:
        offsets = torch.full((BATCH,), case["query_offset"])
    elif case["causal"] == "bottom_right":
        offsets = lengths - seqlen_q
    mask = options.get("mask")
    if mask is not None:
        mask = mask if mask.dtype == torch.bool else mask.double()
        mask = mask.broadcast_to(BATCH, HEADS, seqlen_q, seqlen_k)
    slopes = options.get("alibi_slopes", torch.zeros(HEADS)).double().broadcast_to(BATCH, HEADS)

    softcap = torch.tensor(case["softcap"], dtype=torch.float64)

    def score_mod(score, b, h, i, j):
        position = i + offsets[b]
        if case["softcap"]:
            score = softcap * torch.tanh(score / softcap)
        score = score - slopes[b, h] * (position - j).abs()
        visible = j < lengths[b]
        if case["causal"] != "none":
            visible = visible & (j <= position)
        if case["window_left"] >= 0:
            visible = visible & (j >= position - case["window_left"])
        if case["window_right"] >= 0:
            visible = visible & (j <= position + case["window_right"])
        if mask is not None and mask.dtype == torch.bool:
            visible = visible & mask[b, h, i, j]
        elif mask is not None:
            score = score + mask[b, h, i, j]
        return torch.where(visible, score, -torch.inf)

    torch.compiler.reset()  # score_mod is traced even without compilation; each case has a different one
    o, aux = flex_attention(q, k, v, score_mod=score_mod, scale=case["scale"], enable_gqa=True,
                            return_aux=AuxRequest(lse=True))
    lse = aux.lse
    if case["sinks"]:
        sinks = options["sinks"].double()[:, None]
        with_sink = torch.logaddexp(lse, sinks)
        o = o * torch.exp(lse - with_sink)[..., None]
        lse = with_sink
    return {"o": o, "lse": lse}


def check_against_sdpa(case, q, k, v, options, o):
    beyond = {**case, "shape": "wide", "scale": None, "mask": "none", "causal": "none"}
    if beyond != DEFAULTS or case["causal"] == "bottom_right" or (case["causal"] != "none" and case["mask"] != "none"):
        return
    mask = options.get("mask")
    if mask is not None:
        mask = torch.atleast_2d(mask.double() if mask.is_floating_point() else mask)
    other = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=case["scale"],
                                                             is_causal=case["causal"] == "top_left", enable_gqa=True)
    sees_some = other.isfinite()  # some versions give NaN for a row that sees nothing
    torch.testing.assert_close(o[sees_some], other[sees_some])


def main():
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    torch.manual_seed(0)
    tensors, metadata = {}, {}
    for shape, (seqlen_q, seqlen_k) in SHAPES.items():
        tensors[f"{shape}/q"] = torch.randn(BATCH, HEADS, seqlen_q, HEAD_DIM)
        tensors[f"{shape}/k"] = torch.randn(BATCH, KV_HEADS, seqlen_k, HEAD_DIM)
        tensors[f"{shape}/v"] = torch.randn(BATCH, KV_HEADS, seqlen_k, HEAD_DIM_V)
    for number, case in enumerate(cases()):
        q, k, v = (tensors[f"{case['shape']}/{name}"].double() for name in "qkv")
        options = dict(tensors_of_options(case))
        results = flex_results(case, q, k, v, options)
        check_against_sdpa(case, q, k, v, options, results["o"])
        metadata[str(number)] = json.dumps(case)
        tensors |= {f"{number}/{name}": tensor for name, tensor in (options | results).items()}
    write_safetensors(FILE, tensors, metadata)
    print(f"{FILE}: {len(metadata)} cases, {FILE.stat().st_size} bytes, PyTorch {torch.__version__}")


main()
