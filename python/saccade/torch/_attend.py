"""Attention of tensors of rank 2 to 4 with gradients, called eagerly or recorded by torch.compile and others."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.utils.flop_counter import register_flop_formula

from .. import _core
from .._sdpa import group_of, kernel, renamed
from ._operators import TENSORS, operator_tangents
from ._operators import Call as AllOptions
from ._tensors import empty_rows_like, is_batched, is_recorded, is_transformed, or_empty, precision, readable
from ._transforms import TransformedAttention, tangents
from ._weights import weights_of


class Call(NamedTuple):
    """The arguments of attention that are not tensors."""

    causal: str | None = None
    scale: float | None = None
    dropout_p: float = 0.0
    seed: int | None = None
    return_weights: bool = False


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: str | None,
    scale: float | None,
    dropout_p: float,
    return_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The output, and with return_weights the weights after dropout, in f32 (f64 for f64 inputs).

    :raises ValueError: with PyTorch's names of the arguments.
    """
    try:
        gradients = _needs_gradients(q, k, v, mask)
        seed = draw_seed() if dropout_p else None
        moves = forward_ad._current_level >= 0 and not is_compiling()  # an operator loses tangents, a function does not
        if is_recorded() and not moves:
            o, _, weights = _operator(q, k, v, mask, seed, causal, scale, dropout_p, return_weights, gradients)
            return o, weights if return_weights else None
        if is_recorded() or is_transformed():
            return _attend_transformed(q, k, v, mask, seed, Call(causal, scale, dropout_p, None, return_weights))
        call = Call(causal, scale, dropout_p, None if seed is None else int(seed), return_weights)
        if gradients:
            return _Attention.apply(q, k, v, mask, call)
        o, _, weights = _forward(q, k, v, mask, call)
        return o, weights
    except ValueError as error:
        raise renamed(error) from None


def _attend_transformed(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, seed: Tensor | None, call: Call
) -> tuple[Tensor, Tensor | None]:
    """For torch.func. Its gradients flow through weights that PyTorch's own operations compute."""
    probabilities = weights_of(q, k, mask, call.causal, call.scale) if call.return_weights else None
    if call.dropout_p == 1:
        return _output(q, v).zero_(), None if probabilities is None else torch.zeros_like(probabilities)
    call = call._replace(return_weights=call.return_weights and call.dropout_p > 0)
    others = (None for _ in TENSORS[1:])
    o, _, dropped = TransformedAttention.apply(q, k, v, mask, *others, seed, *_all_options(call))
    if probabilities is not None and call.dropout_p:
        probabilities = probabilities * ((dropped.detach() != 0).to(probabilities.dtype) / (1 - call.dropout_p))
    return o, probabilities


def draw_seed() -> Tensor:
    """A seed from PyTorch's default generator, which ``torch.manual_seed`` and ``torch.utils.checkpoint`` set."""
    return torch.randint(2**63 - 1, (), device="cpu")


def _needs_gradients(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    if forward_ad._current_level >= 0:  # tangents are lost outside of autograd
        return True
    return torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (mask is not None and mask.requires_grad)
    )


class _Attention(torch.autograd.Function):
    """Saves o and lse for the backward pass, but no result of size seqlen_q x seqlen_k."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, call: Call) -> Any:
        o, lse, weights = _forward(q, k, v, mask, call, with_lse=True)
        ctx.save_for_backward(q, k, v, mask, o, lse)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(q, k, v, mask, o, lse)
        ctx.set_materialize_grads(False)
        ctx.call = call
        return o, weights

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dweights: Tensor | None) -> Any:
        q, k, v, mask, o, lse = ctx.saved_tensors
        if need_an_operator(dout, dweights):
            return (*_backward_of_each(q, k, v, mask, o, lse, dout, dweights, ctx.call, ctx.needs_input_grad[3]), None)
        needs_q, needs_k, needs_v, needs_mask, _ = ctx.needs_input_grad
        given = (q, k, v, mask, o, lse, dout, dweights, ctx.call, needs_mask)
        if torch.is_grad_enabled() or forward_ad._current_level >= 0:
            return (*_Gradients.apply(*given), None)
        return (*_backward(*given, with_dq=needs_q, with_dk_dv=needs_k or needs_v), None)

    @staticmethod
    def jvp(ctx: Any, *moved: Any) -> Any:
        q, k, v, mask, _, _ = ctx.saved_tensors
        o, _, weights, *_ = _tangents(q, k, v, mask, ctx.call, moved)
        return o, weights


def attend_plainly(
    query: Any, key: Any, value: Any, dropout_p: Any, is_causal: Any, scale: Any, enable_gqa: Any
) -> Tensor | None:
    """The output if nothing about the arguments or the state of PyTorch is unusual, and the tokens are few where
    gradients are recorded; else None. This is decided in C++: the same in Python takes 8 us more (Zen 5), longer than
    PyTorch's whole function for a few tokens."""
    o = _core.plain_attention(query, key, value, dropout_p, is_causal, scale, enable_gqa)
    if type(o) is not tuple:
        return o
    done = (*o, is_causal, scale)  # a tensor in a tuple is no input to autograd
    return _FewTokens.apply(query, key, value, done)


class _FewTokens(torch.autograd.Function):
    """Attention of a call for which ``_core.plain_attention`` returns a tuple."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, done: tuple[Tensor, bool, float | None]) -> Any:
        o, *ctx.options = done
        ctx.save_for_backward(q, k, v, o)  # o so that a change in place is noticed, as it is in longer calls
        return o

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        q, k, v, _ = ctx.saved_tensors
        by_operator, create_graph = need_an_operator(dout), torch.is_grad_enabled() or forward_ad._current_level >= 0
        if not by_operator and not create_graph:
            gradients = _core.plain_attention_backward(q, k, v, dout, *ctx.options)
            if gradients is not None:
                return (*gradients, None)
        is_causal, scale = ctx.options
        call = Call("top_left" if is_causal else None, scale)
        with torch.no_grad():
            o, lse, _ = _forward(q, k, v, None, call, with_lse=True)
        assert lse is not None
        backward = _backward_of_each if by_operator else _Gradients.apply if create_graph else _backward
        return (*backward(q, k, v, None, o, lse, dout, None, call, False)[:3], None)


def need_an_operator(*gradients: Tensor | None) -> bool:
    """Whether PyTorch has to call an operator for them: batches, and classes of their own."""
    return any(x is not None and (type(x) is not Tensor or is_batched(x)) for x in gradients)


def _backward_of_each(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    o: Tensor,
    lse: Tensor,
    dout: Tensor | None,
    dweights: Tensor | None,
    call: Call,
    with_dmask: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """_backward() for batches of gradients: PyTorch calls an operator for each of them."""
    seed = None if call.seed is None else torch.tensor(call.seed)
    dq, dk, dv, dmask = _operator_backward(
        q,
        k,
        v,
        mask,
        o,
        lse,
        dout,
        dweights,
        seed,
        call.causal,
        call.scale,
        call.dropout_p,
        call.return_weights,
        with_dmask,
    )
    return dq, dk, dv, dmask if with_dmask else None


class _Gradients(torch.autograd.Function):
    """_backward(), the results of which can be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        o: Tensor,
        lse: Tensor,
        dout: Tensor | None,
        dweights: Tensor | None,
        call: Call,
        with_dmask: bool,
    ) -> Any:
        ctx.save_for_backward(q, k, v, mask, o, lse, dout, dweights)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(q, k, v, mask, o, lse, dout, dweights)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.with_dmask = call, with_dmask
        return _backward(q, k, v, mask, o, lse, dout, dweights, call, with_dmask)

    @staticmethod
    def backward(ctx: Any, *moved: Tensor | None) -> Any:
        q, k, v, mask, _, _, dout, dweights = ctx.saved_tensors
        found = _tangents(q, k, v, mask, ctx.call, moved, dout, dweights)
        o, _, weights, dq, dk, dv, dmask, *_ = found
        of_results = (None if dout is None else o, None if dweights is None else weights)
        return (dq, dk, dv, dmask, None, None, *of_results, None, None)

    @staticmethod
    def jvp(ctx: Any, *moved: Any) -> Any:
        q, k, v, mask, o, lse, dout, dweights = ctx.saved_tensors
        found = _tangents(q, k, v, mask, ctx.call, moved, dout, dweights)[3:7]
        moved_dout, moved_dweights = moved[6:8]
        if moved_dout is not None or moved_dweights is not None:  # the gradients are linear in those of the results
            backward = _backward_of_each if need_an_operator(moved_dout, moved_dweights) else _Gradients.apply
            linear = backward(q, k, v, mask, o, lse, moved_dout, moved_dweights, ctx.call, ctx.with_dmask)
            found = [a if b is None else b if a is None else a + b for a, b in zip(found, linear)]
        return (*found[:3], found[3] if ctx.with_dmask else None)


def _tangents(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    call: Call,
    moved: Any,
    dout: Tensor | None = None,
    dweights: Tensor | None = None,
) -> Any:
    options = (mask, *(None for _ in TENSORS[1:]))
    seed = None if call.seed is None else torch.tensor(call.seed)
    moves = (*moved[:4], None, None)
    return tangents(q, k, v, *moves, dout, None, dweights, *options, seed, *_all_options(call))


def _all_options(call: Call) -> AllOptions:
    return AllOptions(
        causal=call.causal,
        scale=call.scale,
        dropout_p=call.dropout_p,
        weights_after_dropout=True,
        return_weights=call.return_weights,
    )


def _forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, call: Call, with_lse: bool = False
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Output, lse and weights; lse and weights are None unless requested."""
    o = _output(q, v)
    lse = q.new_empty(q.shape[:-1], dtype=precision(q)) if with_lse else None
    weights = q.new_empty((*q.shape[:-1], k.shape[-2]), dtype=precision(q)) if call.return_weights else None
    compute = _core.attention
    if not with_lse and not call.return_weights:
        compute = kernel(q.shape[-2], k.shape[-2], group_of(q, k))
    compute(
        readable(q),
        readable(k),
        readable(v),
        o,
        lse,
        weights,
        _options(mask, call),
    )
    if call.dropout_p == 1:
        o.zero_()
        if weights is not None:
            weights.zero_()
    return o, lse, weights


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    o: Tensor,
    lse: Tensor,
    dout: Tensor | None,
    dweights: Tensor | None,
    call: Call,
    with_dmask: bool,
    with_dq: bool = True,
    with_dk_dv: bool = True,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients with respect to q, k, v and mask, from those with respect to output and weights. Without dq, or
    dk and dv, the call takes less time: three or four products instead of five."""
    learnt = mask if with_dmask else None
    if dweights is not None or not (with_dq or with_dk_dv):
        with_dq, with_dk_dv = True, dweights is not None
    dq: Tensor | None = None
    dk: Tensor | None = None
    dv: Tensor | None = None
    if dout is None or call.dropout_p == 1:
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        dmask = None if learnt is None else torch.zeros_like(learnt, dtype=precision(q))
    else:
        if with_dq:
            dq = empty_rows_like(q)
        if with_dk_dv:
            dk, dv = empty_rows_like(k), empty_rows_like(v)
        dmask = None if learnt is None else learnt.new_empty(learnt.shape, dtype=precision(q))
        _core.attention_backward(
            readable(q),
            readable(k),
            readable(v),
            readable(o),
            readable(lse),
            readable(dout),
            None,
            dq,
            dk,
            dv,
            {"dmask": dmask},
            _options(mask, call),
        )
    if dweights is not None and call.dropout_p != 1:
        assert dq is not None and dk is not None
        _add_gradients_of_weights(q, k, mask, dweights, call, dq, dk, dmask)
    return dq, dk, dv, None if dmask is None or learnt is None else dmask.to(learnt.dtype)


def _add_gradients_of_weights(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    dweights: Tensor,
    call: Call,
    dq: Tensor,
    dk: Tensor,
    dmask: Tensor | None,
) -> None:
    """Adds the gradients that q, k and mask get through the returned weights; q and k have equally many heads.

    With P = softmax(S) and W = dropout(P), dS = W * dW - P rowsum(W * dW). P and W are recomputed, so that
    programs that only read the weights need not store them.
    """
    kept = _weights(q, k, mask, call)
    probabilities = _weights(q, k, mask, call._replace(dropout_p=0.0)) if call.dropout_p else kept
    product = kept * dweights
    dscores = product - probabilities * product.sum(-1, keepdim=True)
    if dmask is not None:
        dmask += dscores.sum_to_size(dmask.shape)
    dscores *= q.shape[-1] ** -0.5 if call.scale is None else call.scale
    dq += dscores @ k.to(dscores.dtype)
    dk += dscores.transpose(-1, -2) @ q.to(dscores.dtype)


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, call: Call) -> Tensor:
    weights = _forward(q, k, k, mask, call)[2]
    assert weights is not None  # weights have gradients only if they were returned
    return weights


def _output(q: Tensor, v: Tensor) -> Tensor:
    """A new tensor for the output, with q's order of dimensions in memory, so undoing a transpose of q is free."""
    if q.shape[-1] == v.shape[-1]:
        return empty_rows_like(q)
    shape = (*q.shape[:-1], v.shape[-1])
    if len(shape) > 2 and q.stride(-3) < q.stride(-2):
        return q.new_empty((*shape[:-3], shape[-2], shape[-3], shape[-1])).transpose(-2, -3)
    return q.new_empty(shape)


def _options(mask: Tensor | None, call: Call) -> dict[str, Any]:
    options: dict[str, Any] = {"num_threads": torch.get_num_threads()}
    if mask is not None:
        options["mask"] = readable(mask)
    if call.causal is not None:
        options["causal"] = call.causal
    if call.scale is not None:
        options["scale"] = call.scale
    if call.dropout_p and call.dropout_p != 1:
        options.update(dropout_p=call.dropout_p, seed=call.seed, weights_after_dropout=True)
    return options


# The same as an operator, which torch.compile, torch.export and dispatch modes record as a single node.

_CALL = "Tensor? seed, str? causal, float? scale, float dropout_p, bool return_weights"


@torch.library.custom_op(
    "saccade::attention",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor q, Tensor k, Tensor v, Tensor? mask, {_CALL}, bool with_lse) -> (Tensor, Tensor, Tensor)",
)
def _operator(q, k, v, mask, seed, causal, scale, dropout_p, return_weights, with_lse):
    call = Call(causal, scale, dropout_p, None if seed is None else int(seed), return_weights)
    with torch.no_grad():
        return tuple(or_empty(result, q) for result in _forward(q, k, v, mask, call, with_lse))


@_operator.register_fake
def _operator_shapes(q, k, v, mask, seed, causal, scale, dropout_p, return_weights, with_lse):
    rows = q.shape[:-1]
    lse = q.new_empty(rows if with_lse else (0,), dtype=precision(q))
    weights = q.new_empty((*rows, k.shape[-2]) if return_weights else (0,), dtype=precision(q))
    return _output(q, v), lse, weights


@torch.library.custom_op(
    "saccade::attention_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor o, Tensor lse, Tensor? dout, Tensor? dweights, "
    f"{_CALL}, bool with_dmask) -> (Tensor, Tensor, Tensor, Tensor)",
)
def _operator_backward(
    q, k, v, mask, o, lse, dout, dweights, seed, causal, scale, dropout_p, return_weights, with_dmask
):
    call = Call(causal, scale, dropout_p, None if seed is None else int(seed), return_weights)
    with torch.no_grad():
        gradients = _backward(q, k, v, mask, o, lse, dout, dweights, call, with_dmask)
    return tuple(or_empty(gradient, q) for gradient in gradients)


@_operator_backward.register_fake
def _operator_backward_shapes(
    q, k, v, mask, o, lse, dout, dweights, seed, causal, scale, dropout_p, return_weights, with_dmask
):
    dmask = mask.new_empty(mask.shape) if with_dmask else q.new_empty(0, dtype=precision(q))
    return empty_rows_like(q), empty_rows_like(k), empty_rows_like(v), dmask


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    q, k, v, mask, seed, *ctx.call, _ = inputs
    o, lse, _ = output
    ctx.save_for_backward(q, k, v, mask, o, lse, seed)
    ctx.set_materialize_grads(False)


def _operator_gradients(ctx: Any, dout: Tensor | None, dlse: Tensor | None, dweights: Tensor | None) -> tuple:
    *saved, seed = ctx.saved_tensors
    with_dmask = ctx.needs_input_grad[3]
    dq, dk, dv, dmask = _operator_backward(*saved, dout, dweights, seed, *ctx.call, with_dmask)
    return dq, dk, dv, dmask if with_dmask else None, None, None, None, None, None, None


_operator.register_autograd(_operator_gradients, setup_context=_save)


def _save_backward(ctx: Any, inputs: tuple, output: tuple) -> None:
    q, k, v, mask, _, _, dout, dweights, seed, *ctx.call, _ = inputs
    ctx.save_for_backward(q, k, v, mask, dout, dweights, seed)
    ctx.set_materialize_grads(False)


def _operator_gradients_of_gradients(ctx: Any, *moved: Tensor | None) -> tuple:
    q, k, v, mask, dout, dweights, seed = ctx.saved_tensors
    causal, scale, dropout_p, return_weights = ctx.call
    call = _all_options(Call(causal, scale, dropout_p, return_weights=return_weights))
    options = (mask, *(None for _ in TENSORS[1:]), seed, *call)
    found = operator_tangents(q, k, v, *moved, None, None, dout, None, dweights, *options)
    o, _, weights, dq, dk, dv, dmask, *_ = found
    results = (None if dout is None else o, None if dweights is None else weights)
    return (dq, dk, dv, dmask if ctx.needs_input_grad[3] else None, None, None, *results, *(None,) * 6)


_operator_backward.register_autograd(_operator_gradients_of_gradients, setup_context=_save_backward)


# The floating-point operations that torch.utils.flop_counter counts, as for PyTorch's own operators: of all pairs of
# rows and keys.


@register_flop_formula(torch.ops.saccade.attention)
def _operations(q_shape: Any, k_shape: Any, v_shape: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * _pairs(q_shape, k_shape) * (q_shape[-1] + v_shape[-1])


@register_flop_formula(torch.ops.saccade.attention_backward)
def _operations_backward(q_shape: Any, k_shape: Any, v_shape: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return 2 * _pairs(q_shape, k_shape) * (3 * q_shape[-1] + 2 * v_shape[-1])


def _pairs(q_shape: Any, k_shape: Any) -> int:
    return math.prod(q_shape[:-1]) * int(k_shape[-2])
