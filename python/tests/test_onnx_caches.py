"""The quantized caches of ONNX Runtime's GroupQueryAttention, read by saccade: plain tensors with scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import saccade

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime", minversion="1.32")

from onnx import TensorProto, helper  # noqa: E402

BATCH, HEADS, KV_HEADS, DIM = 2, 4, 2, 16


def model_of(scaled: str, bits: int) -> bytes:
    """One node: new tokens, a past of ``bits`` bits a number, and scales for the tensor or for each channel."""
    names = ["q", "k", "v", "past_k", "past_v", "lengths", "total", *[""] * 5, "k_scale", "v_scale"]
    formats = {"k_quant_type": scaled, "v_quant_type": scaled, "kv_cache_bit_width": bits}
    heads = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    outputs = ["o", "present_k", "present_v"]
    node = helper.make_node("GroupQueryAttention", names, outputs, domain="com.microsoft", **heads, **formats)
    cache, floats, integers = TensorProto.INT8 if bits == 8 else TensorProto.UINT8, TensorProto.FLOAT, TensorProto.INT32
    types = {"past_k": cache, "past_v": cache, "lengths": integers, "total": integers}
    ranks = {"q": 3, "k": 3, "v": 3, "past_k": 4, "past_v": 4, "lengths": 1, "total": 1, "k_scale": 4, "v_scale": 4}
    ranks = {**ranks, "k_scale": 1, "v_scale": 1} if scaled == "PER_TENSOR" else ranks
    inputs = [helper.make_tensor_value_info(n, types.get(n, floats), [None] * ranks[n]) for n in names if n]
    results = [
        helper.make_tensor_value_info(n, floats if n == "o" else cache, [None] * (3 if n == "o" else 4))
        for n in outputs
    ]
    graph = helper.make_graph([node], "decoding", inputs, results)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def present_of(scaled: str, bits: int, tokens: int, lengths: list[int], seed: int) -> tuple[Any, ...]:
    """q [batch, heads, tokens, dim], and what ONNX Runtime returns: o like q, and its cache with the new tokens."""
    rng = np.random.default_rng(seed)
    total, width = max(lengths), DIM * bits // 8
    past = [
        rng.integers(-127, 128, (BATCH, KV_HEADS, total - tokens, width)).astype(np.int8 if bits == 8 else np.uint8)
        for _ in range(2)
    ]
    q, k, v = (rng.standard_normal((BATCH, tokens, n * DIM), dtype=np.float32) for n in (HEADS, KV_HEADS, KV_HEADS))
    shape = (1,) if scaled == "PER_TENSOR" else (1, KV_HEADS, 1, DIM)
    low, high = (0.01, 0.03) if bits == 8 else (0.2, 0.5)
    scales = {name: rng.uniform(low, high, shape).astype(np.float32) for name in ("k_scale", "v_scale")}
    numbers = {"lengths": np.array(lengths, np.int32) - 1, "total": np.array([total], np.int32)}
    given = {"q": q, "k": k, "v": v, "past_k": past[0], "past_v": past[1], **numbers, **scales}
    session = onnxruntime.InferenceSession(model_of(scaled, bits), providers=["CPUExecutionProvider"])
    o, *present = session.run(None, given)
    q, o = (x.reshape(BATCH, tokens, HEADS, DIM).transpose(0, 2, 1, 3) for x in (q, o))
    return q, o, *present, scales


def unpacked(packed: Any) -> Any:
    """The numbers of a cache of 4 bits, from -8 to 7: two in a byte, the first in its lower half."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1).astype(np.int8) - np.int8(8)


@pytest.mark.parametrize("tokens, lengths", [(1, [38, 38]), (1, [38, 21]), (5, [5, 5])])
@pytest.mark.parametrize("scaled", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [8, 4])
def test_caches_of_onnxruntime(bits, scaled, tokens, lengths):
    q, o, k, v, scales = present_of(scaled, bits, tokens, lengths, seed=7)
    if bits == 4:
        k, v = unpacked(k), unpacked(v)
    assert k.dtype == v.dtype == np.int8 and k.shape == (BATCH, KV_HEADS, max(lengths), DIM)
    for call in (saccade.attention, saccade.decode):
        got = call(q, k, v, kv_lengths=np.array(lengths), causal="bottom_right", **scales)
        np.testing.assert_allclose(got, o, atol=1e-5)
