"""The operator Attention of ai.onnx on NumPy arrays, computed by this package; does not import onnx.

It follows the operator's text in onnx 1.23, which also corrected opsets 23 and 24: softcap comes before the mask,
``is_causal`` counts from the end of the cache, and rows that see no key are 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._arrays import dtype_name, empty, precision
from ._sdpa import group_of, kernel, renamed

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_STAGES = ("raw", "softcapped", "biased", "probabilities")  # by qk_matmul_output_mode
_SOFTMAX_PRECISIONS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}  # by TensorProto.DataType
_NAMES = {"q": "Q", "k": "K", "v": "V", "mask": "attn_mask", "kv_lengths": "nonpad_kv_seqlen"}


class Inputs(NamedTuple):
    """The inputs in the operator's order; None for optional ones that are missing."""

    Q: Any
    K: Any
    V: Any
    attn_mask: Any = None
    past_key: Any = None
    past_value: Any = None
    nonpad_kv_seqlen: Any = None


class Outputs(NamedTuple):
    """The outputs in the operator's order: arrays, or their names, "" for those that are not wanted."""

    Y: Any
    present_key: Any = None
    present_value: Any = None
    qk_matmul_output: Any = None


class Attributes(NamedTuple):
    """The attributes with the operator's defaults."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None

    def check(self) -> None:
        """:raises ValueError: for a value that the operator does not have."""
        modes = range(len(_STAGES))
        if self.is_causal not in (0, 1):
            raise ValueError(f"is_causal: expected 0 or 1, got {self.is_causal}")
        if self.qk_matmul_output_mode not in modes:
            raise ValueError(f"qk_matmul_output_mode: expected 0, 1, 2 or 3, got {self.qk_matmul_output_mode}")
        if self.softmax_precision is not None and self.softmax_precision not in _SOFTMAX_PRECISIONS:
            wanted = ", ".join(f"{number} ({name})" for number, name in _SOFTMAX_PRECISIONS.items())
            raise ValueError(f"softmax_precision: expected one of {wanted}, got {self.softmax_precision}")
        for name in ("left_window_size", "right_window_size"):
            if getattr(self, name) < -1:
                raise ValueError(f"{name}: expected -1 (open) or more, got {getattr(self, name)}")
        for name in ("q_num_heads", "kv_num_heads"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}: expected 1 or more, got {getattr(self, name)}")


def attention(inputs: Inputs, attributes: Attributes, want_scores: bool, num_threads: int = 0) -> Outputs:
    """Y; with a past also present_key and present_value; with ``want_scores`` also qk_matmul_output.

    Shapes, rank 4: Q [batch, q_num_heads, q_sequence_length, head_size], K and V [batch, kv_num_heads,
    kv_sequence_length, head_size or v_head_size]; rank 3: [batch, sequence_length, num_heads * size], and Y likewise.
    Other shapes are those of the operator's text. Q, K and past_key have the same element
    type, and so have V and past_value.

    Nothing is transposed or repeated: rank 3 is read with strides, and query heads read their shared key head in
    place. Sums and softmax are computed in f32, or in f64 if an input or ``softmax_precision`` is f64; a lower
    ``softmax_precision`` is also computed in f32. Y and qk_matmul_output are then rounded once to the type of Q.

    :raises ValueError: for inputs that do not fit; names the input or attribute.
    """
    _check_types(inputs)
    q, k, v = _split_into_heads(inputs, attributes)
    present_key = _appended(inputs.past_key, k, "past_key", "K")
    present_value = _appended(inputs.past_value, v, "past_value", "V")
    k = k if present_key is None else present_key
    v = v if present_value is None else present_value
    dtype, as_rows = q.dtype, inputs.Q.ndim == 3
    if attributes.softmax_precision == 11 or "f64" in (precision(q), precision(v)):
        q, k, v = (array.astype(np.float64, copy=False) for array in (q, k, v))
    o, y = _empty_output(q, v, as_rows)
    options = {
        "causal": "top_left" if attributes.is_causal else None,
        "query_offset": _query_offset(inputs, q.shape[2]),
        "window": (attributes.left_window_size, attributes.right_window_size),
        "mask": _spanning(inputs.attn_mask, k.shape[2]),
        "kv_lengths": inputs.nonpad_kv_seqlen,
        "scale": attributes.scale,
        "softcap": attributes.softcap,
        "num_threads": num_threads,
    }
    scores = empty(q, (*q.shape[:3], k.shape[2]), precision(q)) if want_scores else None
    if scores is not None:
        options.update(scores=scores, score_stage=_STAGES[attributes.qk_matmul_output_mode])
    try:
        kernel(q.shape[2], k.shape[2], group_of(q, k))(q, k, v, o, None, None, options)
    except ValueError as error:
        raise renamed(error, _NAMES) from None
    return Outputs(_rounded(y, dtype), present_key, present_value, _rounded(scores, dtype))


def _check_types(inputs: Inputs) -> None:
    for name, array in zip(inputs._fields, inputs):
        if array is None or name in ("attn_mask", "nonpad_kv_seqlen"):
            continue
        if dtype_name(array) not in _FLOATS:
            raise ValueError(f"{name}: expected {', '.join(_FLOATS)}, got {array.dtype}")
    for name, like in (("K", "Q"), ("past_key", "Q"), ("past_value", "V")):
        array, other = getattr(inputs, name), getattr(inputs, like)
        if array is not None and array.dtype != other.dtype:
            raise ValueError(f"{name}: expected the type of {like}, {other.dtype}, got {array.dtype}")
    mask, lengths = inputs.attn_mask, inputs.nonpad_kv_seqlen
    if mask is not None and mask.dtype != np.bool_ and dtype_name(mask) not in _FLOATS:
        raise ValueError(f"attn_mask: expected bool (True = attend) or floating (added), got {mask.dtype}")
    if mask is not None and not 1 <= mask.ndim <= 4:
        raise ValueError(f"attn_mask: expected rank 1 to 4, got shape {list(mask.shape)}")
    if lengths is not None and (lengths.dtype != np.int64 or lengths.shape != inputs.Q.shape[:1]):
        wanted = f"int64 [{inputs.Q.shape[0]}]" if inputs.Q.ndim else "int64 [batch_size]"
        raise ValueError(f"nonpad_kv_seqlen: expected {wanted}, got {lengths.dtype} {list(lengths.shape)}")


def _split_into_heads(inputs: Inputs, attributes: Attributes) -> list[Any]:
    """Q, K and V as views [batch, heads, seqlen, size]."""
    views = []
    for name, array in zip("QKV", inputs):
        if array.ndim != inputs.Q.ndim or array.ndim not in (3, 4):
            shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in zip("QKV", inputs))
            raise ValueError(f"{name}: expected Q, K and V of rank 4, or all of rank 3, got {shapes}")
        attribute = "q_num_heads" if name == "Q" else "kv_num_heads"
        heads = getattr(attributes, attribute)
        if array.ndim == 4:
            if heads is not None and heads != array.shape[1]:
                raise ValueError(f"{attribute}: expected the {array.shape[1]} heads that {name} has, got {heads}")
            views.append(array)
            continue
        if heads is None:
            raise ValueError(f"{attribute}: expected, for {name} has rank 3 (shape {list(array.shape)}), but not given")
        batch, seqlen, width = array.shape
        if width % heads:
            raise ValueError(f"{attribute}: {name} is {width} wide, which is no multiple of {heads}")
        views.append(array.reshape(batch, seqlen, heads, width // heads).transpose(0, 2, 1, 3))
    return views


def _appended(past: Any, array: Any, past_name: str, name: str) -> Any:
    """The cache with the new keys or values, [batch, heads, past + new, size]; None where there is no cache."""
    if past is None:
        return None
    wanted = [array.shape[0], array.shape[1], "past_sequence_length", array.shape[3]]
    if past.ndim != 4 or any(past.shape[dim] != array.shape[dim] for dim in (0, 1, 3)):
        raise ValueError(f"{past_name}: expected [{', '.join(map(str, wanted))}], as {name} is, got {list(past.shape)}")
    return np.concatenate((past, array), axis=2)


def _query_offset(inputs: Inputs, seqlen_q: int) -> Any:
    """The position of the first query: how many keys of the cache come before it; may be negative."""
    if inputs.past_key is not None:
        return inputs.past_key.shape[2]
    if inputs.nonpad_kv_seqlen is not None:
        return inputs.nonpad_kv_seqlen - seqlen_q
    return 0


def _spanning(mask: Any, seqlen_k: int) -> Any:
    """The mask, extended to all keys; the added ones are hidden."""
    if mask is None or mask.shape[-1] >= seqlen_k:
        return mask
    padded = np.full((*mask.shape[:-1], seqlen_k), False if mask.dtype == np.bool_ else -np.inf, mask.dtype)
    padded[..., : mask.shape[-1]] = mask
    return padded


def _empty_output(q: Any, v: Any, as_rows: bool) -> tuple[Any, Any]:
    """An uninitialised array, viewed as [batch, heads, seqlen, size] and in the shape of Y."""
    batch, heads, seqlen, _ = q.shape
    size = v.shape[3]
    if not as_rows:
        o = np.empty((batch, heads, seqlen, size), q.dtype)
        return o, o
    o = np.empty((batch, seqlen, heads, size), q.dtype)
    return o.transpose(0, 2, 1, 3), o.reshape(batch, seqlen, heads * size)


def _rounded(array: Any, dtype: Any) -> Any:
    if array is None:
        return None
    with np.errstate(over="ignore"):  # a score of 1e5 is infinite in f16
        return array.astype(dtype, copy=False)
