"""saccade, as a Python user calls it: NumPy arrays, new arrays for results."""

from __future__ import annotations

import functools
from typing import Any, Callable

import numpy as np
import saccade

from .inputs import NUMPY_DTYPES, Inputs, LoopInputs, ModuleInputs
from .peer import Call, Unsupported, Way, by_turns, cache_count
from .problem import Problem

TITLE = "saccade"
DISTRIBUTIONS = ("saccade",)


_threads = 1


def start(threads: int) -> None:
    global _threads
    _threads = threads
    saccade.set_num_threads(threads)


def details() -> dict[str, str]:
    return {"isa": saccade.info()["active_isa"]}


def release() -> None:
    saccade.release_workspaces()


def ways(problem: Problem) -> list[Way]:
    if problem.inside:
        return _packages[problem.inside](problem)
    if problem.cache:
        return [Way(f"KvCache of {problem.cache}", _cached)]
    if problem.kind == "loop":
        return [Way("nn.SelfAttention", _loop)]
    if problem.module:
        in_torch = [Way("torch.MultiheadAttention", _torch_module)] if _torch() else []
        return [Way("nn.MultiHeadAttention", _module), *in_torch]
    if problem.kind == "backward":
        return [Way("attention_backward", _backward)]
    if problem.kind == "train":
        found = [Way("attention, attention_backward", _train)]
        in_torch = _torch() and _as_in_torch(problem)
        return found + [Way("torch.scaled_dot_product_attention", _torch_train)] if in_torch else found
    if problem.documents:
        return [Way("attention_varlen", _varlen)]
    found = [Way("scaled_dot_product_attention", _sdpa)] if _as_in_torch(problem) else []
    return found + [Way("decode", _decode) if problem.decode else Way("attention", _attention)]


def _in_jax(problem: Problem) -> list[Way]:
    from . import jax_peer

    try:
        import saccade_jax
    except ImportError as error:
        raise Unsupported(f"saccade_jax is not installed ({error})") from None
    prepare = functools.partial(jax_peer.attention, function=saccade_jax.dot_product_attention)
    return [Way("saccade_jax.dot_product_attention", prepare)]


def _in_onnxruntime(problem: Problem) -> list[Way]:
    from . import onnxruntime_peer

    try:
        import saccade_onnxruntime
    except ImportError as error:
        raise Unsupported(f"saccade_onnxruntime is not installed ({error})") from None
    onnxruntime_peer.start(_threads)
    register = functools.partial(saccade_onnxruntime.register, num_threads=_threads)
    return [Way("Attention of saccade_onnxruntime", functools.partial(onnxruntime_peer.attention, register=register))]


_packages = {"jax": _in_jax, "onnxruntime": _in_onnxruntime}


def _as_in_torch(p: Problem) -> bool:
    """Whether PyTorch's function has arguments for the problem."""
    is_causal = p.causal != "bottom_right" or p.seqlen_q == p.seqlen_k or p.seqlen_q == 1
    return is_causal and not (p.has_window or p.documents or p.lengths or p.softcap)


def _torch() -> Any:
    """The package's adapters for PyTorch, or None without it."""
    try:
        import saccade.torch
    except ImportError:
        return None
    return saccade.torch


def _options(inputs: Inputs) -> dict[str, Any]:
    p = inputs.problem
    options = {
        "causal": p.causal,
        "window": p.window if p.has_window else None,
        "softcap": p.softcap or None,
        "mask": inputs.mask,
        "kv_lengths": inputs.lengths,
    }
    return {name: value for name, value in options.items() if value is not None}


def _forward_results(o: np.ndarray) -> dict[str, np.ndarray]:
    return {"o": o}


def _sdpa(inputs: Inputs) -> Call:
    p = inputs.problem
    options: dict[str, Any] = {"is_causal": True} if p.causal and p.seqlen_q > 1 else {}
    if p.mask:
        options["attn_mask"] = inputs.whole_mask() if p.causal else inputs.mask
        options.pop("is_causal", None)
    if p.num_kv_heads < p.num_heads:
        options["enable_gqa"] = True
    run = functools.partial(saccade.scaled_dot_product_attention, inputs.q, inputs.k, inputs.v, **options)
    return Call(run, _forward_results)


def _attention(inputs: Inputs, function: Callable[..., Any] = saccade.attention) -> Call:
    return Call(functools.partial(function, inputs.q, inputs.k, inputs.v, **_options(inputs)), _forward_results)


def _decode(inputs: Inputs) -> Call:
    return _attention(inputs, saccade.decode)


def _cached(inputs: Inputs) -> Call:
    p = inputs.problem
    dtype = {"bf16": "bfloat16"}.get(p.cache, p.cache)
    caches = []
    for _ in range(cache_count(p)):
        cache = saccade.KvCache(
            num_kv_heads=p.num_kv_heads, head_dim=p.head_dim, batch=p.batch, dtype=dtype, capacity=p.seqlen_k
        )
        numbers = NUMPY_DTYPES.get(p.cache, inputs.k.dtype)
        cache.append(inputs.k.astype(numbers), inputs.v.astype(numbers))
        caches.append(cache)
    q = inputs.q.astype(NUMPY_DTYPES.get(p.cache, inputs.q.dtype))
    return Call(by_turns([functools.partial(cache.decode, q) for cache in caches]), _forward_results)


def _packed(array: np.ndarray) -> np.ndarray:
    """[1, heads, total, dim] as a packed batch has it, [total, heads, dim]."""
    return np.ascontiguousarray(array[0].swapaxes(0, 1))


def _unpacked(array: np.ndarray) -> np.ndarray:
    return array.swapaxes(0, 1)[None]


def _varlen(inputs: Inputs) -> Call:
    q, k, v = map(_packed, (inputs.q, inputs.k, inputs.v))
    run = functools.partial(saccade.attention_varlen, q, k, v, inputs.cu_seqlens, **_options(inputs))
    return Call(run, lambda o: {"o": _unpacked(o)})


class _Gradients:
    """Forward and backward of a problem that may be packed."""

    def __init__(self, inputs: Inputs) -> None:
        p = inputs.problem
        self.is_packed = p.documents > 0
        self.options = _options(inputs)
        if p.dropout_p:
            self.options.update(dropout_p=p.dropout_p, seed=1)
        operands = (inputs.q, inputs.k, inputs.v, inputs.dout)
        self.q, self.k, self.v, self.dout = map(_packed, operands) if self.is_packed else operands
        if self.is_packed:
            self.options.update(cu_seqlens_q=inputs.cu_seqlens, cu_seqlens_k=inputs.cu_seqlens)

    def forward(self) -> tuple[np.ndarray, np.ndarray]:
        options = dict(self.options)
        if not self.is_packed:
            return saccade.attention(self.q, self.k, self.v, return_lse=True, **options)
        del options["cu_seqlens_k"]
        starts = options.pop("cu_seqlens_q")
        return saccade.attention_varlen(self.q, self.k, self.v, starts, return_lse=True, **options)

    def backward(self, o: np.ndarray, lse: np.ndarray) -> Any:
        return saccade.attention_backward(self.q, self.k, self.v, o, lse, self.dout, **self.options)

    def train(self) -> Any:
        return self.backward(*self.forward())

    def results(self, gradients: Any) -> dict[str, np.ndarray]:
        arrays = {"dq": gradients.dq, "dk": gradients.dk, "dv": gradients.dv}
        return {name: _unpacked(array) for name, array in arrays.items()} if self.is_packed else arrays


def _backward(inputs: Inputs) -> Call:
    gradients = _Gradients(inputs)
    return Call(functools.partial(gradients.backward, *gradients.forward()), gradients.results)


def _train(inputs: Inputs) -> Call:
    gradients = _Gradients(inputs)
    return Call(gradients.train, gradients.results)


def _torch_train(inputs: Inputs) -> Call:
    adapters = _torch()
    import torch

    from .torch_peer import numpy, tensor

    p = inputs.problem
    q, k, v = operands = [tensor(array).requires_grad_() for array in (inputs.q, inputs.k, inputs.v)]
    dout, mask = tensor(inputs.dout), None if inputs.mask is None else tensor(inputs.mask)
    options = {"is_causal": bool(p.causal), "enable_gqa": p.num_kv_heads < p.num_heads, "dropout_p": p.dropout_p}

    def run() -> Any:
        return torch.autograd.grad(adapters.scaled_dot_product_attention(q, k, v, mask, **options), operands, dout)

    return Call(run, lambda gradients: dict(zip(("dq", "dk", "dv"), map(numpy, gradients))))


def _module(inputs: ModuleInputs) -> Call:
    p = inputs.problem
    module = saccade.nn.MultiHeadAttention(
        p.width, p.width, num_heads=p.num_heads, qkv_bias=True, initialization="torch_multihead"
    )
    module.load_state_dict(_state(inputs))
    x = inputs.x
    if p.kind == "forward":
        module.eval()
        return Call(functools.partial(module, x), _forward_results)

    def run() -> tuple[np.ndarray, np.ndarray]:
        module.zero_grad()
        return module(x), module.backward(inputs.dout)

    def results(outputs: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
        names = ("W_query.weight", "W_key.weight", "W_value.weight")
        return {"o": outputs[0], "dx": outputs[1], "din_weight": np.concatenate([module.grad[name] for name in names])}

    return Call(run, results)


def _state(inputs: ModuleInputs) -> dict[str, np.ndarray]:
    """The parameters by the names of torch.nn.MultiheadAttention."""
    return {
        "in_proj_weight": inputs.in_weight,
        "in_proj_bias": inputs.in_bias,
        "out_proj.weight": inputs.out_weight,
        "out_proj.bias": inputs.out_bias,
    }


def _torch_module(inputs: ModuleInputs) -> Call:
    from .torch_peer import module_call

    return module_call(_torch().MultiheadAttention, inputs)


def _loop(inputs: LoopInputs) -> Call:
    module = saccade.nn.SelfAttention(*inputs.W_query.shape, weight_layout="in_out")
    module.load_state_dict({"W_query": inputs.W_query, "W_key": inputs.W_key, "W_value": inputs.W_value})
    module.eval()
    return Call(functools.partial(module, inputs.x), _forward_results)
