"""torch.nn.attention.flex_attention.flex_attention on the CPU, forward and backward."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor

from .. import _core
from .._arguments import flag
from ._attention import attention, attention_varlen
from ._flex_options import Blocks, Functions, recognised
from ._tensors import empty_rows_like, precision, readable, require_plain
from ._tiles import Tiles
from ._trace import NotTraceable, Trace

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
) -> Any:
    """PyTorch's `flex_attention <https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html>`_, which has no
    backward pass on the CPU: attention with a function that changes scores, and one that hides keys.

    Both are traced at each call. What amounts to options of :func:`attention` (causal, windows, documents, softcap,
    ALiBi, a tensor of biases) runs as these; the rest runs as a program in the kernel, on all threads, a tile of scores
    at a time. A function that cannot be traced, for example because it decides by a number in Python, is called by
    PyTorch's ``vmap`` for each tile instead, which takes much longer. No matrix of all scores exists, forward or
    backward.

    :param query: [batch, heads, seqlen_q, head_dim]; key [batch, kv_heads, seqlen_k, head_dim]; value [batch, kv_heads,
        seqlen_k, head_dim_v]. A batch of 1 in key and value stands for all. Types as in :func:`attention`.
    :param score_mod: ``score_mod(score, batch, head, q_idx, kv_idx)`` returns the new score. Its arguments are tensors
        without dimensions. Tensors that it indexes may require grad.
    :param block_mask: a ``BlockMask``, as ``create_block_mask`` makes it: blocks of keys that no row of a block sees
        cost nothing. Its ``mask_mod`` decides within the blocks that are seen in part.
    :param scale: default 1 / sqrt(head_dim).
    :param enable_gqa: heads may be a multiple of kv_heads.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, seqlen_q].
    :param kernel_options: has no effect: tile sizes for PyTorch's kernels.
    :returns: the output, [batch, heads, seqlen_q, head_dim_v], or a tuple of it and lse.
    :raises ValueError: for arguments that do not fit; names the argument. A gradient of a tensor that a function uses
        without being traceable is refused too.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        require_plain(tensor, name)
        if tensor.dim() != 4:
            raise ValueError(f"{name}: wanted 4 dimensions, got shape {list(tensor.shape)}")
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not flag(enable_gqa, "enable_gqa"):
        raise ValueError(f"key: wanted {heads} heads as query has, got {kv_heads}; or enable_gqa=True")
    key, value = (x.expand(query.shape[0], -1, -1, -1) if x.shape[0] == 1 < query.shape[0] else x for x in (key, value))
    blocks = None if block_mask is None else _blocks_of(block_mask, query, key)
    mask_mod = None if block_mask is None else block_mask.mask_mod
    functions: Any
    try:
        traced = _traced(score_mod, mask_mod, blocks, query, key)
        functions = _Program(traced)
    except NotTraceable as reason:
        traced, functions = None, Tiles(score_mod, mask_mod, blocks, str(reason))
    if traced and traced.is_options_only and traced.blocks is None:
        o, lse = _attend_by_options(query, key, value, scale, traced)
    else:
        o, lse = _FlexAttention.apply(query, key, value, scale, functions, *functions.learnt)
    return (o, lse) if flag(return_lse, "return_lse") else o


def _blocks_of(mask: Any, query: Tensor, key: Tensor) -> Blocks:
    if not hasattr(mask, "kv_num_blocks"):
        raise ValueError(f"block_mask: wanted a BlockMask, got a {type(mask).__name__}")
    indices = mask.kv_indices
    effects = indices.new_zeros((*indices.shape[:-1], indices.shape[-1] + 1), dtype=torch.uint8)
    for effect, count, at in ((1, mask.full_kv_num_blocks, mask.full_kv_indices), (2, mask.kv_num_blocks, indices)):
        if count is not None:
            counts = torch.arange(at.shape[-1], device=at.device) < count[..., None]
            # Indices from `count` on mean nothing: they go to a column of their own.
            effects.scatter_(-1, torch.where(counts, at, indices.shape[-1]).long(), effect)
    block_q, block_k = mask.BLOCK_SIZE
    wanted = (query.shape[0], query.shape[1], -(-query.shape[2] // block_q), -(-key.shape[2] // block_k))
    got = tuple(indices.shape)
    if any(a not in (b, 1) for a, b in zip(got[:2], wanted)) or any(a < b for a, b in zip(got[2:], wanted[2:])):
        raise ValueError(
            f"block_mask: wanted {list(wanted[2:])} blocks of {block_q} rows and {block_k} keys for batch "
            f"{wanted[0]} and {wanted[1]} heads, got {list(got)}"
        )
    return Blocks(effects[..., :-1].contiguous(), block_q, block_k)


class _Program(NamedTuple):
    """Functions that could be traced."""

    functions: Functions

    @property
    def learnt(self) -> list[Tensor]:
        return [x for x in self.functions.trace.tensors if x.requires_grad]

    def options(self, gradients: Any = ()) -> dict[str, Any]:
        """:param gradients: where the gradients of `learnt` are to be added, in f64."""
        trace, rest = self.functions.trace, iter(gradients)
        of_tensors = [next(rest, None) if x.requires_grad else None for x in trace.tensors]
        blocks, block_q, block_k = self.functions.blocks or (None, 1, 1)
        tensors = [_loadable(x.detach()) for x in trace.tensors]
        results = (self.functions.score, self.functions.mask)
        program = _core.ScoreProgram(trace.instructions, tensors, of_tensors, *results, blocks, block_q, block_k)
        return {**self.functions.options, "score_mod": program}


def _loadable(tensor: Tensor) -> Tensor:
    if not tensor.is_cpu:
        raise ValueError(f"score_mod: wanted tensors on the CPU, got one on {tensor.device}")
    known = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bool)
    if tensor.is_complex() or tensor.layout is not torch.strided:
        raise ValueError(f"score_mod: wanted dense tensors of real numbers, got {tensor.dtype}, {tensor.layout}")
    tensor = readable(tensor)
    return tensor if tensor.dtype in known else tensor.to(torch.float32 if tensor.is_floating_point() else torch.int64)


def _traced(score_mod: Any, mask_mod: Any, blocks: Blocks | None, q: Tensor, k: Tensor) -> Functions:
    trace = Trace()
    score = 0 if score_mod is None else trace.record(score_mod, (0, 1, 2, 3, 4))
    mask = -1 if mask_mod is None else trace.record(mask_mod, (1, 2, 3, 4))
    return recognised(Functions(trace, score, mask, blocks), q, k)


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
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float | None, functions: Any, *learnt: Tensor) -> Any:
        o = empty_rows_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
        lse = q.new_empty(q.shape[:-1], dtype=precision(q))
        options = {"num_threads": torch.get_num_threads(), "scale": scale, **functions.options()}
        _core.attention(readable(q), readable(k), readable(v), o, lse, None, options)
        ctx.save_for_backward(q, k, v, o, lse, *learnt)
        ctx.set_materialize_grads(False)
        ctx.scale, ctx.functions = scale, functions
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "flex_attention: gradients that can be differentiated again (create_graph=True) are "
                "supported only where score_mod and mask_mod amount to options of attention"
            )
        q, k, v, o, lse, *learnt = ctx.saved_tensors
        dq, dk, dv = empty_rows_like(q), empty_rows_like(k), empty_rows_like(v)
        needed = ctx.needs_input_grad[5:]
        others = [torch.zeros_like(x, dtype=torch.float64) for x in learnt] if any(needed) else []
        options = {"num_threads": torch.get_num_threads(), "scale": ctx.scale, **ctx.functions.options(others)}
        dout = torch.zeros_like(o) if dout is None else readable(dout)
        tensors = (readable(q), readable(k), readable(v), o, lse, dout)
        _core.attention_backward(*tensors, None if dlse is None else readable(dlse), dq, dk, dv, {}, options)
        return (dq, dk, dv, None, None, *(d.to(x.dtype) for d, x in zip(others, learnt)))
