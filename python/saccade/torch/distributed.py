"""Attention over several processes of ``torch.distributed``, with gradients; o and dq have the bits of one by default.

The sequence is divided among the ranks of a process group; each calls :func:`scaled_dot_product_attention` with its
rows and keys, together and in the same order as the others. ``torchrun --nproc-per-node 2 program.py`` starts this::

    import torch.distributed as dist
    from saccade.torch.distributed import Sharding, scaled_dot_product_attention

    dist.init_process_group("gloo")
    sharding = Sharding.zigzag(length, dist.get_world_size())
    rows = sharding.indices(dist.get_rank())
    q, k, v = (x[:, :, rows].detach().requires_grad_() for x in (q, k, v))
    o = scaled_dot_product_attention(q, k, v, sharding=sharding, causal="top_left")
    o.sum().backward()

- :func:`scaled_dot_product_attention`: :func:`saccade.torch.attention` with a process group.
- :func:`communicator`: that of a process group, for the functions of :mod:`saccade.distributed`.
- :class:`Sharding`: which rows each rank holds.

:func:`saccade.torch.patch` answers the calls within PyTorch's ``context_parallel()``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from .. import _core
from .._communicators import CommunicationError, Communicator
from .._options import TensorShardedOptions, names_of, require_known, takes
from .._sharding import Method, Sharding, ShardingLike
from .._together import ParallelConfig, Prepared, compute
from ..distributed import prepared
from ._attend import draw_seed
from ._attention import arguments_of, seed_of
from ._gloo import communicator
from ._operators import LEARNT, TENSORS, Call, options_of, output_like, rows_of
from ._tensors import are_batched, autocast, empty_rows_like, is_transformed, precision, readable, require_plain

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["CommunicationError", "Sharding", "communicator", "scaled_dot_product_attention"]

_NAMES = names_of(TensorShardedOptions)


@takes(TensorShardedOptions)
def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    group: Any = None,
    sharding: ShardingLike = "contiguous",
    kv_sharding: ShardingLike | None = None,
    method: Method = "automatic",
    head_groups: int = 0,
    chunk: int = 16384,
    exact: bool = False,
    timeout: float | None = None,
    return_lse: bool = False,
    **options: Unpack[TensorShardedOptions],
) -> Any:
    """:func:`saccade.torch.attention` of a problem whose sequences are divided among the ranks of a process group, on
    the CPU, with gradients.

    The options are those of the whole problem, the
    same on every rank: masks, lengths, documents and positions count the whole sequences. The output and the gradient
    of q have the bits of :func:`saccade.torch.attention` in one process (the output not with method "ring" and
    "pass_q").

    :param q: the rank's rows, [batch, heads, rows, head_dim]; with ``cu_seqlens_q`` [rows, heads, head_dim].
    :param k: its keys, [batch, kv_heads, keys, head_dim]; with ``cu_seqlens_q`` [keys, kv_heads, head_dim].
    :param v: their values, [batch, kv_heads, keys, head_dim_v]; likewise.
    :param group: a process group of any backend, or a ``DeviceMesh`` of one dimension; default: all processes.
        Messages travel in a gloo group of the same ranks, which is made at the first call and kept.
    :param sharding: which rows of the sequence each rank holds, a :class:`Sharding`; or "contiguous" (rank 0 has the
        first rows, rank 1 the next, as many as each gives) or "zigzag" (:meth:`Sharding.zigzag`), which PyTorch's
        ``context_parallel()`` calls load balancing.
    :param kv_sharding: the same for keys; default: as the rows.
    :param method: how ranks divide the work: see :func:`saccade.distributed.attention`.
    :param head_groups: with method "grid": ranks of a group, a divisor of their number; 0 otherwise.
    :param chunk: with methods "stream" and "ring": keys that travel at a time, at least 1.
    :param exact: the gradients of k and v have the bits of one process, for 7 products of matrices instead of 5.
        Otherwise they are sums over ranks of sums in f32 (f64), the same in every run.
    :param timeout: seconds to wait for another rank, from now on; at first 300.
    :param seed: of the dropout; default: rank 0 draws it from PyTorch's default generator.
    :param return_lse: also return the logarithm of each row's softmax denominator.
    :returns: the rank's rows of the output, like q; with return_lse a tuple of it and lse.
    :raises ValueError: on every rank, for a bad argument of any rank, or arguments that differ; names the rank.
    :raises CommunicationError: if a rank is gone, or does not answer in time. The group's communicator is not used
        again afterwards.

    The backward pass communicates too: all ranks run it, in the same order. Gradients of q, k and v are those of the
    rank's rows and keys; those of a floating ``mask``, ``sinks`` and ``alibi_slopes`` are those of the whole problem,
    on every rank. They cannot be differentiated again. Within ``torch.autocast("cpu")`` q, k and v are cast, unless
    they are f64. Not for ``torch.compile`` and transforms of ``torch.func``. Uses ``torch.get_num_threads()`` threads.
    """

    def read() -> Arguments:
        require_known(options, "scaled_dot_product_attention", _NAMES)
        given: dict[str, Any] = {**options}
        if given.get("cu_seqlens_q") is not None:
            given["layout"] = "bshd"
            if given.get("cu_seqlens_k") is None:
                given["cu_seqlens_k"] = given["cu_seqlens_q"]
        return Arguments(q, k, v, *arguments_of(given))

    division = ParallelConfig(sharding, kv_sharding, method, head_groups, chunk, exact)
    o, lse = attend(communicator(group, timeout=timeout), division, read, return_lse)
    return (o, lse) if return_lse else o


class Arguments:
    """A rank's arguments, checked."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, tensors: list[Any], call: Call, seed: int | None) -> None:
        if is_compiling() or is_transformed():
            raise ValueError("q: torch.compile and transforms of torch.func are not supported here")
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            require_plain(tensor, name)
        self.q, self.k, self.v = autocast(q, k, v)
        self.tensors, self.call = tensors, call
        self.draws = bool(call.dropout_p) and seed is None
        self.seed = None
        if call.dropout_p:
            self.seed = draw_seed() if seed is None else seed_of(seed)
        # Whether a backward pass will follow, and which gradients of options it will ask for.
        learnt = [x is not None and x.requires_grad for x in tensors[: len(LEARNT)]]
        records = any(learnt) or any(x.requires_grad for x in (q, k, v))
        self.records = [found and torch.is_grad_enabled() for found in (records, *learnt)]


def attend(
    communicator: Communicator, division: ParallelConfig, read: Callable[[], Arguments], return_lse: bool
) -> tuple[Tensor, Tensor | None]:
    """Output and lse of the arguments that `read` returns; what it raises is raised on every rank."""
    try:
        of = read()
    except Exception as raised:
        error = raised

        def fail() -> Prepared:
            raise error

        compute(communicator, _FORWARD, division, fail)
        raise
    if of.records[0]:
        return _Attention.apply(communicator, division, of, return_lse, of.q, of.k, of.v, *of.tensors)
    return _forward(communicator, division, of, return_lse)[:2]


_FORWARD, _BACKWARD = "distributed::attention", "distributed::attention_backward"
_RECORDED = ("requires_grad", *(f"requires_grad of {name}" for name in LEARNT))


def _forward(
    communicator: Communicator, division: ParallelConfig, of: Arguments, with_lse: bool
) -> tuple[Tensor, Tensor | None, int | None]:
    """Output, lse and the seed of rank 0."""
    results: list[Any] = []

    def prepare() -> Prepared:
        o = output_like(of.q, of.v)
        lse = of.q.new_empty(rows_of(of.q, of.call, of.tensors), dtype=precision(of.q)) if with_lse else None
        results.extend((o, lse))
        options = options_of(of.tensors, of.seed, of.call)
        arguments = _core.DistributedForward(*map(_read, (of.q, of.k, of.v)), o, lse, options)
        flags = sum(record << bit for bit, record in enumerate(of.records))
        return prepared(arguments, of.q, of.k, options, of.draws)._replace(flags=flags)

    seed = compute(communicator, _FORWARD, division, prepare, _RECORDED)
    return results[0], results[1], seed


def _read(tensor: Tensor) -> Tensor:
    return readable(tensor.detach())


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, communicator: Communicator, division: ParallelConfig, of: Arguments, return_lse: bool, *tensors: Any
    ) -> Any:
        o, lse, seed = _forward(communicator, division, of, True)
        ctx.save_for_backward(*tensors, o, lse)
        ctx.communicator, ctx.division, ctx.call, ctx.return_lse = communicator, division, of.call, return_lse
        ctx.seed = None if seed is None else seed_of(seed)
        if not return_lse:
            ctx.mark_non_differentiable(lse)
        return o, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, dlse: Tensor) -> Any:
        q, k, v, *tensors, o, lse = ctx.saved_tensors
        needed = ctx.needs_input_grad[7 : 7 + len(LEARNT)]
        found: list[Any] = []

        def prepare() -> Prepared:
            if torch.is_grad_enabled():
                raise ValueError("dout: gradients cannot be differentiated again here (create_graph)")
            if are_batched(dout, dlse):
                raise ValueError("dout: batches of gradients (is_grads_batched) are not supported here")
            require_plain(dout, "dout")
            found.extend(empty_rows_like(x) for x in (q, k, v))
            others = [x.new_empty(x.shape, dtype=precision(q)) if need else None for x, need in zip(tensors, needed)]
            found.extend(others)
            options = options_of(tensors, ctx.seed, ctx.call)
            arguments = _core.DistributedBackward(
                *map(_read, (q, k, v, o, lse, dout)),
                _read(dlse) if ctx.return_lse else None,
                *found[:3],
                {f"d{name}": gradient for name, gradient in zip(LEARNT, others)},
                options,
            )
            flags = sum(need << bit for bit, need in enumerate(needed))
            return prepared(arguments, q, k, options)._replace(flags=flags)

        compute(ctx.communicator, _BACKWARD, ctx.division, prepare, _RECORDED[1:])
        learnt = (None if gradient is None else gradient.to(x.dtype) for x, gradient in zip(tensors, found[3:]))
        return (None, None, None, None, *found[:3], *learnt, *(None for _ in TENSORS[len(LEARNT) :]))
