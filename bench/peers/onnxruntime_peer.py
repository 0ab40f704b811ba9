"""ONNX Runtime: the standard's Attention, and MultiHeadAttention and GroupQueryAttention of com.microsoft."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import onnxruntime
from onnx import helper

from .inputs import LOOP_SHAPE, LOOP_WIDTH, Inputs, LoopInputs, ModuleInputs, aligned
from .peer import Call, Unsupported, Way, by_turns, cache_count, rows_of_group
from .problem import Problem

TITLE = "ONNX Runtime"
DISTRIBUTIONS = ("onnxruntime",)

_OPSETS = (("", 24), ("com.microsoft", 1))
_IR_VERSION = 11
_MICROSOFT = ("MultiHeadAttention", "GroupQueryAttention")  # operators of com.microsoft; all others are standard
_threads = 1


def start(threads: int) -> None:
    global _threads
    _threads = threads


def ways(problem: Problem) -> list[Way]:
    if problem.needs_gradients:
        raise Unsupported("no gradients")
    if problem.cache:
        return _cached_ways(problem)
    if problem.dtype == "bf16":
        raise Unsupported("no kernels of bf16 on the CPU")
    if problem.kind == "loop":
        return [
            Way("MatMul, MatMul, Softmax, MatMul", _loop_of_products),
            Way("MatMul, MultiHeadAttention", _loop_with_attention),
        ]
    if problem.module:
        return [Way("MatMul, MultiHeadAttention, MatMul", _module)]
    found = [Way("Attention", attention), Way("GroupQueryAttention", _group_query)]
    if problem.num_kv_heads == problem.num_heads:
        return found + [Way("MultiHeadAttention", _multi_head)]
    return found + [Way("Attention, a group's heads as rows", functools.partial(attention, grouped=True))]


def _element_type(dtype: np.dtype) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)


def _node(operation: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    domain = "com.microsoft" if operation in _MICROSOFT else ""
    return helper.make_node(operation, inputs, outputs, domain=domain, **attributes)


def _call(
    nodes: Sequence[Any],
    feeds: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    results: Callable[[], dict[str, np.ndarray]],
    constants: Mapping[str, np.ndarray] | None = None,
    register: Callable[[onnxruntime.SessionOptions], Any] | None = None,
) -> Call:
    """A session that reads ``feeds`` in place and writes to ``outputs``. ``register`` adds operators to its options."""
    run = _bound(_session(nodes, feeds, outputs, constants, register), feeds, outputs)
    return Call(run, lambda _: results())


def _session(
    nodes: Sequence[Any],
    feeds: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    register: Callable[[onnxruntime.SessionOptions], Any] | None = None,
) -> onnxruntime.InferenceSession:
    """A session for inputs and outputs like these."""

    def infos(arrays: Mapping[str, np.ndarray]) -> list[Any]:
        return [helper.make_tensor_value_info(n, _element_type(a.dtype), a.shape) for n, a in arrays.items()]

    initializers = [
        helper.make_tensor(name, _element_type(a.dtype), a.shape, a.tobytes(), raw=True)
        for name, a in (constants or {}).items()
    ]
    graph = helper.make_graph(nodes, "problem", infos(feeds), infos(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in _OPSETS], ir_version=_IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = _threads, 1
    if register:
        register(options)
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Unsupported(str(error).splitlines()[0]) from None


def _bound(
    session: onnxruntime.InferenceSession, feeds: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> Callable[[], None]:
    """Runs the session on these arrays, in place."""
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_input(name, "cpu", 0, _element_type(array.dtype), array.shape, array.ctypes.data)
    for name, array in outputs.items():
        binding.bind_output(name, "cpu", 0, _element_type(array.dtype), array.shape, array.ctypes.data)
    kept = (feeds, outputs)  # the binding holds addresses only

    def run(kept: Any = kept) -> None:
        session.run_with_iobinding(binding)

    return run


def _tokens(array: np.ndarray) -> np.ndarray:
    """[batch, heads, seqlen, dim] as [batch, seqlen, heads * dim]."""
    return np.ascontiguousarray(array.swapaxes(1, 2)).reshape(array.shape[0], array.shape[2], -1)


def _heads(array: np.ndarray, heads: int) -> np.ndarray:
    return array.reshape(*array.shape[:2], heads, -1).swapaxes(1, 2)


def _float_mask(mask: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A mask as numbers to be added, of rank 4."""
    numbers = np.where(mask, dtype.type(0), dtype.type(-np.inf)) if mask.dtype == bool else mask.astype(dtype)
    return numbers.reshape((1,) * (4 - mask.ndim) + mask.shape)


def attention(
    inputs: Inputs, grouped: bool = False, register: Callable[[onnxruntime.SessionOptions], Any] | None = None
) -> Call:
    """The problem by the operator Attention.

    :param register: adds another implementation of it to the options of the session.
    """
    p = inputs.problem
    q = rows_of_group(inputs) if grouped else inputs.q
    feeds = {"q": q, "k": inputs.k, "v": inputs.v}
    names, attributes = ["q", "k", "v"], {"softcap": p.softcap} if p.softcap else {}
    is_rule_causal = p.causal and (p.causal == "top_left" or p.seqlen_q == p.seqlen_k)
    if p.lengths and not (p.causal or p.mask or p.has_window):
        feeds["lengths"] = inputs.lengths.astype(np.int64)
        names += ["", "", "", "lengths"]
    elif p.mask or p.has_window or p.documents or p.lengths or p.causal and p.seqlen_q > 1 and not is_rule_causal:
        feeds["mask"] = inputs.whole_mask()
        names.append("mask")
    elif p.causal and p.seqlen_q > 1:
        attributes["is_causal"] = 1
    o = np.empty_like(q)
    node = _node("Attention", names, ["o"], **attributes)
    return _call([node], feeds, {"o": o}, lambda: {"o": o.reshape(inputs.q.shape)}, register=register)


def _multi_head(inputs: Inputs) -> Call:
    p = inputs.problem
    if p.softcap:
        raise Unsupported("no softcap")
    feeds = {"q": _tokens(inputs.q), "k": _tokens(inputs.k), "v": _tokens(inputs.v)}
    names, attributes = ["q", "k", "v"], {"num_heads": p.num_heads}
    if p.lengths and not (p.causal or p.mask or p.has_window):
        feeds["lengths"] = inputs.lengths
        names += ["", "lengths"]
    elif p.mask or p.has_window or p.documents or p.lengths or p.causal and p.seqlen_q != p.seqlen_k:
        feeds["bias"] = _float_mask(inputs.whole_mask(), inputs.q.dtype)
        names += ["", "", "bias"]
    elif p.causal:
        attributes["unidirectional"] = 1
    o = np.empty_like(feeds["q"])
    node = _node("MultiHeadAttention", names, ["o"], **attributes)
    return _call([node], feeds, {"o": o}, lambda: {"o": _heads(o, p.num_heads)})


def _group_query(inputs: Inputs) -> Call:
    """Causal attention of the last tokens, over a cache whose memory the caller shares, or of a whole prompt."""
    p = inputs.problem
    is_decode = p.causal == "bottom_right" and p.seqlen_q < p.seqlen_k
    if not p.causal or p.causal == "top_left" and p.seqlen_q != p.seqlen_k or p.documents or p.lengths:
        raise Unsupported("GroupQueryAttention is causal, of whole sequences")
    attributes: dict[str, Any] = {"num_heads": p.num_heads, "kv_num_heads": p.num_kv_heads}
    if p.has_window:
        attributes["local_window_size"] = p.window[0] + 1
    if p.softcap:
        attributes["softcap"] = p.softcap
    new = slice(p.seqlen_k - p.seqlen_q, p.seqlen_k)
    feeds = {"q": _tokens(inputs.q), "new_k": _tokens(inputs.k[:, :, new]), "new_v": _tokens(inputs.v[:, :, new])}
    names = ["q", "new_k", "new_v", "", "", "last", "total"]
    if is_decode:
        feeds.update(past_k=inputs.k, past_v=inputs.v)
        names[3:5] = ["past_k", "past_v"]
    feeds["last"] = np.full(p.batch, p.seqlen_k - 1, np.int32)
    feeds["total"] = np.array([p.seqlen_k], np.int32)
    if p.mask:
        feeds["bias"] = _float_mask(inputs.mask, inputs.q.dtype)
        names += ["", "", "", "bias"]
    o = np.empty_like(feeds["q"])
    present_k, present_v = (inputs.k, inputs.v) if is_decode else (np.empty_like(inputs.k), np.empty_like(inputs.v))
    outputs = {"o": o, "present_k": present_k, "present_v": present_v}
    node = _node("GroupQueryAttention", names, list(outputs), **attributes)
    return _call([node], feeds, outputs, lambda: {"o": _heads(o, p.num_heads)})


def _cached_ways(problem: Problem) -> list[Way]:
    if problem.cache == "bf16":
        return [Way("GroupQueryAttention, f16", _cached)]
    return [
        Way(f"GroupQueryAttention, {problem.cache}, a scale per {of}", functools.partial(_cached, scale_per=of))
        for of in ("channel", "tensor")
    ]


def _cached(inputs: Inputs, scale_per: str = "") -> Call:
    """One new token over caches of GroupQueryAttention, whose scales were found beforehand: one for each head and
    channel, or one for all."""
    p = inputs.problem
    numbers = np.dtype(np.float32 if scale_per else np.float16)
    feeds = {
        "q": _tokens(inputs.q).astype(numbers),
        "new_k": _tokens(inputs.k[:, :, -1:]).astype(numbers),
        "new_v": _tokens(inputs.v[:, :, -1:]).astype(numbers),
        "last": np.full(p.batch, p.seqlen_k - 1, np.int32),
        "total": np.array([p.seqlen_k], np.int32),
    }
    names = ["q", "new_k", "new_v", "past_k", "past_v", "last", "total"]
    attributes: dict[str, Any] = {"num_heads": p.num_heads, "kv_num_heads": p.num_kv_heads}
    k, v = inputs.k.astype(numbers), inputs.v.astype(numbers)
    if scale_per:
        bits = {"int8": 8, "int4": 4}[p.cache]
        kind = f"PER_{scale_per.upper()}"
        attributes.update(kv_cache_bit_width=bits, k_quant_type=kind, v_quant_type=kind)
        axes = (0, 2) if scale_per == "channel" else None
        k, feeds["k_scale"] = _quantized(k, bits, axes)
        v, feeds["v_scale"] = _quantized(v, bits, axes)
        names += [""] * 5 + ["k_scale", "v_scale"]
    o = np.empty_like(feeds["q"])
    node = _node("GroupQueryAttention", names, ["o", "present_k", "present_v"], **attributes)
    copies = [(aligned(k), aligned(v)) for _ in range(cache_count(p))]
    arrays = [({**feeds, "past_k": k, "past_v": v}, {"o": o, "present_k": k, "present_v": v}) for k, v in copies]
    session = _session([node], *arrays[0])
    return Call(by_turns([_bound(session, *of) for of in arrays]), lambda _: {"o": _heads(o, p.num_heads)})


def _quantized(array: np.ndarray, bits: int, axes: tuple[int, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as GroupQueryAttention stores them, and their scale, the same along these axes (None: all): int8, or
    two of 4 bits in a byte, the first in the lower half, with 8 added."""
    most = 2 ** (bits - 1) - 1
    scale = np.abs(array).max(axis=axes, keepdims=axes is not None) / np.float32(most)
    numbers = np.clip(np.rint(array / scale), -most - 1, most).astype(np.int8)
    if bits == 4:
        numbers = (numbers + 8).astype(np.uint8)
        numbers = numbers[..., ::2] | numbers[..., 1::2] << 4
    return numbers, np.asarray(scale, np.float32).reshape(scale.shape or (1,))


def _module(inputs: ModuleInputs) -> Call:
    p = inputs.problem
    constants = {"in_weight": inputs.in_weight.T, "in_bias": inputs.in_bias}
    constants.update(out_weight=inputs.out_weight.T, out_bias=inputs.out_bias)
    nodes = [
        _node("MatMul", ["x", "in_weight"], ["products"]),
        _node("Add", ["products", "in_bias"], ["qkv"]),
        _node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3),
        _node("MultiHeadAttention", ["q", "k", "v"], ["context"], num_heads=p.num_heads),
        _node("MatMul", ["context", "out_weight"], ["projected"]),
        _node("Add", ["projected", "out_bias"], ["o"]),
    ]
    o = np.empty_like(inputs.x)
    return _call(nodes, {"x": inputs.x}, {"o": o}, lambda: {"o": o}, constants)


def _projections() -> list[Any]:
    return [_node("MatMul", ["x", f"W_{name}"], [name]) for name in ("query", "key", "value")]


def _loop_call(nodes: Sequence[Any], inputs: LoopInputs, lead: tuple[int, ...]) -> Call:
    constants = {"W_query": inputs.W_query, "W_key": inputs.W_key, "W_value": inputs.W_value}
    constants["factor"] = np.array(LOOP_WIDTH**-0.5, np.float32)
    o = np.empty((*lead, LOOP_SHAPE[0], LOOP_WIDTH), np.float32)
    x = inputs.x.reshape(*lead, *LOOP_SHAPE)
    return _call([*_projections(), *nodes], {"x": x}, {"o": o}, lambda: {"o": o.reshape(o.shape[-2:])}, constants)


def _loop_with_attention(inputs: LoopInputs) -> Call:
    node = _node("MultiHeadAttention", ["query", "key", "value"], ["o"], num_heads=1)
    return _loop_call([node], inputs, (1,))


def _loop_of_products(inputs: LoopInputs) -> Call:
    nodes = [
        _node("Transpose", ["key"], ["key_t"], perm=[1, 0]),
        _node("MatMul", ["query", "key_t"], ["products"]),
        _node("Mul", ["products", "factor"], ["scores"]),
        _node("Softmax", ["scores"], ["weights"], axis=-1),
        _node("MatMul", ["weights", "value"], ["o"]),
    ]
    return _loop_call(nodes, inputs, ())
