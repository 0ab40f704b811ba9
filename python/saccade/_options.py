"""The keyword arguments that attention and its relatives share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Literal, TypedDict, Union

IntPair = Union[int, Sequence[int]]


def flag(value: Any, name: str) -> bool:
    """Whether the argument is true, also where it is an int or a NumPy bool."""
    try:
        return bool(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        raise ValueError(f"{name}: wanted True or False, got {type(value).__name__}") from None


def shown(value: Any, text: Callable[[Any], str] = repr) -> str:
    """The value in a message; its type where it has no text."""
    try:
        return text(value)
    except (TypeError, ValueError):
        return f"a {type(value).__name__}"


def number(value: Any) -> float:
    """The argument as a float; nan for what is none."""
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        return float("nan")


def drops(dropout_p: Any) -> bool:
    """Whether there is dropout; True also for what is no number, which the library then refuses."""
    return dropout_p is not None and number(dropout_p) != 0


class AttentionOptions(TypedDict, total=False):
    """What changes attention. ``None`` is the same as leaving an entry out.

    The logits of row i, which stands at position p = i + offset, and key j are, in this order::

        s = scale * (q_i . k_j)  ->  softcap * tanh(s / softcap)  ->  score_mod  ->  - alibi_slope * |p - j|
          ->  + float mask

    and then keys hidden by ``causal``, ``window``, ``kv_lengths`` or a mask are excluded, the softmax is taken over the
    rest (with the sink's logit in the denominator), dropout is applied and the rows of v are averaged. All options
    combine. A row that sees no key gives 0.
    """

    causal: Literal["top_left", "bottom_right"] | None
    """Key j is visible iff j <= p. "top_left": row 0 stands at key 0; "bottom_right": the last row at the last key."""
    query_offset: Any
    """The position of row 0: an int, which may be negative, or an integer array [batch]. Goes before ``causal``'s."""
    window: IntPair
    """Keys seen to the left and to the right of the row's position, inclusive: (left, right); -1 leaves a side open."""
    mask: Any
    """bool (True = attend) or floating (added; -inf hides), broadcast from the right to [batch, heads, q, k]."""
    scale: float | None
    """Factor of the dot products, a finite number; default 1 / sqrt(head_dim)."""
    softcap: float
    """Bound of the logits (arXiv:2408.00118); 0: none."""
    alibi_slopes: Any
    """Attention with linear biases (arXiv:2108.12409): [heads] or [batch, heads]; see :func:`saccade.alibi_slopes`.
    Used in f32, also in f64 calls."""
    sinks: Any
    """One logit a head that takes part in the denominator only: [heads]. Used in f32, also in f64 calls."""
    kv_lengths: Any
    """How many keys count in each batch entry: integers [batch]."""
    dropout_p: float
    """The probability of dropping a weight, 0 <= p < 1; the others are scaled by 1 / (1 - p)."""
    seed: int | None
    """Which weights are dropped follows from it. Default: drawn from the generator of :func:`saccade.manual_seed`."""
    block_mask: Any
    """A bool for each block of rows and keys, True = attend: [ceil(q / size[0]), ceil(k / size[1])]."""
    block_mask_size: IntPair
    """Rows and keys of a block of ``block_mask``; default (128, 128)."""
    score_mod: Callable[..., Any] | None
    """``score_mod(scores, batch, head, q_idx, kv_idx)`` gets a tile of scores, a NumPy array [rows, keys], two ints,
    and the indices as arrays [rows, 1] and [1, keys], and returns what takes its place; -inf hides a key. It is called
    for many tiles, from several threads, one at a time."""
    block_table: Any
    """Keys and values in pages of a pool: int32 [batch, max_pages]. k and v then are [pages, kv_heads, page_size, dim],
    and ``kv_lengths`` has to be given (arXiv:2309.06180)."""
    layout: Literal["bhld", "blhd"]
    """The order of the axes of q, k, v and the output: "bhld" is [batch, heads, seqlen, dim], "blhd" [batch, seqlen,
    heads, dim]. Without batch they have rank 3; rank 2 is [seqlen, dim] in both."""
    num_threads: int
    """Threads of this call; 0: what :func:`saccade.set_num_threads` says. Results do not depend on it."""
    weights_after_dropout: bool
    """Return the weights as dropout left them instead of as softmax made them."""


class BackwardOptions(AttentionOptions, total=False):
    """What the gradients of attention take besides."""

    score_mod_backward: Callable[..., Any] | None
    """For gradients: ``score_mod_backward(scores, gradients, batch, head, q_idx, kv_idx)`` turns the gradients of what
    ``score_mod`` has returned into those of what it was given. Not given: it only adds."""
    cu_seqlens_q: Any
    """Where the documents of a packed batch begin in q: integers [documents + 1]; see
    :func:`saccade.attention_varlen`."""
    cu_seqlens_k: Any
    """The same in k and v."""


def require_known(options: Mapping[str, Any], function: str) -> None:
    """Refuses keyword arguments that a function does not have, as Python does where it has a list of them."""
    for name in options:
        if name not in BackwardOptions.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
