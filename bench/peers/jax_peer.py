"""JAX: jax.nn.dot_product_attention, jitted."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

from .inputs import Inputs, LoopInputs, ModuleInputs
from .peer import Call, Unsupported, Way
from .problem import Problem

TITLE = "JAX"
DISTRIBUTIONS = ("jax", "jaxlib")


def start(threads: int) -> None:
    """Does nothing: XLA's pool has a thread for each processor that the process may use."""


def ways(problem: Problem) -> list[Way]:
    if problem.cache:
        raise Unsupported("no quantized caches")
    if problem.kind == "loop":
        return [Way("jit of the published operations", _loop)]
    if problem.module:
        return [Way("jit, with dot_product_attention", _module)]
    if problem.dropout_p:
        raise Unsupported("no dropout in dot_product_attention")
    if problem.softcap:
        raise Unsupported("no softcap in dot_product_attention")
    return [Way("jit of dot_product_attention", attention)]


def _tokens(array: np.ndarray) -> jax.Array:
    """[batch, heads, seqlen, dim] as [batch, seqlen, heads, dim], JAX's order."""
    return jax.device_put(np.ascontiguousarray(array.swapaxes(1, 2)))


def _heads(array: jax.Array) -> np.ndarray:
    return np.asarray(array).swapaxes(1, 2)


def _compiled(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """A call that waits for its result; compiled here, before the measurement."""
    compiled = jax.jit(function).lower(*arguments).compile()

    def run() -> Any:
        return jax.block_until_ready(compiled(*arguments))

    return run


def attention(inputs: Inputs, function: Callable[..., Any] = jax.nn.dot_product_attention) -> Call:
    """The problem by ``jax.nn.dot_product_attention``, or by another function with its arguments."""
    p = inputs.problem
    options: dict[str, Any] = {}
    is_rule_causal = p.causal and (p.causal == "top_left" or p.seqlen_q == p.seqlen_k)
    if p.documents or p.causal and not is_rule_causal and p.seqlen_q > 1:
        rule = inputs.hidden_rule()
        options["mask"] = jax.device_put(rule if rule.ndim == 4 else rule[None, None])
    else:
        if p.causal and p.seqlen_q > 1:
            options["is_causal"] = True
        if p.has_window:
            if min(p.window) < 0:
                raise Unsupported("a window that is open on one side")
            options["local_window_size"] = p.window
        if p.lengths:
            options["key_value_seq_lengths"] = jax.device_put(inputs.lengths)
    if p.mask == "bool":
        options["mask"] = jax.device_put(inputs.mask[None, None]) & options.get("mask", True)
    elif p.mask:
        options["bias"] = jax.device_put(inputs.mask[None, None])
    arrays = {name: options.pop(name) for name in ("mask", "bias", "key_value_seq_lengths") if name in options}

    def attend(q: Any, k: Any, v: Any, arrays: dict[str, Any]) -> Any:
        return function(q, k, v, **arrays, **options)

    operands = tuple(map(_tokens, (inputs.q, inputs.k, inputs.v)))
    if p.kind == "forward":
        return Call(_compiled(attend, *operands, arrays), lambda o: {"o": _heads(o)})
    dout = _tokens(inputs.dout)

    def results(gradients: Any) -> dict[str, np.ndarray]:
        return dict(zip(("dq", "dk", "dv"), map(_heads, gradients)))

    if p.kind == "backward":
        forward = jax.jit(lambda *operands: jax.vjp(functools.partial(attend, arrays=arrays), *operands)[1])
        return Call(_compiled(lambda vjp, dout: vjp(dout), forward(*operands), dout), results)

    def train(q: Any, k: Any, v: Any, arrays: dict[str, Any], dout: Any) -> Any:
        return jax.vjp(functools.partial(attend, arrays=arrays), q, k, v)[1](dout)

    return Call(_compiled(train, *operands, arrays, dout), results)


def _module(inputs: ModuleInputs) -> Call:
    p = inputs.problem

    def forward(x: Any, in_weight: Any, in_bias: Any, out_weight: Any, out_bias: Any) -> Any:
        qkv = (x @ in_weight.T + in_bias).reshape(p.batch, p.seqlen_q, 3, p.num_heads, p.head_dim)
        context = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
        return context.reshape(x.shape) @ out_weight.T + out_bias

    names = ("x", "in_weight", "in_bias", "out_weight", "out_bias")
    arguments = [jax.device_put(getattr(inputs, name)) for name in names]
    if p.kind == "forward":
        return Call(_compiled(forward, *arguments), lambda o: {"o": np.asarray(o)})

    def train(dout: Any, *arguments: Any) -> Any:
        o, vjp = jax.vjp(forward, *arguments)
        return o, vjp(dout)

    def results(outputs: Any) -> dict[str, np.ndarray]:
        o, gradients = outputs
        return {"o": np.asarray(o), "dx": np.asarray(gradients[0]), "din_weight": np.asarray(gradients[1])}

    return Call(_compiled(train, jax.device_put(inputs.dout), *arguments), results)


def _loop(inputs: LoopInputs) -> Call:
    def published(x: Any, W_query: Any, W_key: Any, W_value: Any) -> Any:
        queries, keys, values = x @ W_query, x @ W_key, x @ W_value
        return jax.nn.softmax(queries @ keys.T / jnp.sqrt(keys.shape[-1]), axis=-1) @ values

    arguments = [jax.device_put(array) for array in (inputs.x, inputs.W_query, inputs.W_key, inputs.W_value)]
    return Call(_compiled(published, *arguments), lambda o: {"o": np.asarray(o)})
