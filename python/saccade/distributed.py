"""Attention over several processes or machines; o and dq have the bits of one by default.

The sequence is divided among the ranks of a communicator; each calls these functions with its rows and keys, together
and in the same order as the others. Start the program with ``mpirun -n 4 python program.py``, for example::

    from mpi4py import MPI
    from saccade.distributed import Sharding, attention

    sharding = Sharding.zigzag(length, MPI.COMM_WORLD.size)
    rows = sharding.indices(MPI.COMM_WORLD.rank)
    q, k, v = (x[:, :, rows] for x in (q, k, v))
    o = attention(q, k, v, comm=MPI.COMM_WORLD, sharding=sharding, causal="top_left")

- :func:`attention`, :func:`attention_backward`: those of :mod:`saccade` with a communicator, for NumPy arrays.
- :func:`decode`: few rows over a cache whose keys are divided.
- :class:`Sharding`: which rows each rank holds.
- :class:`Communicator`, :class:`Transport`: over any engine that carries messages; mpi4py's communicators need none.
- :func:`local_communicators`: among threads of one process, to try things out.

:mod:`saccade.torch.distributed` has the same for ``torch.distributed``, with autograd.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import _core
from ._arguments import drops, flag
from ._arrays import as_array, empty, precision
from ._attention import Gradients, gradient_of, rows_shape
from ._communicators import CommunicationError, Communicator, Transport, communicator_of, local_communicators
from ._options import AttentionOptions, BackwardOptions, require_known, takes
from ._sharding import Method, Sharding, ShardingLike
from ._together import ParallelConfig, Prepared, compute

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "CommunicationError",
    "Communicator",
    "Sharding",
    "Transport",
    "attention",
    "attention_backward",
    "decode",
    "local_communicators",
]


@takes(BackwardOptions)
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    comm: Any,
    sharding: ShardingLike = "contiguous",
    kv_sharding: ShardingLike | None = None,
    method: Method = "automatic",
    head_groups: int = 0,
    chunk: int = 16384,
    timeout: float | None = None,
    return_lse: bool = False,
    out: Any = None,
    **options: Unpack[BackwardOptions],
) -> Any:
    """:func:`saccade.attention` of a problem whose sequences are divided among the ranks of a communicator.

    The options are those of the whole problem, the same on every rank:
    masks, lengths, documents and positions count the whole sequences. ``block_table`` is an error; ``num_threads`` and
    ``layout`` are the rank's own, and so are ``k_scale`` and ``v_scale``, those of its keys, unless they are scales of
    channels. Results have the bits that :func:`saccade.attention` gives in one process, except
    with method "ring", whose sums have another order, and "pass_q", which has the bits of :func:`decode`.

    :param q: the rank's rows, [batch, heads, rows, head_dim]; with ``cu_seqlens_q`` [rows, heads, head_dim].
    :param k: its keys, [batch, kv_heads, keys, head_dim]; with ``cu_seqlens_q`` [keys, kv_heads, head_dim].
    :param v: their values, [batch, kv_heads, keys, head_dim_v]; likewise.
    :param comm: an ``mpi4py.MPI.Intracomm``, of which a duplicate is made at the first call and kept, or a
        :class:`Communicator`.
    :param sharding: which rows of the sequence each rank holds, a :class:`Sharding`; or "contiguous" (rank 0 has the
        first rows, rank 1 the next, as many as each gives) or "zigzag" (:meth:`Sharding.zigzag`).
    :param kv_sharding: the same for keys; default: as the rows.
    :param method: how ranks divide the work. "gather": each computes its rows, and keys travel, one head during the
        one before; "heads": each computes some heads; "grid": both, in groups of ``head_groups`` ranks; "stream":
        gather with ``chunk`` keys at a time, in the least memory; "ring": the same, beginning with the rank's own
        keys; "pass_q": rows travel, for few rows over many keys. "automatic" decides by sizes.
    :param head_groups: with method "grid": ranks of a group, a divisor of their number; 0 otherwise.
    :param chunk: with methods "stream" and "ring": keys that travel at a time, at least 1.
    :param timeout: seconds to wait for another rank, from now on; at first 300.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, rows].
    :param out: an array for the rank's output.
    :returns: the rank's rows of the output, like q; with return_lse a tuple of it and lse.
    :raises ValueError: on every rank, for a bad argument of any rank, or arguments that differ; names the rank.
    :raises CommunicationError: if a rank is gone, or does not answer in time.
    :raises MemoryError: on the rank whose memory runs out, which is then gone for the others.

    Without ``seed``, dropout uses a seed that rank 0 draws. If a program of MPI ends by an exception on one rank, start
    it as ``mpirun -n 4 python -m mpi4py program.py``, which ends the others too.
    """
    division = ParallelConfig(sharding, kv_sharding, method, head_groups, chunk)
    return _forward("attention", q, k, v, communicator_of(comm, timeout), division, return_lse, out, options)


@takes(AttentionOptions)
def decode(
    q: Any,
    k: Any,
    v: Any,
    *,
    comm: Any,
    kv_sharding: ShardingLike = "contiguous",
    timeout: float | None = None,
    return_lse: bool = False,
    out: Any = None,
    **options: Unpack[AttentionOptions],
) -> Any:
    """:func:`saccade.decode` over a cache whose keys are divided among the ranks; every rank gets the whole output.

    It has the bits of :func:`saccade.decode` in one process if keys are cut at multiples of 4096, and otherwise agrees
    with it up to rounding, with the same bits on every rank. ``k_scale`` and ``v_scale`` are those of the rank's keys.

    :param q: all queries, the same on every rank, [batch, heads, seqlen_q, head_dim].
    :param k: the rank's keys, [batch, kv_heads, keys, head_dim].
    :param v: their values, [batch, kv_heads, keys, head_dim_v].
    :param comm: an ``mpi4py.MPI.Intracomm`` or a :class:`Communicator`, as for :func:`attention`.
    :param kv_sharding: which keys each rank holds: a :class:`Sharding`, "contiguous" or "zigzag".
    :param timeout: seconds to wait for another rank, from now on; at first 300.
    :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads, seqlen_q].
    :param out: an array for the output, [batch, heads, seqlen_q, head_dim_v].
    :returns: the whole output, like q; with return_lse a tuple of it and lse.
    :raises ValueError: as :func:`attention` does.
    :raises CommunicationError: if a rank is gone, or does not answer in time.
    :raises MemoryError: on the rank whose memory runs out, which is then gone for the others.
    """
    division = ParallelConfig(kv_sharding, kv_sharding)
    return _forward("decode", q, k, v, communicator_of(comm, timeout), division, return_lse, out, options)


def _forward(
    function: str,
    q: Any,
    k: Any,
    v: Any,
    communicator: Communicator,
    division: ParallelConfig,
    return_lse: bool,
    out: Any,
    options: Any,
) -> Any:
    results: list[Any] = []

    def prepare() -> Prepared:
        given = _options(options, function)
        q_, k_, v_ = as_array(q, "q"), as_array(k, "k"), as_array(v, "v")
        o = empty(q_, (*q_.shape[:-1], *v_.shape[-1:])) if out is None else out
        lse = empty(q_, rows_shape(q_, given), precision(q_)) if flag(return_lse, "return_lse") else None
        results.extend((o, lse))
        draws = drops(given.get("dropout_p")) and given.get("seed") is None
        if draws:
            given["seed"] = _core.draw_seed()
        arguments = _core.DistributedForward(q_, k_, v_, o, lse, given)
        found = prepared(arguments, q_, k_, given, draws)
        return found if function == "attention" else found._replace(computes=function, rows=found.keys)

    compute(communicator, f"distributed::{function}", division, prepare)
    return results[0] if results[1] is None else tuple(results)


@takes(BackwardOptions)
def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    dout: Any,
    *,
    comm: Any,
    sharding: ShardingLike = "contiguous",
    kv_sharding: ShardingLike | None = None,
    method: Method = "automatic",
    head_groups: int = 0,
    chunk: int = 16384,
    exact: bool = False,
    timeout: float | None = None,
    dlse: Any = None,
    return_dmask: bool = False,
    return_dsinks: bool = False,
    return_dalibi_slopes: bool = False,
    **options: Unpack[BackwardOptions],
) -> Gradients:
    """:func:`saccade.attention_backward` of a problem that :func:`attention` divided, with the same division and
    options: dq of the rank's rows, dk and dv of its keys, and on every rank the whole gradients of options.

    :param q, k, v: the rank's rows, keys and values, as in the forward call.
    :param o: the rank's output of the forward call.
    :param lse: its lse.
    :param dout: the gradient of the loss with respect to o, shaped like it.
    :param comm: the communicator of the forward call.
    :param sharding: which rows each rank holds, as in the forward call.
    :param kv_sharding: the same for keys; default: as the rows.
    :param method: how ranks divide the work; see :func:`attention`.
    :param head_groups: with method "grid": ranks of a group, a divisor of their number; 0 otherwise.
    :param chunk: with methods "stream" and "ring": keys that travel at a time, at least 1.
    :param exact: dk and dv have the bits of one process: they are computed where the keys are, from all rows that see
        them, in 7 products of matrices instead of 5. Otherwise they are sums over ranks of sums in f32 (f64), the
        same in every run.
    :param timeout: seconds to wait for another rank, from now on; at first 300.
    :param dlse: the gradient with respect to lse, shaped like it, for a loss that reads lse.
    :param return_dmask: also return that of a floating ``mask``, in its shape.
    :param return_dsinks: also return that of ``sinks``.
    :param return_dalibi_slopes: also return that of ``alibi_slopes``.
    :returns: dq of the rank's rows, dk and dv of its keys, and the whole gradients of options, in f32 (f64).
    :raises ValueError: as :func:`attention` and :func:`saccade.attention_backward` do.
    :raises CommunicationError: if a rank is gone, or does not answer in time.
    :raises MemoryError: on the rank whose memory runs out, which is then gone for the others.
    """
    found: list[Gradients] = []

    def prepare() -> Prepared:
        given = _options(options, "attention_backward")
        if drops(given.get("dropout_p")) and given.get("seed") is None:
            raise ValueError("seed: dropout_p was given without the seed of the forward call")
        q_, k_, v_ = as_array(q, "q"), as_array(k, "k"), as_array(v, "v")
        asked = {"mask": return_dmask, "sinks": return_dsinks, "alibi_slopes": return_dalibi_slopes}
        others = {f"d{name}": gradient_of(q_, given, name, wanted) for name, wanted in asked.items()}
        gradients = Gradients(empty(q_, q_.shape), empty(k_, k_.shape), empty(v_, v_.shape), **others)
        found.append(gradients)
        arguments = _core.DistributedBackward(q_, k_, v_, o, lse, dout, dlse, *gradients[:3], others, given)
        asks = (return_dmask, return_dsinks, return_dalibi_slopes)
        return prepared(arguments, q_, k_, given)._replace(flags=sum(bool(ask) << bit for bit, ask in enumerate(asks)))

    division = ParallelConfig(sharding, kv_sharding, method, head_groups, chunk, exact)
    facts = ("return_dmask", "return_dsinks", "return_dalibi_slopes")
    compute(communicator_of(comm, timeout), "distributed::attention_backward", division, prepare, facts)
    return found[0]


def _options(options: Any, function: str) -> dict[str, Any]:
    require_known(options, function)
    given = {**options}
    if given.get("cu_seqlens_q") is not None and given.get("cu_seqlens_k") is None:
        given["cu_seqlens_k"] = given["cu_seqlens_q"]
    return given


def prepared(arguments: Any, q: Any, k: Any, given: dict[str, Any], draws: bool = False) -> Prepared:
    """What a rank brings to a call with these options."""
    is_packed, layout = given.get("cu_seqlens_q") is not None, given.get("layout")

    def length(shape: tuple[int, ...]) -> int:
        axis = -3 if len(shape) > 2 and (is_packed or layout == "bshd") else -2
        return shape[axis] if len(shape) >= 2 else 0

    return Prepared(
        arguments,
        length(q.shape),
        length(k.shape),
        given.get("seed"),
        draws,
        given.get("score_mod") is not None,
    )
