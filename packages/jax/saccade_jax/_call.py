"""The calls of the library: two foreign functions of XLA, and the rule that makes one the gradient of the other."""

from __future__ import annotations

import ctypes
import functools
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

Operands = dict[str, Any]

# The types of keys and values that have scales.
QUANTIZED = ("int8", "float8_e4m3fn")

# The options that have gradients. The gradient of NAME is called dNAME.
LEARNT = ("mask", "sinks", "alibi_slopes")

_ATTRIBUTES: dict[type, Any] = {int: np.int64, float: np.float64, str: str}


class Call(NamedTuple):
    """What is not an array: a part of the compiled program."""

    options: tuple[tuple[str, Any], ...]  # ints, floats and texts, by the names that the library has for them
    layout: str
    return_lse: bool


def _register() -> None:
    library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "libsaccade_jax.so"))
    for name in ("saccade_jax_forward", "saccade_jax_backward"):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")


_register()


def precision(q: Any) -> Any:
    """The type of lse and of the gradients of options."""
    return jnp.float64 if q.dtype == jnp.float64 else jnp.float32


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(call: Call, operands: Operands) -> tuple[Any, ...]:
    """(o,) or (o, lse). Operands: q, k and v of rank 4 (packed: 3), masks of rank 4, and the others by the names of
    the options; ``dropout_seed`` is uint32 [2]."""
    return _forward(call, operands, call.return_lse, "cu_seqlens_q" not in operands)


def _forward(call: Call, operands: Operands, with_lse: bool, may_decode: bool) -> tuple[Any, ...]:
    q, v = operands["q"], operands["v"]
    results = {"o": jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype)}
    if with_lse:
        results["lse"] = jax.ShapeDtypeStruct(_rows(call, operands), precision(q))
    found = _foreign_call("saccade_jax_forward", call, operands, results, may_decode=np.int64(may_decode))
    return tuple(found.values())


def _rows(call: Call, operands: Operands) -> tuple[int, ...]:
    """The shape of lse: [batch, heads, seqlen_q], packed [heads, total_q]."""
    *batch, a, b, _ = operands["q"].shape
    return (*batch, b, a) if call.layout == "bshd" or "cu_seqlens_q" in operands else (*batch, a, b)


def _attend_forward(call: Call, given: Mapping[str, Any]) -> tuple[Any, Any]:
    operands = {name: array.value for name, array in given.items()}
    _refuse_gradients(call, operands)
    # Names of a dictionary are static, so they tell the backward pass which gradients are wanted.
    wanted = {name: None for name in LEARNT if name in given and given[name].perturbed}
    o, lse = _forward(call, operands, True, False)
    return (o, lse) if call.return_lse else (o,), (operands, wanted, o, lse)


def _refuse_gradients(call: Call, operands: Operands) -> None:
    """Throws where the library has no gradients, while the program is traced."""
    given = dict(call.options)
    for name in "kv":
        if (dtype := str(operands[name].dtype)) in QUANTIZED:
            raise ValueError(f"[attention] {name} is {dtype}: a call with quantized keys or values has no gradients")
        if given.get(f"{name}_rotated"):
            raise ValueError(f"[attention] {name}_rotated: a call with transformed keys or values has no gradients")


def _attend_backward(call: Call, residuals: Any, cotangents: Any) -> tuple[Operands]:
    operands, wanted, o, lse = residuals
    dout, *dlse = (None if isinstance(cotangent, SymbolicZero) else cotangent for cotangent in cotangents)
    outcome = {"o": o, "lse": lse, "dout": jnp.zeros_like(o) if dout is None else dout}
    if dlse and dlse[0] is not None:
        outcome["dlse"] = dlse[0]
    types = {name: operands[name].dtype for name in ("q", "k", "v")}
    types.update({name: precision(operands["q"]) for name in wanted})
    results = {f"d{name}": jax.ShapeDtypeStruct(operands[name].shape, dtype) for name, dtype in types.items()}
    found = _foreign_call("saccade_jax_backward", call, {**operands, **outcome}, results)
    gradients: Operands = dict.fromkeys(operands)  # None: no gradient
    gradients.update({name: found[f"d{name}"].astype(operands[name].dtype) for name in types})
    return (gradients,)


attend.defvjp(_attend_forward, _attend_backward, symbolic_zeros=True)


def _foreign_call(
    target: str, call: Call, operands: Operands, results: Mapping[str, jax.ShapeDtypeStruct], **more: Any
) -> Operands:
    attributes = {
        "operands": ",".join(operands),
        "results": ",".join(results),
        "rank": np.int64(operands["q"].ndim),
        **{name: _ATTRIBUTES[type(value)](value) for name, value in call.options},
        **more,
    }
    function = jax.ffi.ffi_call(target, tuple(results.values()), vmap_method="expand_dims")
    return dict(zip(results, function(*operands.values(), **attributes)))
