"""OpenVINO: ScaledDotProductAttention of its CPU plugin, as a model of that one operation. Its caches are the state of
such a model."""

from __future__ import annotations

import functools
from typing import Any, Callable

import ml_dtypes
import numpy as np
import openvino
from openvino import opset13 as op

from .inputs import LOOP_SHAPE, LOOP_WIDTH, Inputs, LoopInputs, ModuleInputs
from .peer import Call, Unsupported, Way, by_turns, cache_count, rows_of_group
from .problem import Problem

TITLE = "OpenVINO"
DISTRIBUTIONS = ("openvino",)

_threads = 1


def start(threads: int) -> None:
    global _threads
    _threads = threads


def ways(problem: Problem) -> list[Way]:
    if problem.needs_gradients:
        raise Unsupported("no gradients")
    if problem.cache:
        return _cached_ways(problem)
    if problem.kind == "loop":
        return [Way("MatMul, ScaledDotProductAttention", _loop)]
    if problem.module:
        return [Way("MatMul, ScaledDotProductAttention, MatMul", _module)]
    if problem.softcap:
        raise Unsupported("no softcap")
    name = "ScaledDotProductAttention"
    found = [Way(name, _attention)]
    if problem.mask == "bool" or problem.is_structured and not problem.mask:
        found.append(Way(f"{name}, the mask as floats", functools.partial(_attention, float_mask=True)))
    if problem.num_kv_heads < problem.num_heads:
        found.append(Way(f"{name}, a group's heads as rows", functools.partial(_attention, grouped=True)))
    return found


def _tensor(array: np.ndarray) -> openvino.Tensor:
    """The same memory as a tensor."""
    if array.dtype.name == "bfloat16":
        return openvino.Tensor(array.view(np.uint16), list(array.shape), openvino.Type.bf16)
    return openvino.Tensor(array, shared_memory=True)


def _parameter(array: np.ndarray) -> Any:
    dtype = openvino.Type.bf16 if array.dtype.name == "bfloat16" else array.dtype
    return op.parameter(list(array.shape), dtype)


def _compiled(model: openvino.Model, dtype: str, **properties: Any) -> openvino.CompiledModel:
    """The model for this number of threads; ``dtype``: in which it may compute."""
    properties = {
        "INFERENCE_NUM_THREADS": _threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": dtype,
        **properties,
    }
    try:
        return openvino.Core().compile_model(model, "CPU", properties)
    except RuntimeError as error:
        raise Unsupported(str(error).splitlines()[0]) from None


def _call(arrays: list[np.ndarray], output: Callable[..., Any], shape: tuple[int, ...], dtype: str = "f32") -> Call:
    """A compiled model that computes ``output`` from a parameter for each array."""
    parameters = [_parameter(array) for array in arrays]
    request = _compiled(openvino.Model([output(*parameters)], parameters), dtype).create_infer_request()
    for index, array in enumerate(arrays):
        request.set_input_tensor(index, _tensor(array))

    kept = arrays  # the request holds their addresses only

    def run(kept: Any = kept) -> None:
        request.infer()

    def results(_: Any) -> dict[str, np.ndarray]:
        tensor = request.get_output_tensor(0)
        o = tensor.data.view(ml_dtypes.bfloat16) if tensor.element_type == openvino.Type.bf16 else tensor.data
        return {"o": o.reshape(shape)}

    return Call(run, results)


def _attention(inputs: Inputs, float_mask: bool = False, grouped: bool = False) -> Call:
    p = inputs.problem
    arrays = [rows_of_group(inputs) if grouped else inputs.q, inputs.k, inputs.v]
    is_rule_causal = p.causal and (p.causal == "top_left" or p.seqlen_q == p.seqlen_k)
    only_causal = not (p.mask or p.has_window or p.documents or p.lengths) and (is_rule_causal or p.seqlen_q == 1)
    if (p.mask or p.is_structured) and not only_causal:
        mask = inputs.whole_mask()
        if float_mask:
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        arrays.append(mask.astype(inputs.q.dtype) if mask.dtype != bool else mask)
    elif float_mask:
        raise Unsupported("no mask")
    group = 1 if grouped else p.num_heads // p.num_kv_heads

    def repeated(heads: Any) -> Any:  # each head of k or v for its query heads; the plugin recognises it
        shape = [p.batch, p.num_kv_heads, group, p.seqlen_k, p.head_dim]
        wide = op.broadcast(op.unsqueeze(heads, np.int64(2)), np.array(shape))
        return op.reshape(wide, np.array([p.batch, p.num_heads, p.seqlen_k, p.head_dim]), special_zero=False)

    def output(q: Any, k: Any, v: Any, *masks: Any) -> Any:
        if group > 1:
            k, v = repeated(k), repeated(v)
        causal = bool(only_causal and p.causal and p.seqlen_q > 1)
        return op.scaled_dot_product_attention(q, k, v, *masks, causal=causal)

    return _call(arrays, output, inputs.q.shape, p.dtype)


def _cached_ways(problem: Problem) -> list[Way]:
    if problem.cache == "int4":
        raise Unsupported("the state of a cache of u4 cannot be set")
    stored = {"bf16": (("bf16", "bf16"), ("f16", "f32")), "int8": (("u8", "bf16"), ("u8", "f32"))}[problem.cache]
    return [
        Way(f"a state of {precision} computed in {dtype}", functools.partial(_cached, precision=precision, dtype=dtype))
        for precision, dtype in stored
    ]


def _stateful(p: Problem) -> openvino.Model:
    """Appends a token to a state of keys and one of values, and computes the token's attention to them, in the form
    that the plugin makes one operation of. Its inputs: q, k, v of the token, and the order of the batch."""
    counts = (p.num_heads, p.num_kv_heads, p.num_kv_heads)
    q, new_k, new_v = (op.parameter([p.batch, count, -1, p.head_dim], np.float32) for count in counts)
    order = op.parameter([-1], np.int32)
    group = p.num_heads // p.num_kv_heads

    def state(new: Any, name: str) -> tuple[Any, Any]:
        begin = op.constant(np.zeros((p.batch, p.num_kv_heads, 0, p.head_dim), np.float32))
        shape = openvino.PartialShape([-1, p.num_kv_heads, -1, p.head_dim])
        past = op.gather(op.read_value(begin, name, openvino.Type.f32, shape), order, op.constant(np.int64(0)))
        whole = op.concat([past, new], axis=2)
        return whole, op.assign(whole, name)

    def repeated(whole: Any) -> Any:
        if group == 1:
            return whole
        shape = op.constant(np.array([1, 1, group, 1, 1], np.int64))
        wide = op.broadcast(op.unsqueeze(whole, op.constant(np.int64(2))), shape, broadcast_spec="BIDIRECTIONAL")
        return op.reshape(wide, op.constant(np.array([0, p.num_heads, -1, p.head_dim], np.int64)), special_zero=True)

    (k, keep_k), (v, keep_v) = state(new_k, "k"), state(new_v, "v")
    o = op.scaled_dot_product_attention(q, repeated(k), repeated(v))
    return openvino.Model([op.result(o)], [keep_k, keep_v], [q, new_k, new_v, order])


def _cached(inputs: Inputs, precision: str, dtype: str) -> Call:
    """One new token over states, each of a request of its own. Each call appends its token, so later calls read a few
    keys more than the first."""
    p = inputs.problem
    if p.seqlen_k < 3:
        raise Unsupported("too few keys")
    compiled = _compiled(_stateful(p), dtype, KV_CACHE_PRECISION=precision)

    def request() -> Any:
        made = compiled.create_infer_request()
        for state in made.query_state():
            state.state = openvino.Tensor(
                np.ascontiguousarray((inputs.k if state.name == "k" else inputs.v)[:, :, :-2])
            )
        # The last token but one makes the state's memory larger, which a cache in use seldom needs.
        for token in (p.seqlen_k - 2, p.seqlen_k - 1):
            arrays = [inputs.q, *(np.ascontiguousarray(of[:, :, token, None]) for of in (inputs.k, inputs.v))]
            for index, array in enumerate([*arrays, np.arange(p.batch, dtype=np.int32)]):
                made.set_input_tensor(index, openvino.Tensor(array))
            if token == p.seqlen_k - 2:
                made.infer()
        return made

    def run(of: Any) -> np.ndarray:
        of.infer()
        return of.get_output_tensor(0).data

    requests = [request() for _ in range(cache_count(p))]
    return Call(by_turns([functools.partial(run, of) for of in requests]), lambda o: {"o": o})


def _module(inputs: ModuleInputs) -> Call:
    p = inputs.problem

    def output(x: Any) -> Any:
        qkv = op.add(op.matmul(x, op.constant(inputs.in_weight), False, True), op.constant(inputs.in_bias))
        split_shape = np.array([p.batch, p.seqlen_q, p.num_heads, p.head_dim])
        parts = [
            op.transpose(op.reshape(part, split_shape, special_zero=False), np.array([0, 2, 1, 3]))
            for part in op.split(qkv, np.int64(2), 3).outputs()
        ]
        context = op.transpose(op.scaled_dot_product_attention(*parts), np.array([0, 2, 1, 3]))
        joined = op.reshape(context, np.array(inputs.x.shape), special_zero=False)
        return op.add(op.matmul(joined, op.constant(inputs.out_weight), False, True), op.constant(inputs.out_bias))

    return _call([inputs.x], output, inputs.x.shape)


def _loop(inputs: LoopInputs) -> Call:
    def output(x: Any) -> Any:
        weights = (inputs.W_query, inputs.W_key, inputs.W_value)
        return op.scaled_dot_product_attention(*(op.matmul(x, op.constant(weight), False, False) for weight in weights))

    return _call([inputs.x.reshape(1, *LOOP_SHAPE)], output, (LOOP_SHAPE[0], LOOP_WIDTH))
