"""saccade.nn."""

from __future__ import annotations

from typing import Any

import numpy as np
from saccade import nn

from .call import Call, Case, assert_shape, sound, spoiled
from .values import Values


def module(values: Values) -> Case:
    made = values.pick(nn.SelfAttention, nn.CausalAttention, nn.MultiHeadAttentionWrapper, nn.MultiHeadAttention)
    heads = values.pick(1, 2, 3)
    d_in, d_out = values.pick(1, 3, 16), heads * values.pick(1, 2, 8)
    given: dict[str, Any] = {"d_in": d_in, "d_out": d_out, "qkv_bias": values.chance(0.5)}
    given["seed"] = values.pick(None, 0, 123)
    if made is nn.SelfAttention:
        given["weight_layout"] = values.pick("out_in", "in_out")
        given["qkv_bias"] &= given["weight_layout"] == "out_in"
    else:
        given.update(context_length=values.pick(0, 100), dropout=values.pick(0.0, 0.5))
    if made in (nn.MultiHeadAttentionWrapper, nn.MultiHeadAttention):
        given["num_heads"] = heads
    if made is nn.MultiHeadAttention:
        flags = ("causal", "out_bias", "add_bias_kv", "add_zero_attn", "batch_first")
        given.update({name: values.chance(0.3) for name in flags})
        d_in = given["d_in"] = d_out if values.chance(0.5) else d_in
    call = spoiled(values, Call(f"nn.{made.__name__}", made, given))
    layer = yield call
    if not isinstance(layer, nn.Module):
        return
    config = {"d_in": d_in, "width": d_out * heads if made is nn.MultiHeadAttentionWrapper else d_out}
    is_plain = call.fits and values.chance(0.6)
    output = None  # of the last call, if backward() may follow
    for _ in range(values.random.randint(1, 8)):
        step = values.pick(_forward, _forward, _steps, _backward, _state, _modes, _parameters)
        call = step(values, layer, config, output)
        call = call if is_plain else spoiled(values, call._replace(fits=False, check=sound))
        result = yield call
        if step in (_forward, _steps, _backward):
            output = None
        if step in (_forward, _steps) and layer.training and not isinstance(result, Exception):
            result = result["output"] if isinstance(result, dict) else result
            output = result[0] if isinstance(result, tuple) else result


def _inputs(values: Values, config: dict[str, int]) -> dict[str, Any]:
    shape = (values.pick(1, 2, 3), values.pick(1, 5, 33), config["d_in"])[values.pick(0, 1) :]
    arguments = {"query": values.laid_out(values.normal(*shape))}
    if values.chance(0.2):
        key = values.normal(*shape)
        arguments.update(key=key, value=values.pick(key, key + 1))
    if values.chance(0.2):
        arguments["causal"] = values.pick(True, False, "top_left", "bottom_right")
    return arguments


def _forward(values: Values, layer: nn.Module, config: dict[str, int], output: Any) -> Call:
    arguments = _inputs(values, config)
    shape = (*arguments["query"].shape[:-1], config["width"])
    asked = values.pick(False, False, True, "per_head", "averaged")

    def check(result: Any) -> None:
        y = result[0] if asked else result
        assert y.shape == shape and (config.get("is_odd") or np.isfinite(y).all())

    if values.chance(0.3) and len(arguments) == 1:
        return Call("Module()", lambda query: layer(query), arguments, check=lambda y: assert_shape(y, shape))
    return Call("Module.forward", layer.forward, {**arguments, "return_weights": asked}, check=check)


def _steps(values: Values, layer: nn.Module, config: dict[str, int], output: Any) -> Call:
    extra = ("mask", "key_mask", "causal", "weights_after_dropout")
    return Call("Module.steps", layer.steps, _inputs(values, config), extra=extra)


def _backward(values: Values, layer: nn.Module, config: dict[str, int], output: Any) -> Call:
    dout = np.ones((3, 4), np.float32) if output is None else values.normal(*output.shape)
    arguments = {"dout": values.laid_out(dout)}
    fits = output is not None and layer.training
    return Call("Module.backward", layer.backward, arguments, fits=fits, may_raise=(RuntimeError,))


def _state(values: Values, layer: nn.Module, config: dict[str, int], output: Any) -> Call:
    state = {name: values.laid_out(value) for name, value in layer.state_dict().items()}
    fits = values.chance(0.6)
    known = (*state, "other", "3")
    if not fits:
        config["is_odd"] = 1
        name = values.pick(*state, "other", 3)
        state[name] = values.odd(state.get(name))
        if values.chance(0.3):
            del state[next(iter(state))]
    return Call("Module.load_state_dict", layer.load_state_dict, {"state_dict": state}, fits=fits, extra=known)


def _modes(values: Values, layer: nn.Module, config: dict[str, int], output: Any) -> Call:
    return values.pick(
        Call("Module.train", layer.train, {"mode": values.chance(0.7)}),
        Call("Module.seed_dropout", layer.seed_dropout, {"seed": values.pick(0, 5, -1)}),
        Call("Module.zero_grad", layer.zero_grad, {}),
        Call("Module.eval", layer.eval, {}),
        Call("Module.state_dict", layer.state_dict, {}),
        Call("repr", lambda: repr(layer).encode(), {}),
    )


def _parameters(values: Values, layer: nn.Module, config: dict[str, int], output: Any) -> Call:
    """Parameters and gradients stay valid as long as there is a reference to them."""

    def kept() -> None:
        for arrays in (layer.parameters(), layer.grad):
            values.kept.extend(array for array in arrays.values() if array is not None)
        for array in values.kept:
            if type(array) is np.ndarray and array.flags.writeable:
                array += np.float32(0)

    return Call("Module.parameters", kept, {})
