"""The options of attention: names, types, defaults and texts, each once. The functions of this package and of others
take them as ``**options``; :func:`takes` gives such a function the signature and the documentation of its options.

The table of the library, include/saccade/attention_options.h, has the same options; a test compares the two.
"""

import ast
import inspect
import sys
import warnings
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Callable, Literal, Optional, TypedDict, TypeVar, Union

IntPair = Union[int, Sequence[int]]
Function = TypeVar("Function", bound=Callable[..., Any])


class ScoreOptions(TypedDict, total=False):
    """The options that every function takes."""

    causal: Optional[Literal["top_left", "bottom_right"]]
    """Key j is visible iff j <= p. "top_left": row 0 is at key 0, as with PyTorch's is_causal and JAX; "bottom_right":
    the last row at the last key, as with flash-attn from 2.1 on. True is refused, because it says neither."""
    window: IntPair
    """Keys seen to the left and to the right of the row's position, inclusive: (left, right); -1 leaves a side open."""
    scale: Optional[float]
    """Factor of the dot products, a finite number; default 1 / sqrt(head_dim)."""
    softcap: float
    """Bound of the logits (arXiv:2408.00118); 0: none."""
    alibi_slopes: Any
    """Attention with linear biases (arXiv:2108.12409): [heads] or [batch, heads]; see :func:`saccade.alibi_slopes`.
    Used in the precision of the call."""
    sinks: Any
    """One logit per head, added to the denominator only: [heads]. Used in the precision of the call."""
    dropout_p: float
    """The probability of dropping a weight, 0 <= p < 1; the others are scaled by 1 / (1 - p)."""


class MaskOptions(TypedDict, total=False):
    """What is given for each row, key or batch entry."""

    mask: Any
    """bool (True = attend) or floating (added; -inf hides), broadcast from the right to [batch, heads, q, k]."""
    query_offset: Any
    """The position of row 0: an int, also negative, or an integer array [batch]. Overrides that of ``causal``."""
    kv_lengths: Any
    """How many keys count in each batch entry: integers [batch]."""
    kv_starts: Any
    """The first key of each batch entry, after padding that no row sees: integers [batch]. Positions count from key 0
    all the same."""


class BlockOptions(TypedDict, total=False):
    """What functions of a packed batch of PyTorch and JAX do not take."""

    block_mask: Any
    """A bool for each block of rows and keys, True = attend: [ceil(q / size[0]), ceil(k / size[1])], broadcast from the
    right to [batch, heads, blocks of rows, blocks of keys]."""
    block_mask_size: IntPair
    """Rows and keys of a block of ``block_mask``; default (128, 128)."""
    layout: Literal["bhsd", "bshd"]
    """The order of the axes of q, k, v and the output: "bhsd" is [batch, heads, seqlen, dim], "bshd" [batch, seqlen,
    heads, dim]. Without batch they have rank 3; rank 2 is [seqlen, dim] in both."""


class QuantizedOptions(TypedDict, total=False):
    """What belongs to keys and values of 8 bits."""

    k_scale: Any
    """The scales of keys of int8 or float8_e4m3fn: a number of k is its scale times the stored number. Floating numbers
    for the tensor, each head, token or channel (not for each token and channel), broadcast from the right to [batch,
    kv_heads, seqlen_k, head_dim], with pages [pages, kv_heads, page_size, head_dim], in this order for any layout.
    int8 needs them; float8_e4m3fn has 1 by default."""
    v_scale: Any
    """The scales of values, as ``k_scale``."""
    k_rotated: bool
    """k holds Hadamard transforms, as a :class:`saccade.KvCache` with ``rotate=True`` stores them: queries are
    transformed likewise."""
    v_rotated: bool
    """v holds Hadamard transforms: the output is transformed back."""


class PackedOptions(TypedDict, total=False):
    """The documents of a packed batch."""

    cu_seqlens_q: Any
    """Where the documents of a packed batch begin in q: integers [documents + 1]; see
    :func:`saccade.attention_varlen`."""
    cu_seqlens_k: Any
    """The same in k and v."""


class SeedOptions(TypedDict, total=False):
    """What JAX has a key for."""

    seed: Optional[int]
    """Determines which weights are dropped. Default: drawn from the generator of :func:`saccade.manual_seed`, by the
    functions of :mod:`saccade.torch` from that of ``torch.manual_seed``."""


class ThreadOptions(TypedDict, total=False):
    """What PyTorch has a setting for."""

    num_threads: int
    """Threads of this call; 0: those of :func:`saccade.set_num_threads`. Results do not depend on it."""


class TensorPackedOptions(ScoreOptions, MaskOptions, SeedOptions, total=False):
    """The options of :func:`saccade.torch.attention_varlen`."""


class TensorShardedOptions(TensorPackedOptions, BlockOptions, PackedOptions, total=False):
    """The options of :func:`saccade.torch.distributed.scaled_dot_product_attention`."""


class TensorOptions(TensorPackedOptions, BlockOptions, total=False):
    """The options of :func:`saccade.torch.attention`."""

    block_table: Any
    """Keys and values in pages of a pool: int32 [batch, max_pages]. k and v then are [pages, kv_heads, page_size, dim],
    and ``kv_lengths`` has to be given (arXiv:2309.06180)."""
    weights_after_dropout: bool
    """Return the weights after dropout instead of those before it."""


class JaxPackedOptions(ScoreOptions, QuantizedOptions, ThreadOptions, total=False):
    """The options of ``saccade_jax.attention_varlen``."""


class JaxOptions(ScoreOptions, MaskOptions, BlockOptions, QuantizedOptions, ThreadOptions, total=False):
    """The options of ``saccade_jax.attention``."""


class AttentionOptions(TensorOptions, QuantizedOptions, ThreadOptions, total=False):
    """The options of attention. ``None`` is the same as leaving an entry out.

    The logits of row i, at position p = i + offset, and key j are computed in this order::

        s = scale * (q_i . k_j)  ->  softcap * tanh(s / softcap)  ->  score_mod  ->  - alibi_slope * |p - j|
          ->  + float mask

    Then keys hidden by ``causal``, ``window``, ``kv_starts``, ``kv_lengths`` or a mask are excluded, softmax is taken
    over the others (with the sink's logit in the denominator), dropout is applied and the rows of v are averaged. The
    output of a row that sees no key is 0. Options combine, except that keys in pages (``block_table``) have no
    gradients and exclude ``cu_seqlens_k``.
    """

    score_mod: Optional[Callable[..., Any]]
    """``score_mod(scores, batch, head, q_idx, kv_idx)`` gets a tile of scores as a NumPy array [rows, keys], batch
    and head as ints, and the indices as arrays [rows, 1] and [1, keys]. It returns the new scores; -inf hides a
    key. It is called for many tiles, from several threads, but never by two at the same time."""


class BackwardOptions(AttentionOptions, PackedOptions, total=False):
    """The options of attention, and those of its gradients."""

    score_mod_backward: Optional[Callable[..., Any]]
    """For gradients: ``score_mod_backward(scores, gradients, batch, head, q_idx, kv_idx)`` converts the gradients
    with respect to the result of ``score_mod`` to those with respect to its input. Needed unless ``score_mod``
    only adds to the scores."""


# Those of the options whose default is not None.
DEFAULTS: dict[str, Any] = {
    "window": (-1, -1),
    "softcap": 0.0,
    "dropout_p": 0.0,
    "block_mask_size": (128, 128),
    "layout": "bhsd",
    "num_threads": 0,
    "weights_after_dropout": False,
    "k_rotated": False,
    "v_rotated": False,
}


def takes(options: Any) -> Callable[[Function], Function]:
    """A decorator of functions with ``**options``: to inspect.signature(), help() and typing.get_type_hints() they look
    as if each of ``options``, a class of this module, were a keyword of its own. Options that the function's own text
    describes, as ``:param NAME:``, are left out of those added to it. Calls go to the function itself.
    """

    def decorate(function: Function) -> Function:
        types = options.__annotations__
        own = inspect.signature(function)
        first = [x for x in own.parameters.values() if x.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        last = [x for x in own.parameters.values() if x.kind is inspect.Parameter.KEYWORD_ONLY]
        keywords = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS.get(name), annotation=annotation)
            for name, annotation in types.items()
        ]
        text = inspect.getdoc(function) or ""
        added = [f":param {name}: {texts().get(name, '')}" for name in types if f":param {name}:" not in text]
        described: Any = function
        described.__signature__ = own.replace(parameters=[*first, *keywords, *last])
        described.__annotations__ = {**types, **function.__annotations__}
        described.__annotations__.pop(next(x.name for x in own.parameters.values() if x.kind is x.VAR_KEYWORD), None)
        described.__doc__ = "\n".join((text, "", "The options:", "", *added))
        return function

    return decorate


@cache
def texts() -> dict[str, str]:
    """The texts below the options in this file, which Python does not keep; none where there is no file."""
    try:
        classes = ast.parse(Path(__file__).read_text(encoding="utf-8")).body
    except OSError:
        return {}
    found = {}
    for node in classes:
        body = node.body if isinstance(node, ast.ClassDef) else []
        for option, text in zip(body, body[1:]):
            if isinstance(option, ast.AnnAssign) and isinstance(option.target, ast.Name):
                assert isinstance(text, ast.Expr)
                found[option.target.id] = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", "\n    ")
    return found


def with_defaults(options: Any, names: Collection[str]) -> dict[str, Any]:
    """Options that are given, and those of ``names`` that have a default other than None."""
    defaults = {name: default for name, default in DEFAULTS.items() if name in names}
    return {**defaults, **{name: value for name, value in options.items() if value is not None}}


def names_of(options: Any) -> frozenset[str]:
    """The names of the options of a class."""
    return frozenset(options.__annotations__)


_ALL = names_of(BackwardOptions)


def require_known(options: Any, function: str, known: Collection[str] = _ALL) -> None:
    """Refuses unknown keyword arguments, as Python does for a function without ``**options``; and gives a deprecated
    ``layout`` its present name."""
    for name in options:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")
    if "layout" in options:
        options["layout"] = current_layout(options["layout"])


# What the values of `causal` mean in other libraries, for messages about causal=True.
CAUSAL_CHOICES = (
    "'top_left' aligns row 0 with key 0, as PyTorch's is_causal and JAX do, 'bottom_right' the last row with the last "
    "key, as flash-attn does from 2.1 on"
)
_OLD_LAYOUTS = {"bhld": "bhsd", "blhd": "bshd"}


def current_layout(layout: Any) -> Any:
    """The present name of a layout; anything else itself."""
    name = _OLD_LAYOUTS.get(layout) if isinstance(layout, str) else None
    if name is None:
        return layout
    warn_deprecated(f'layout="{layout}" is deprecated; use "{name}"')
    return name


def warn_deprecated(text: str) -> None:
    """A DeprecationWarning at the line that called this package."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, DeprecationWarning, stacklevel=level)
