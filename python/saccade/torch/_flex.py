"""torch.nn.attention.flex_attention.flex_attention on the CPU, forward and backward."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor

from .. import _core
from .._arguments import flag
from ._attention import attention, attention_varlen
from ._flex_operators import backward, forward
from ._flex_options import Blocks, Functions, recognised
from ._lower import lowered
from ._tensors import autocast, precision, readable, require_plain
from ._tiles import Tiles
from ._trace import NotTraceable, Trace, has_tangent

try:
    from torch.nn.attention.flex_attention import AuxOutput
except ImportError:  # PyTorch before 2.9

    class AuxOutput(NamedTuple):  # type: ignore[no-redef]
        """Results beside the output, or None."""

        lse: Tensor | None = None
        max_scores: Tensor | None = None


_NO_TANGENTS = (
    "flex_attention: forward-mode tangents are supported only where score_mod and mask_mod amount to options of "
    "attention, and without max_scores"
)

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@torch.compiler.disable
def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """PyTorch's `flex_attention <https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html>`_, which has no
    backward pass on the CPU: attention with a function that changes scores, and one that hides keys.

    Both are traced at each call. What amounts to options of :func:`attention` (causal, windows, documents, softcap,
    ALiBi, a tensor of biases) runs as these; the rest runs as a program in the kernel, on all threads, a tile of scores
    at a time. A function that cannot be traced, for example because it decides by a number in Python, is called by
    PyTorch's ``vmap`` for each tile instead, which takes much longer. No matrix of all scores exists, forward or
    backward.

    :param query: [batch, heads, seqlen_q, head_dim], of a type that :func:`attention` takes.
    :param key: [batch, kv_heads, seqlen_k, head_dim]. A batch of 1 in key and value stands for all.
    :param value: [batch, kv_heads, seqlen_k, head_dim_v].
    :param score_mod: ``score_mod(score, batch, head, q_idx, kv_idx)`` returns the new score. Its arguments are tensors
        without dimensions. Tensors that it indexes may require grad.
    :param block_mask: a ``BlockMask``, as ``create_block_mask`` makes it: blocks of keys that no row of a block sees
        cost nothing. Its ``mask_mod`` decides within the blocks that are seen in part.
    :param scale: default 1 / sqrt(head_dim).
    :param enable_gqa: heads may be a multiple of kv_heads.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, seqlen_q].
    :param kernel_options: has no effect: tile sizes for PyTorch's kernels.
    :param return_aux: an ``AuxRequest``: also return an ``AuxOutput`` with ``lse`` and ``max_scores``, the largest
        score of each row, as far as it requests them. ``max_scores`` has no gradient.
    :returns: the output, [batch, heads, seqlen_q, head_dim_v], or a tuple of it and lse or an ``AuxOutput``.
    :raises ValueError: for arguments that do not fit; names the argument. A gradient of a tensor that a function uses
        without being traceable is refused too.
    :raises NotImplementedError: for forward-mode tangents, where the functions are no options of :func:`attention`.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        require_plain(tensor, name)
        if tensor.dim() != 4:
            raise ValueError(f"{name}: expected 4 dimensions, got shape {list(tensor.shape)}")
    query, key, value = autocast(query, key, value)
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not flag(enable_gqa, "enable_gqa"):
        raise ValueError(f"key: expected {heads} heads as query has, got {kv_heads}; or enable_gqa=True")
    key, value = (x.expand(query.shape[0], -1, -1, -1) if x.shape[0] == 1 < query.shape[0] else x for x in (key, value))
    wants_lse, wants_max = _auxiliary(return_lse, return_aux)
    if score_mod is not None and not callable(score_mod):
        raise ValueError(f"score_mod: expected a function, got a {type(score_mod).__name__}")
    blocks = None if block_mask is None else _blocks_of(block_mask, query, key)
    mask_mod = None if block_mask is None else block_mask.mask_mod
    if 0 in (*query.shape[:3], key.shape[2]):  # no scores
        score_mod = mask_mod = blocks = None
    functions: Any
    try:
        traced = _traced(score_mod, mask_mod, blocks, query, key, recognises=not wants_max)
        functions = _Program(traced)
    except NotTraceable as reason:
        traced, functions = None, Tiles(score_mod, mask_mod, blocks, str(reason), precision(query))
    maxima = None
    if traced and traced.is_options_only and traced.blocks is None and not wants_max:
        o, lse = _attend_by_options(query, key, value, scale, traced)
    else:
        if any(has_tangent(x) for x in (query, key, value, *functions.tensors)):
            raise NotImplementedError(_NO_TANGENTS)
        o, lse, maxima = _FlexAttention.apply(query, key, value, scale, wants_max, functions, *functions.tensors)
    if return_aux is not None:
        return o, AuxOutput(lse if wants_lse else None, maxima if wants_max else None)
    return (o, lse) if wants_lse else o


def _auxiliary(return_lse: Any, return_aux: Any) -> tuple[bool, bool]:
    """Whether lse and max_scores are wanted."""
    wants_lse = flag(return_lse, "return_lse")
    if return_aux is None:
        return wants_lse, False
    if wants_lse:
        raise ValueError("return_aux: expected return_aux=AuxRequest(lse=True) alone, got return_lse=True too")
    if not (hasattr(return_aux, "lse") and hasattr(return_aux, "max_scores")):
        raise ValueError(f"return_aux: expected an AuxRequest, got a {type(return_aux).__name__}")
    return flag(return_aux.lse, "return_aux.lse"), flag(return_aux.max_scores, "return_aux.max_scores")


def _blocks_of(mask: Any, query: Tensor, key: Tensor) -> Blocks:
    """What the mask does to the blocks of query and key. It may be made for longer ones."""
    if not (hasattr(mask, "kv_num_blocks") and callable(getattr(mask, "mask_mod", None))):
        raise ValueError(f"block_mask: expected a BlockMask, got a {type(mask).__name__}")
    indices = mask.kv_indices
    if not indices.is_cpu:
        raise ValueError(f"block_mask: expected one on the CPU, got one on {indices.device}")
    effects = indices.new_zeros((*indices.shape[:-1], indices.shape[-1] + 1), dtype=torch.uint8)
    for effect, count, at in ((1, mask.full_kv_num_blocks, mask.full_kv_indices), (2, mask.kv_num_blocks, indices)):
        if count is not None:
            counts = torch.arange(at.shape[-1], device=at.device) < count[..., None]
            # Indices from `count` on mean nothing: they go to a column of their own.
            effects.scatter_(-1, torch.where(counts, at, indices.shape[-1]).long(), effect)
    block_q, block_k = mask.BLOCK_SIZE
    rows, keys = query.shape[2], key.shape[2]
    wanted = (query.shape[0], query.shape[1], -(-rows // block_q), -(-keys // block_k))
    got = tuple(indices.shape)
    if any(a not in (b, 1) for a, b in zip(got[:2], wanted)):
        raise ValueError(f"block_mask: expected batch {wanted[0]} and {wanted[1]} heads, or 1, got {list(got[:2])}")
    # One block, PyTorch's way to say that there are none, may be smaller.
    if any(a < b for a, b in zip((*got[2:], *mask.shape[-2:]), (*wanted[2:], rows, keys))):
        raise ValueError(
            f"block_mask: expected one for at least {rows} rows and {keys} keys, got one for {mask.shape[-2]} and "
            f"{mask.shape[-1]}, with {list(got[2:])} blocks of {block_q} and {block_k}"
        )
    return Blocks(effects[..., : wanted[2], : wanted[3]].contiguous(), block_q, block_k)


class _Program:
    """Functions that could be traced."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.tensors = functions.trace.tensors

    def options(self, tensors: Any, gradients: Any = (), maxima: Tensor | None = None) -> dict[str, Any]:
        """:param gradients: where the gradients of `tensors` are to be added, in f64, or None.
        :param maxima: receives each row's largest score, [batch, heads, seqlen_q]; filled with -inf."""
        instructions, score, mask = lowered(self.functions)
        blocks, block_q, block_k = self.functions.blocks or (None, 1, 1)
        readable_tensors = [_loadable(x.detach()) for x in tensors]
        gradients = list(gradients) or [None] * len(readable_tensors)
        is_double = self.functions.trace.kinds[0].dtype is torch.float64
        program = _core.ScoreProgram(
            instructions, readable_tensors, gradients, score, mask, is_double, blocks, block_q, block_k, maxima
        )
        return {**self.functions.options, "score_mod": program}


def _loadable(tensor: Tensor) -> Tensor:
    if not tensor.is_cpu:
        raise ValueError(f"score_mod: expected tensors on the CPU, got one on {tensor.device}")
    known = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
    if tensor.is_complex() or tensor.layout is not torch.strided:
        raise ValueError(f"score_mod: expected dense tensors of real numbers, got {tensor.dtype}, {tensor.layout}")
    tensor = readable(tensor)
    return tensor if tensor.dtype in known else tensor.to(torch.float32 if tensor.is_floating_point() else torch.int64)


def _traced(
    score_mod: Any, mask_mod: Any, blocks: Blocks | None, q: Tensor, k: Tensor, recognises: bool = True
) -> Functions:
    trace = Trace(precision(q), (q.shape[0], q.shape[1], q.shape[2], k.shape[2]))
    score = 0 if score_mod is None else trace.record("score_mod", score_mod, (0, 1, 2, 3, 4))
    mask = -1 if mask_mod is None else trace.record("mask_mod", mask_mod, (1, 2, 3, 4))
    if mask >= 0 and trace.kinds[mask].dtype is not torch.bool:
        raise ValueError(f"mask_mod: expected a function that returns bool, got {trace.kinds[mask].dtype}")
    functions = Functions(trace, score, mask, blocks)
    return recognised(functions, q, k) if recognises else functions


def _attend_by_options(q: Tensor, k: Tensor, v: Tensor, scale: float | None, functions: Functions) -> Any:
    if functions.documents is None:
        return attention(q, k, v, scale=scale, return_lse=True, **functions.options)
    batch, _, seqlen, _ = q.shape
    numbers = functions.documents.expand(batch, -1)
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[:, 1:] = numbers.diff(dim=-1) > 0
    starts = torch.cat((begins.flatten().nonzero()[:, 0], torch.tensor([batch * seqlen])))
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    o, lse = attention_varlen(q, k, v, starts, scale=scale, return_lse=True, **functions.options)
    return o.unflatten(0, (batch, seqlen)).transpose(1, 2), lse.unflatten(1, (batch, seqlen)).transpose(0, 1)


class _FlexAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: Any, wants_max: bool, functions: Any, *tensors: Any):
        o, lse, maxima = forward(functions, q, k, v, list(tensors), scale, wants_max)
        ctx.save_for_backward(q, k, v, o, lse, *tensors)  # so that a change in place is noticed
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(maxima)
        ctx.scale, ctx.functions = scale, functions
        return o, lse, maxima

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None, _: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "flex_attention: gradients that can be differentiated again (create_graph=True) are "
                "supported only where score_mod and mask_mod amount to options of attention"
            )
        if any(x is not None and has_tangent(x) for x in (dout, dlse)):
            raise NotImplementedError(_NO_TANGENTS)
        q, k, v, o, lse, *tensors = ctx.saved_tensors
        needed = ctx.needs_input_grad[6:]
        found = iter(backward(ctx.functions, q, k, v, o, lse, dout, dlse, tensors, list(needed), ctx.scale))
        dq, dk, dv = (next(found) for _ in range(3))
        return (dq, dk, dv, None, None, None, *(next(found) if need else None for need in needed))
