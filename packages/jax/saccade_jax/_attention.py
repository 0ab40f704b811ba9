"""Attention with all its options."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ._call import QUANTIZED, Call, Operands, attend
from ._options import CAUSAL_CHOICES, JaxOptions, JaxPackedOptions, names_of, require_known, takes, with_defaults

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

_NAMES, _PACKED_NAMES = names_of(JaxOptions), names_of(JaxPackedOptions)
# The options that are arrays, names, two integers, integers with the least, and flags; the others are numbers.
_ARRAYS = ("mask", "block_mask", "alibi_slopes", "sinks", "kv_lengths", "kv_starts", "k_scale", "v_scale")
_CHOICES = {"causal": (None, "top_left", "bottom_right"), "layout": ("bhsd", "bshd")}
_PAIRS = {"window": (-1, ("window_left", "window_right")), "block_mask_size": (1, ("block_mask_q", "block_mask_k"))}
_INTEGERS = {"query_offset": None, "num_threads": 0}
_FLAGS = ("k_rotated", "v_rotated")
_FLOATS = ("float32", "bfloat16", "float16", "float64")


@takes(JaxOptions)
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    dropout_key: Any = None,
    return_lse: bool = False,
    **options: Unpack[JaxOptions],
) -> Any:
    """softmax(scale * q @ k.T + ...) @ v for every batch entry and head, without storing the matrix of weights.

    Shapes are those of ``layout="bhsd"``; without batch rank 3, without heads too rank 2. Each of q, k and v is
    float32, bfloat16 or float16, or all are float64; products and softmax are computed in f32 (f64). k and v may also
    be int8 or float8_e4m3fn with ``k_scale`` and ``v_scale``, unless q is float64; such a call has no gradients. A row
    that sees no key gives 0.

    Numbers, names and flags are part of the compiled program; arrays may be traced. q, k, v, a floating mask, ``sinks``
    and ``alibi_slopes`` have gradients.

    :param q: queries, [batch, heads, seqlen_q, head_dim]; heads is a multiple of kv_heads.
    :param k: keys, [batch, kv_heads, seqlen_k, head_dim].
    :param v: values, [batch, kv_heads, seqlen_k, head_dim_v].
    :param query_offset: the position of row 0: an int, or an integer array [batch] or []. Overrides that of ``causal``.
    :param dropout_key: a key of ``jax.random``, which dropout needs. The weights dropped are saccade's, not JAX's.
    :param num_threads: threads of the call; 0: the library's default, one for each core or ``OMP_NUM_THREADS``.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, seqlen_q],
        f32 (f64).
    :returns: o like q, or (o, lse).
    :raises ValueError: for arguments that do not fit; names the argument, what was wanted and what was given. Values
        in arrays are checked when the program runs, and then raise ``jax.errors.JaxRuntimeError``.
    """
    function = "attention"
    require_known(options, function, _NAMES)
    q, k, v = _operands(function, q, k, v)
    if not q.ndim == k.ndim == v.ndim or q.ndim not in (2, 3, 4):
        _refuse(function, "q, k and v", "the same rank, 2, 3 or 4", f"shapes {q.shape}, {k.shape} and {v.shape}")
    given = with_defaults(options, _NAMES)
    layout = given["layout"]
    _one_of(function, "layout", layout, _CHOICES["layout"])
    rank = q.ndim
    four = [_rank_4(x, layout) for x in (q, k, v)]
    batch, heads = _check_shapes(function, four[0], four[1], four[2], layout)
    operands: Operands = dict(zip("qkv", four))
    axis = 1 if layout == "bshd" else 2
    lengths = (four[0].shape[axis], four[1].shape[axis])
    _add_options(function, operands, given, (batch, heads, *lengths))
    for name, array in zip("kv", four[1:]):
        _add_scale(function, operands, name, given, (batch, array.shape[3 - axis], lengths[1], array.shape[3]))
    call = _call_of(function, operands, given, dropout_key, return_lse)
    o, *lse = attend(call, operands)
    o = o.reshape(*q.shape[:-1], v.shape[-1])
    return (o, lse[0].reshape(lse[0].shape[4 - rank :])) if lse else o


@takes(JaxPackedOptions)
def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *,
    dropout_key: Any = None,
    return_lse: bool = False,
    **options: Unpack[JaxPackedOptions],
) -> Any:
    """Attention over documents of different lengths packed one after the other; each sees only its own keys.

    Positions count from the beginning of the document.

    :param q: queries, [total_q, heads, head_dim].
    :param k: keys, [total_k, kv_heads, head_dim].
    :param v: values, [total_k, kv_heads, head_dim_v].
    :param cu_seqlens_q: where each document begins in q: integers [documents + 1], from 0 to total_q.
    :param cu_seqlens_k: the same in k and v; default: cu_seqlens_q.
    :param dropout_key: a key of ``jax.random``, which dropout needs.
    :param num_threads: threads of the call; 0: the library's default, one for each core or ``OMP_NUM_THREADS``.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [heads, total_q], f32 (f64).
    :returns: o like q, or (o, lse).
    :raises ValueError: as :func:`attention` does.

    Slopes are [heads] or [documents, heads]; scales broadcast to [kv_heads, total_k, head_dim].
    """
    function = "attention_varlen"
    require_known(options, function, _PACKED_NAMES)
    q, k, v = _operands(function, q, k, v)
    if not q.ndim == k.ndim == v.ndim == 3:
        _refuse(function, "q, k and v", "[total, heads, dim]", f"shapes {q.shape}, {k.shape} and {v.shape}")
    _check_shapes(function, q[None], k[None], v[None], "bshd")
    begins = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k}
    operands: Operands = {"q": q, "k": k, "v": v}
    for name, numbers in begins.items():
        array = _as_integers(function, name, numbers)
        if array.ndim != 1 or array.shape[0] < 1:
            _refuse(function, name, "shape [documents + 1]", f"shape {array.shape}")
        operands[name] = array
    documents = operands["cu_seqlens_q"].shape[0] - 1
    given = with_defaults(options, _PACKED_NAMES)
    _add_options(function, operands, given, (documents, q.shape[1], 0, 0))
    for name, array in (("k", k), ("v", v)):
        _add_scale(function, operands, name, given, (array.shape[1], array.shape[0], array.shape[2]))
    call = _call_of(function, operands, given, dropout_key, return_lse)
    o, *lse = attend(call, operands)
    return (o, *lse) if lse else o


def _refuse(function: str, name: str, wanted: str, got: str) -> None:
    raise ValueError(f"[{function}] {name}: expected {wanted}, got {got}")


def _one_of(function: str, name: str, value: Any, names: tuple[Any, ...]) -> None:
    if not any(value is known or (isinstance(value, str) and value == known) for known in names):
        hint = f"; {CAUSAL_CHOICES}" if name == "causal" else ""
        _refuse(function, name, " or ".join(repr(known) for known in names), repr(value) + hint)


def _operands(function: str, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    arrays = tuple(jnp.asarray(x) for x in (q, k, v))
    for name, array in zip("qkv", arrays):
        known = _FLOATS if name == "q" else (*_FLOATS, *QUANTIZED)
        if str(array.dtype) not in known:
            _refuse(function, name, ", ".join(known), str(array.dtype))
    doubles = [array.dtype == jnp.float64 for array in arrays]
    if any(doubles) and not all(doubles):
        types = ", ".join(str(array.dtype) for array in arrays)
        _refuse(function, "q, k and v", "all float64 or none", types)
    return arrays  # type: ignore[return-value]


def _rank_4(array: Any, layout: str) -> Any:
    if array.ndim == 2:
        array = array[:, None] if layout == "bshd" else array[None]
    return array[None] if array.ndim == 3 else array


def _check_shapes(function: str, q: Any, k: Any, v: Any, layout: str) -> tuple[int, int]:
    """The batch and the heads of q."""
    seqlen, heads = (1, 2) if layout == "bshd" else (2, 1)
    for name, array, what, axis, other_name, other in (
        ("k", k, "head_dim", 3, "q", q),
        ("v", v, "seqlen", seqlen, "k", k),
        ("v", v, "heads", heads, "k", k),
        ("k", k, "batch", 0, "q", q),
        ("v", v, "batch", 0, "k", k),
    ):
        if array.shape[axis] != other.shape[axis]:
            text = f"{name} has {what} {array.shape[axis]} but {other_name} has {other.shape[axis]}"
            raise ValueError(f"[{function}] {text}")
    if q.shape[3] < 1 or v.shape[3] < 1:
        _refuse(function, "q and v", "a head_dim of at least 1", f"shapes {q.shape} and {v.shape}")
    num_heads, kv_heads = q.shape[heads], k.shape[heads]
    if num_heads != kv_heads and (kv_heads == 0 or num_heads % kv_heads):
        raise ValueError(f"[{function}] q has {num_heads} heads, which is no multiple of the {kv_heads} heads of k")
    return q.shape[0], num_heads


def _add_options(
    function: str, operands: Operands, options: Mapping[str, Any], full: tuple[int, int, int, int]
) -> None:
    """Adds the options that are arrays. ``full``: batch, heads, seqlen_q, seqlen_k."""
    batch, heads = full[:2]
    if options.get("mask") is not None:
        mask = jnp.asarray(options["mask"])
        if mask.dtype != jnp.bool_ and str(mask.dtype) not in _FLOATS:
            _refuse(function, "mask", "bool (True = attend) or floating numbers to be added", str(mask.dtype))
        if mask.dtype in (jnp.bfloat16, jnp.float16):
            mask = mask.astype(jnp.float32)
        operands["mask"] = _broadcast(function, "mask", mask, full)
    if options.get("block_mask") is not None:
        rows, keys = _pair(function, "block_mask_size", options["block_mask_size"], 1)
        blocks = jnp.asarray(options["block_mask"])
        if blocks.dtype != jnp.bool_:
            _refuse(function, "block_mask", "bool (True = attend)", str(blocks.dtype))
        size = (batch, heads, -(-full[2] // rows), -(-full[3] // keys))
        operands["block_mask"] = _broadcast(function, "block_mask", blocks, size)
    for name in ("alibi_slopes", "sinks"):
        if options.get(name) is None:
            continue
        numbers = jnp.asarray(options[name])
        if not jnp.issubdtype(numbers.dtype, jnp.floating) and not jnp.issubdtype(numbers.dtype, jnp.integer):
            _refuse(function, name, "numbers", str(numbers.dtype))
        shapes = ((heads,), (batch, heads)) if name == "alibi_slopes" else ((heads,),)
        if numbers.shape not in shapes:
            _refuse(function, name, " or ".join(f"shape {shape}" for shape in shapes), f"shape {numbers.shape}")
        operands[name] = numbers.astype(jnp.float32)
    for name in ("query_offset", "kv_lengths", "kv_starts"):
        value = options.get(name)
        if value is not None and not (name == "query_offset" and _is_integer(value)):
            operands[name] = _integers(function, name, value, batch)


def _broadcast(function: str, name: str, mask: Any, full: tuple[int, ...]) -> Any:
    fits = all(length in (1, wanted) for length, wanted in zip(mask.shape[::-1], full[::-1]))
    if not 1 <= mask.ndim <= 4 or not fits:
        _refuse(function, name, f"rank 1 to 4 and a shape that broadcasts to {full}", f"shape {mask.shape}")
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def _is_integer(value: Any) -> bool:
    try:
        operator.index(value)
    except (TypeError, jax.errors.JAXTypeError):
        return False
    return True


def _as_integers(function: str, name: str, numbers: Any) -> Any:
    array = jnp.asarray(numbers)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        _refuse(function, name, "integers", str(array.dtype))
    return array if array.dtype in (jnp.int32, jnp.int64) else array.astype(jnp.int32)


def _integers(function: str, name: str, numbers: Any, batch: int) -> Any:
    """A number for each batch entry."""
    array = _as_integers(function, name, numbers)
    if array.shape not in ((), (batch,)):
        _refuse(function, name, f"shape {(batch,)} or ()", f"shape {array.shape}")
    return jnp.broadcast_to(array, (batch,))


def _add_scale(
    function: str, operands: Operands, tensor: str, options: Mapping[str, Any], full: tuple[int, ...]
) -> None:
    """Adds ``k_scale`` or ``v_scale``, which broadcasts to ``full``, with all its dimensions."""
    name, dtype = f"{tensor}_scale", str(operands[tensor].dtype)
    value = options.get(name)
    if value is None:
        if dtype == "int8":
            _refuse(function, name, f"floating numbers, because {tensor} is int8", "None")
        return
    if dtype not in QUANTIZED:
        _refuse(function, name, f"None, because {tensor} is {dtype}, which has no scales", "an array")
    scale = jnp.asarray(value)
    if not jnp.issubdtype(scale.dtype, jnp.floating):
        _refuse(function, name, "floating numbers", str(scale.dtype))
    lengths = (1,) * (len(full) - scale.ndim) + scale.shape
    if len(lengths) != len(full) or not all(length in (1, wanted) for length, wanted in zip(lengths, full)):
        _refuse(function, name, f"a shape that broadcasts to {full}", f"shape {scale.shape}")
    if lengths[-1] > 1 and lengths[-2] > 1:
        _refuse(function, name, "a scale for each token or for each channel, not for both", f"shape {scale.shape}")
    operands[name] = scale.astype(jnp.float32).reshape(lengths)


def _flag(function: str, name: str, value: Any) -> int:
    if not isinstance(value, (bool, np.bool_)):
        _refuse(function, name, "True or False", repr(value))
    return int(value)


def _integer(function: str, name: str, value: Any, least: int | None) -> int:
    if not _is_integer(value) or (least is not None and value < least):
        _refuse(function, name, "an integer" if least is None else f"{least} or more", repr(value))
    return operator.index(value)


def _pair(function: str, name: str, value: Any, least: int) -> tuple[int, int]:
    both = (value, value) if _is_integer(value) else value
    if not isinstance(both, (tuple, list)) or len(both) != 2 or not all(map(_is_integer, both)):
        _refuse(function, name, "two integers", repr(value))
    first, second = (operator.index(item) for item in both)
    if min(first, second) < least:
        _refuse(function, name, f"integers of at least {least}", repr(value))
    return first, second


def _number(function: str, name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, jax.errors.JAXTypeError):
        kind = type(value).__name__
    raise ValueError(f"[{function}] {name}: expected a number, which is a part of the compiled program, got {kind}")


def _call_of(function: str, operands: Operands, options: Mapping[str, Any], dropout_key: Any, return_lse: Any) -> Call:
    """Checks what is not an array, and adds dropout's seed to the operands."""
    numbers: dict[str, Any] = {"scale": operands["q"].shape[-1] ** -0.5}
    for name, value in options.items():
        if name in _ARRAYS or name in operands:
            continue
        if name in _CHOICES:
            _one_of(function, name, value, _CHOICES[name])
            numbers[name] = value
        elif name in _PAIRS:
            least, parts = _PAIRS[name]
            numbers.update(zip(parts, _pair(function, name, value, least)))
        elif name in _INTEGERS:
            numbers[name] = _integer(function, name, value, _INTEGERS[name])
        elif name in _FLAGS:
            numbers[name] = _flag(function, name, value)
        else:
            numbers[name] = _number(function, name, value)
    _check_numbers(function, numbers)
    if numbers["dropout_p"] > 0:
        if dropout_key is None:
            raise ValueError(f"[{function}] dropout_key: dropout_p was given without a key of jax.random")
        operands["dropout_seed"] = _seed(function, dropout_key)
    numbers["num_threads"] = min(numbers["num_threads"], 1 << 16)
    return Call(tuple(sorted(numbers.items())), numbers.get("layout", "bhsd"), bool(return_lse))


def _check_numbers(function: str, numbers: Mapping[str, Any]) -> None:
    scale, cap, p = (numbers[name] for name in ("scale", "softcap", "dropout_p"))
    if not math.isfinite(scale):
        _refuse(function, "scale", "a finite number", str(scale))
    if not (cap >= 0 and math.isfinite(cap)):
        _refuse(function, "softcap", "0 (off) or a positive number", str(cap))
    if not 0 <= p < 1:
        _refuse(function, "dropout_p", "at least 0 and below 1", str(p))


def _seed(function: str, key: Any) -> Any:
    """The two words of a key, also of one in the old form, uint32 [2]."""
    words = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jnp.asarray(key)
    if words.dtype != jnp.uint32 or words.shape != (2,):
        _refuse(function, "dropout_key", "one key of two words, as of jax.random.key(0)", f"{words.dtype}{words.shape}")
    return words
