"""Attention, forward and backward."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Literal, NamedTuple

import numpy as np

from . import _core
from ._arguments import drops, flag, shown
from ._arrays import as_array, empty, is_torch, precision
from ._options import (
    AttentionOptions,
    BackwardOptions,
    current_layout,
    names_of,
    require_known,
    takes,
    warn_deprecated,
)

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

_FORWARD = names_of(AttentionOptions)


@takes(AttentionOptions)
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    out: Any = None,
    **options: Unpack[AttentionOptions],
) -> Any:
    """softmax(scale * q @ k.T + ...) @ v for every batch entry and head, without storing the matrix of weights.

    Shapes are those of ``layout="bhsd"``; without batch rank 3, without heads too rank 2. Each of q, k and v is
    float32, bfloat16 or float16, or all are float64; products and softmax are computed in f32 (f64).
    :class:`saccade.AttentionOptions` describes the options and the order in which they apply.

    :param q: queries, [batch, heads, seqlen_q, head_dim]; heads is a multiple of kv_heads.
    :param k: keys, [batch, kv_heads, seqlen_k, head_dim].
    :param v: values, [batch, kv_heads, seqlen_k, head_dim_v].
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, seqlen_q],
        f32 (f64): what :func:`attention_backward` and :func:`merge_states` need.
    :param return_weights: also return the weights, [batch, heads, seqlen_q, seqlen_k].
    :param out: an array for the output, [batch, heads, seqlen_q, head_dim_v]: float32, bfloat16 or float16 (or
        float64).
    :returns: the output, like q; or a tuple of the output and those of lse and weights that were requested.
    :raises ValueError: for arguments that do not fit; names the argument, what was wanted and what was given.
    """
    require_known(options, "attention", _FORWARD)
    return _attend(_core.attention, q, k, v, out, return_lse, return_weights, options)


@takes(AttentionOptions)
def decode(
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    out: Any = None,
    **options: Unpack[AttentionOptions],
) -> Any:
    """:func:`attention` for few query rows and many keys, at the speed of reading k and v once.

    Arguments and results are the same. Sums have another order, so the last bits differ from :func:`attention`'s.

    :param q: queries, [batch, heads, seqlen_q, head_dim]; seqlen_q is typically 1.
    :param k: keys, [batch, kv_heads, seqlen_k, head_dim].
    :param v: values, [batch, kv_heads, seqlen_k, head_dim_v].
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, seqlen_q].
    :param return_weights: also return the weights, [batch, heads, seqlen_q, seqlen_k].
    :param out: an array for the output, [batch, heads, seqlen_q, head_dim_v].
    :returns: the output, like q; or a tuple of the output and those of lse and weights that were requested.
    :raises ValueError: as :func:`attention` does.
    """
    require_known(options, "decode")
    return _attend(_core.decode, q, k, v, out, return_lse, return_weights, options)


@takes(AttentionOptions)
def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    out: Any = None,
    **options: Unpack[AttentionOptions],
) -> Any:
    """Attention over documents of different lengths packed one after the other; each sees only its own keys.

    :param q: queries, [total_q, heads, head_dim].
    :param k: keys, [total_k, kv_heads, head_dim].
    :param v: values, [total_k, kv_heads, head_dim_v].
    :param cu_seqlens_q: where each document begins in q: int32 or int64 [documents + 1], from 0 to total_q.
    :param cu_seqlens_k: the same in k and v; default: cu_seqlens_q.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [heads, total_q].
    :param return_weights: also return the weights, [heads, total_q, longest document of k].
    :param out: an array for the output, [total_q, heads, head_dim_v].
    :param options: those of :class:`saccade.AttentionOptions`. Rows, keys and positions count from the beginning
        of the document.
    :returns: the output, like q; or a tuple of the output and those of lse and weights that were requested.
    :raises ValueError: as :func:`attention` does.
    """
    require_known(options, "attention_varlen")
    documents = {"cu_seqlens_q": as_array(cu_seqlens_q, "cu_seqlens_q"), "cu_seqlens_k": cu_seqlens_k}
    if cu_seqlens_k is None and options.get("block_table") is None:
        documents["cu_seqlens_k"] = documents["cu_seqlens_q"]
    return _attend(_core.attention, q, k, v, out, return_lse, return_weights, {**options, **documents})


class Gradients(NamedTuple):
    """The gradients of a loss; those that were not requested are None."""

    dq: Any
    """With respect to q, like it."""
    dk: Any
    """With respect to k, like it."""
    dv: Any
    """With respect to v, like it."""
    dmask: Any = None
    """With respect to a floating mask, in the shape of the mask, f32 (f64)."""
    dsinks: Any = None
    """With respect to the sinks, f32 (f64) [heads]."""
    dalibi_slopes: Any = None
    """With respect to the slopes, f32 (f64), in their shape."""


@takes(BackwardOptions)
def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    dout: Any,
    *,
    dlse: Any = None,
    return_dq: bool = True,
    return_dk_dv: bool = True,
    return_dmask: bool = False,
    return_dsinks: bool = False,
    return_dalibi_slopes: bool = False,
    **options: Unpack[BackwardOptions],
) -> Gradients:
    """The gradients of ``o, lse = attention(q, k, v, return_lse=True, **options)``, also in linear memory.

    :param q, k, v: those of the forward call.
    :param o: its output.
    :param lse: its lse, f32 (f64).
    :param dout: the gradient of the loss with respect to o, shaped like it.
    :param dlse: that with respect to lse, shaped like it, for a loss that reads lse.
    :param return_dq: with False, do not compute dq: of the five matrix products that takes four.
    :param return_dk_dv: with False, compute neither dk nor dv: that takes three. The others have the same bits.
    :param return_dmask: also return that of a floating ``mask``, in its shape: summed over broadcast dimensions.
    :param return_dsinks: also return that of ``sinks``.
    :param return_dalibi_slopes: also return that of ``alibi_slopes``.
    :param options: those of the forward call, with its ``seed`` if it used dropout; for :func:`attention_varlen`
        also its ``cu_seqlens_q`` and ``cu_seqlens_k``.
    :returns: dq, dk, dv like q, k, v, and the others in f32 (f64 for f64 inputs).
    :raises ValueError: for arguments that do not fit, and for options without a gradient (``block_table``).
    """
    require_known(options, "attention_backward")
    q, k, v = as_array(q, "q"), as_array(k, "k"), as_array(v, "v")
    given: dict[str, Any] = {**options}
    if drops(given.get("dropout_p")) and given.get("seed") is None:
        raise ValueError("[attention_backward] seed: dropout_p was given without the seed of the forward call")

    with_dq, with_dk_dv = flag(return_dq, "return_dq"), flag(return_dk_dv, "return_dk_dv")
    if not with_dq and not with_dk_dv:
        raise ValueError("[attention_backward] return_dq: one of return_dq and return_dk_dv must be True")
    dq = empty(q, q.shape) if with_dq else None
    dk, dv = (empty(k, k.shape), empty(v, v.shape)) if with_dk_dv else (None, None)
    asked = {"mask": return_dmask, "sinks": return_dsinks, "alibi_slopes": return_dalibi_slopes}
    others = {f"d{name}": gradient_of(q, given, name, wanted) for name, wanted in asked.items()}
    _core.attention_backward(q, k, v, o, lse, dout, dlse, dq, dk, dv, others, given)
    return Gradients(dq, dk, dv, **others)


def gradient_of(q: Any, options: Mapping[str, Any], name: str, wanted: bool) -> Any:
    """An array for the gradient of an option, or None."""
    if not flag(wanted, f"return_d{name}"):
        return None
    if options.get(name) is None:
        raise ValueError(f"[attention_backward] return_d{name}: {name} was not given")
    return empty(q, as_array(options[name], name).shape, precision(q))


@takes(BackwardOptions)
def attention_flops(q: Any, k: Any, v: Any, **options: Unpack[BackwardOptions]) -> float:
    """The floating-point operations of ``attention(q, k, v, **options)``: divide them by its time for FLOP/s.

    They are 2 (head_dim + head_dim_v) for each pair of a query row and a key that the row sees by ``causal``,
    ``window``, ``query_offset``, ``kv_starts``, ``kv_lengths`` and ``cu_seqlens_q``; a multiply-add counts as two.
    Masks and ``score_mod`` do not reduce the count. A backward pass counts as 2.5 times this.

    :param q, k, v: arrays of the shapes of the call; their values do not matter.
    :returns: the number of operations.
    :raises ValueError: as :func:`attention` does.
    """
    require_known(options, "attention_flops")
    try:
        return _core.attention_operations(q, k, v, {**options})
    except ValueError as error:
        raise ValueError(str(error).replace("[attention_operations]", "[attention_flops]")) from None


def attention_operations(q: Any, k: Any, v: Any, **options: Unpack[BackwardOptions]) -> float:
    """The old name of :func:`attention_flops`."""
    warn_deprecated("saccade.attention_operations is deprecated; use attention_flops")
    return attention_flops(q, k, v, **options)


def merge_states(
    o_a: Any,
    lse_a: Any,
    o_b: Any,
    lse_b: Any,
    *,
    layout: Literal["bhsd", "bshd"] = "bhsd",
) -> tuple[Any, Any]:
    """Merges attention of the same queries over two sets of keys into that over both: (output, lse).

    lse = log(exp(lse_a) + exp(lse_b)), o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b (arXiv:2501.01005, section 2.2).
    A part without keys has lse -inf and does not count.

    :param o_a: the output over the first set, as :func:`attention` returns it.
    :param lse_a: its lse, [batch, heads, seqlen_q], f32 (f64).
    :param o_b: the output over the second set, in the shape of o_a.
    :param lse_b: its lse, in the shape of lse_a.
    :param layout: of o_a, o_b and the result: "bhsd" is [batch, heads, seqlen, dim], "bshd" [batch, seqlen, heads,
        dim].
    :returns: the output, of o_a's dtype, and its lse.
    :raises ValueError: where shapes or types do not fit.
    """
    o_a, lse_a = as_array(o_a, "o_a"), as_array(lse_a, "lse_a")
    o, lse = empty(o_a, o_a.shape), empty(o_a, lse_a.shape, precision(lse_a))
    _core.merge_states(o_a, lse_a, o_b, lse_b, o, lse, current_layout(layout))
    return o, lse


def alibi_slopes(num_heads: int) -> Any:
    """The standard slopes of ALiBi (arXiv:2108.12409), for any number of heads.

    :param num_heads: how many slopes, at least 1.
    :returns: float32 [num_heads].
    :raises ValueError: for a number below 1.
    """
    return _core.alibi_slopes(num_heads)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """PyTorch's ``torch.nn.functional.scaled_dot_product_attention``: the same arguments and the same meaning.

    PyTorch tensors are passed to :func:`saccade.torch.scaled_dot_product_attention`, which has gradients.

    Differences from PyTorch: a row whose keys are all hidden is 0 for any inputs, and no case falls back to a
    matrix of L x S. Few query rows over many keys are computed as :func:`decode` does.

    :param query: [..., heads, L, E], with any number of leading dimensions.
    :param key: [..., kv_heads, S, E]; its leading dimensions may be broadcast.
    :param value: [..., kv_heads, S, Ev]; likewise.
    :param attn_mask: bool, True where a key takes part, or floating, which is added; broadcast to [..., heads, L, S].
    :param dropout_p: the probability of dropping a weight, 0 <= p <= 1; as in PyTorch, weights are dropped whenever it
        is above 0.
    :param is_causal: row i sees keys 0 to i (aligned top left); cannot be combined with attn_mask.
    :param scale: factor of the dot products; default 1 / sqrt(E).
    :param enable_gqa: heads may be a multiple of kv_heads.
    :returns: [..., heads, L, Ev], of query's dtype.
    :raises ValueError: for arguments that do not fit; names the argument.
    """
    if is_torch(query):
        from .torch import scaled_dot_product_attention as torch_attention

        return torch_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    from ._sdpa import numpy_attention

    return numpy_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _attend(
    function: Callable[..., None],
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    return_lse: bool,
    return_weights: bool,
    options: Any,
    head_dim_v: int | None = None,
) -> Any:
    """``options``: a dictionary, which becomes the function's own. ``head_dim_v``: the width of the output; by default
    that of v."""
    q, k, v = as_array(q, "q"), as_array(k, "k"), as_array(v, "v")
    if drops(options.get("dropout_p")) and options.get("seed") is None:
        options["seed"] = _core.draw_seed()
    shape = (*q.shape[:-1], *(v.shape[-1:] if head_dim_v is None else (head_dim_v,)))
    o = empty(q, shape) if out is None else out
    found = getattr(o, "shape", None)
    if isinstance(found, tuple) and found != shape:
        raise ValueError(f"out: expected {list(shape)}, got {shown(list(found))}")
    lse = weights = None
    if return_lse is not False or return_weights is not False:
        rows = rows_shape(q, options)
        if flag(return_lse, "return_lse"):
            lse = empty(q, rows, precision(q))
        if flag(return_weights, "return_weights"):
            weights = empty(q, (*rows, _seqlen_k(k, options)), precision(q))
    function(q, k, v, o, lse, weights, options)
    if lse is None and weights is None:
        return o
    return tuple(result for result in (o, lse, weights) if result is not None)


def rows_shape(q: Any, options: dict[str, Any]) -> tuple[int, ...]:
    """[batch, heads, seqlen_q], without the axes that q does not have."""
    shape = tuple(q.shape[:-1])
    bshd = _is_bshd(options) or options.get("cu_seqlens_q") is not None
    return (*shape[:-2], shape[-1], shape[-2]) if bshd and len(shape) >= 2 else shape


def _is_bshd(options: dict[str, Any]) -> bool:
    layout = options.get("layout")
    return isinstance(layout, str) and layout == "bshd"


def _seqlen_k(k: Any, options: dict[str, Any]) -> int:
    """The number of columns of the weights."""
    if options.get("cu_seqlens_k") is not None:
        starts = as_array(options["cu_seqlens_k"], "cu_seqlens_k")
        starts = np.asarray(starts if isinstance(starts, np.ndarray) else np.from_dlpack(starts))
        if starts.ndim != 1 or starts.dtype.kind not in "iu":
            raise ValueError(
                f"cu_seqlens_k: expected integers [documents + 1], got {starts.dtype} {list(starts.shape)}"
            )
        return min(int(np.diff(starts).max(initial=0)), k.shape[0] if k.shape else 0)
    length = k.shape[-3 if _is_bshd(options) and len(k.shape) >= 3 else -2] if len(k.shape) >= 2 else 0
    if options.get("block_table") is not None:
        pages = as_array(options["block_table"], "block_table").shape
        return pages[-1] * length if pages else 0
    return length
