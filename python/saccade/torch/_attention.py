"""saccade.attention and saccade.attention_varlen with gradients, called eagerly, transformed by torch.func or recorded
by torch.compile and others."""

from __future__ import annotations

import sys
from operator import index
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .._options import TensorOptions, TensorPackedOptions, names_of, require_known, takes
from ._attend import draw_seed, need_an_operator
from ._operators import GIVEN, LEARNT, PAIRS, TENSORS, Call, backward, forward, operator, operator_backward
from ._tensors import autocast, is_recorded, is_transformed, require_plain
from ._transforms import TransformedAttention, TransformedGradients, tangents

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

_PLACES = {name: place for place, name in enumerate(TENSORS)}
_NAMES, _PACKED_NAMES = names_of(TensorOptions), names_of(TensorPackedOptions)


@takes(TensorOptions)
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    **options: Unpack[TensorOptions],
) -> Any:
    """:func:`saccade.attention` with gradients: ``softmax(scale * q @ k.T + ...) @ v`` for every batch entry and head,
    without storing the matrix of weights, forward and backward.

    Shapes and options are those of :func:`saccade.attention` and :class:`saccade.AttentionOptions`, without
    ``score_mod``. q, k, v, a floating ``mask``, ``sinks`` and ``alibi_slopes`` get gradients, also from a loss that
    reads lse; the gradient of a mask that is broadcast has the mask's own shape. ``torch.compile``, ``torch.export``
    and dispatch modes record the call as one operator, and ``torch.func``'s ``vmap`` and ``grad`` transform it.
    Within ``torch.autocast("cpu")`` q, k and v are cast, unless they are f64; the other tensors keep their types.

    :param q: queries, [batch, heads, seqlen_q, head_dim]; heads is a multiple of kv_heads.
    :param k: keys, [batch, kv_heads, seqlen_k, head_dim].
    :param v: values, [batch, kv_heads, seqlen_k, head_dim_v].
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, seqlen_q],
        in f32 (f64). A row that sees nothing has -inf.
    :param return_weights: also return the weights, [batch, heads, seqlen_q, seqlen_k]; they have no gradient.
    :returns: the output, like q; or a tuple of the output and those of lse and weights that were requested.
    :raises ValueError: for arguments that do not fit; names the argument, what was wanted and what was given. Pages
        (``block_table``) have no gradients.

    Gradients can be differentiated again, and forward-mode tangents pass through; these are computed in PyTorch's
    operations, a few rows at a time. Uses ``torch.get_num_threads()`` threads.
    """
    require_known(options, "attention", _NAMES)
    return _attend(q, k, v, options, return_lse, return_weights)


@takes(TensorPackedOptions)
def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *,
    return_lse: bool = False,
    **options: Unpack[TensorPackedOptions],
) -> Any:
    """:func:`saccade.attention_varlen` with gradients: documents of different lengths one after the other; each
    sees only its own keys.

    :param q: queries, [total_q, heads, head_dim].
    :param k: keys, [total_k, kv_heads, head_dim].
    :param v: values, [total_k, kv_heads, head_dim_v].
    :param cu_seqlens_q: where each document begins in q, from 0 on, then the total: integers [documents + 1].
    :param cu_seqlens_k: the same for k and v; default: cu_seqlens_q.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [heads, total_q].
    :returns: the output, like q; with return_lse a tuple of it and lse.
    :raises ValueError: as :func:`attention` does.

    The other options are those of :func:`attention`.
    """
    require_known(options, "attention_varlen", _PACKED_NAMES)
    documents = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k}
    return _attend(q, k, v, {**options, **documents, "layout": "bshd"}, return_lse)


def arguments_of(options: Any, return_weights: bool = False) -> tuple[list[Tensor | None], Call, Any]:
    """Options in the form that operators take: tensors, the others, and the seed."""
    tensors: list[Tensor | None] = [None] * len(TENSORS)
    others: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name in _PLACES and not (name == "query_offset" and isinstance(value, int)):
            tensors[_PLACES[name]] = tensor_of(value, name)
        elif name in PAIRS:
            first, second = PAIRS[name]
            others[first], others[second] = pair_of(value, name)
        else:
            others[name] = value
    seed = others.pop("seed", None)
    return tensors, Call(return_weights=return_weights, **others), seed


def pair_of(value: Any, name: str) -> tuple[int, int]:
    """An integer or two as two."""
    try:
        first, second = (value, value) if hasattr(value, "__index__") else value
        return index(first), index(second)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected an int or two, got {value!r}") from None


def _attend(q: Tensor, k: Tensor, v: Tensor, options: Any, return_lse: bool, return_weights: bool = False) -> Any:
    tensors, call, seed = arguments_of(options, return_weights)
    transformed = not is_compiling() and is_transformed()
    if not is_compiling() and not transformed:
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            require_plain(tensor, name)
    q, k, v = autocast(q, k, v)
    drawn = None
    if call.dropout_p:
        drawn = draw_seed() if seed is None else seed_of(seed)
    moves = is_recorded() and forward_ad._current_level >= 0 and not is_compiling()
    if transformed or moves:  # the operator alone loses tangents
        o, lse, weights = TransformedAttention.apply(q, k, v, *tensors, drawn, *call)
    elif is_recorded():
        o, lse, weights = operator(q, k, v, *tensors, drawn, *call)
    elif (
        forward_ad._current_level >= 0
        or torch.is_grad_enabled()
        and any(x is not None and x.requires_grad for x in (q, k, v, *tensors))
    ):
        o, lse, weights = _Attention.apply(call, drawn, q, k, v, *tensors)
    else:
        o, lse, weights = forward(q, k, v, tensors, drawn, call, return_lse)
    results = (o, *((lse,) if return_lse else ()), *((weights,) if call.return_weights else ()))
    return results if len(results) > 1 else o


def seed_of(seed: Any) -> Tensor:
    """A seed in the form that operators take."""
    try:
        bits = index(seed) % 2**64
    except TypeError:
        raise ValueError(f"seed: expected an integer, got a {type(seed).__name__}") from None
    return torch.tensor(bits - 2**64 if bits >= 2**63 else bits, dtype=torch.int64)


def tensor_of(value: Any, name: str) -> Tensor:
    """An option as a tensor."""
    if isinstance(value, Tensor):
        if not is_compiling() and not is_transformed():
            require_plain(value, name, floating=False)
        return value
    try:
        return torch.as_tensor(value)
    except (RuntimeError, TypeError, ValueError):
        raise ValueError(f"{name}: expected a tensor, got a {type(value).__name__}") from None


class _Attention(torch.autograd.Function):
    """Saves o and lse for the backward pass, but no result of size seqlen_q x seqlen_k."""

    @staticmethod
    def forward(ctx: Any, call: Call, seed: Tensor | None, q: Tensor, k: Tensor, v: Tensor, *tensors: Any) -> Any:
        o, lse, weights = forward(q, k, v, tensors, seed, call, True)
        ctx.save_for_backward(q, k, v, *tensors, o, lse, seed)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(q, k, v, *tensors, o, lse, seed)
        ctx.set_materialize_grads(False)
        if weights is not None:
            ctx.mark_non_differentiable(weights)
        ctx.call = call
        return o, lse, weights

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None, _: Any) -> Any:
        q, k, v, *tensors, o, lse, seed = ctx.saved_tensors
        needed = ctx.needs_input_grad[5 : 5 + len(LEARNT)]
        if need_an_operator(dout, dlse):
            found = operator_backward(q, k, v, o, lse, dout, dlse, *needed, *tensors, seed, *ctx.call)
        elif torch.is_grad_enabled() or forward_ad._current_level >= 0:
            found = TransformedGradients.apply(q, k, v, o, lse, dout, dlse, *needed, *tensors, seed, *ctx.call)
        else:
            found = backward(q, k, v, tensors, o, lse, dout, dlse, seed, ctx.call, needed)
        learnt = (gradient if need else None for gradient, need in zip(found[3:], needed))
        return (None, None, *found[:3], *learnt, *(None for _ in GIVEN))

    @staticmethod
    def jvp(ctx: Any, *moved: Any) -> Any:
        q, k, v, *tensors, _, _, seed = ctx.saved_tensors
        o, lse, *_ = tangents(q, k, v, *moved[2:8], None, None, None, *tensors, seed, *ctx.call)
        return o, lse, None
