"""A cache of the keys and values of previous tokens, and rotary position embeddings."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from ._arguments import flag, shown
from ._arrays import as_array, empty, is_torch, returned
from ._attention import _attend
from ._files import file_name
from ._options import CAUSAL_CHOICES, AttentionOptions, current_layout, require_known, takes, warn_deprecated
from ._sdpa import renamed

if sys.version_info >= (3, 11):
    from typing import Self, Unpack
elif TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Layout = Literal["bhsd", "bshd"]

_DTYPES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
    "int4": "i4",
    "float8_e4m3fn": "f8e4m3",
}
_ALIASES = {"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn"}
QUANTIZED = ("int8", "int4", "float8_e4m3fn")


class Rope:
    """A rotary position embedding (RoFormer, arXiv:2104.09864) for vectors of ``dim`` numbers.

    :param dim: the numbers of a vector, an even number unless rotary_dim says how many are rotated.
    :param theta: pair i is rotated by theta^(-2 i / rotary_dim) radians per position: ``rope_theta`` in Hugging Face's
        configurations.
    :param scaling_factor: positions are divided by it (arXiv:2306.15595).
    :param rotary_dim: how many of a vector's numbers are rotated; 0: all.
    :param pairs: "half": numbers i and i + rotary_dim / 2 (GPT-NeoX, Llama in Hugging Face's order); "interleaved":
        2 i and 2 i + 1 (GPT-J, Llama in Meta's order).
    :param frequencies: radians per position of each pair, instead of those from theta (YaRN, Llama 3.1).
    :raises ValueError: for numbers out of their range.
    """

    def __init__(
        self,
        dim: int,
        *,
        theta: float = 10000.0,
        scaling_factor: float = 1.0,
        rotary_dim: int = 0,
        pairs: Literal["half", "interleaved"] = "half",
        frequencies: Sequence[float] | None = None,
        **deprecated: float,
    ) -> None:
        if "base" in deprecated:
            warn_deprecated("Rope(base=) is deprecated; use theta")
            theta = deprecated.pop("base")
        if deprecated:
            raise TypeError(f"Rope() got an unexpected keyword argument '{next(iter(deprecated))}'")
        try:
            self._core = _core.Rope(dim, theta, scaling_factor, rotary_dim, pairs, frequencies)
        except ValueError as error:
            raise renamed(error, {"base": "theta"}) from None

    def rotate(self, x: Any, *, start: int = 0, positions: Any = None, layout: Layout = "bhsd", out: Any = None) -> Any:
        """Vectors rotated by each token's position.

        :param x: [batch, heads, seqlen, dim], or without batch, of any floating dtype.
        :param start: the position of the first token; the next ones follow.
        :param positions: the positions instead: integers [seqlen] or [batch, seqlen].
        :param layout: the order of x's axes: "bhsd" or "bshd", which is [batch, seqlen, heads, dim].
        :param out: an array for the result, which may be x.
        :returns: an array like x.
        :raises ValueError: for arguments that do not fit; names the argument.
        """
        x = as_array(x, "x")
        y = empty(x, x.shape) if out is None else out
        self._core.rotate(x, y, positions, start, current_layout(layout))
        return y


class KvCache:
    """Keys and values of a batch of sequences for one layer of a model::

        cache = saccade.KvCache(num_kv_heads=8, head_dim=128)
        cache.append(k, v)        # of the new tokens
        o = cache.decode(q)       # q of the same tokens

    :param num_kv_heads: heads of k and v.
    :param head_dim: numbers of a key.
    :param batch: number of sequences; each has its own length.
    :param head_dim_v: numbers of a value; 0: head_dim.
    :param dtype: of the stored numbers: "float32", "bfloat16", "float16" or "float64"; or quantized, with a scale for
        each token and head: "int8", "int4" or "float8_e4m3fn" ("fp8").
    :param dtype_v: of the values; default: dtype.
    :param rotate: store Hadamard transforms of quantized keys, and of values of "int4", which keeps outliers from
        coarsening a row; queries and results are transformed likewise. Default: True if either is "int4".
    :param page_size: tokens per page; sequences can then share pages and store a common prefix once. 0: no pages.
    :param window: the query at position p sees keys p - window to p, and older ones need not be kept; -1: all.
    :param causal: "bottom_right", which True means here too: the last query stands at the last key, and each sees the
        keys up to its own. None or False: each sees all, and queries have the positions 0, 1, ..., which ALiBi counts
        from, unless ``query_offset`` says otherwise; cannot be combined with a window. "top_left" is refused.
    :param rope: rotates keys by their position when they are appended. The caller rotates the queries: see
        :meth:`positions`.
    :param capacity: tokens per sequence to allocate at once.
    :raises ValueError: for options out of their range. The methods raise it too; the cache is then unchanged.

    A cache can be neither copied nor pickled, but :meth:`save` writes it to a file. Threads may share one: calls that
    change it wait for the others. A ``score_mod`` cannot change the cache that its call reads: it gets a RuntimeError.
    """

    def __init__(
        self,
        *,
        num_kv_heads: int,
        head_dim: int,
        batch: int = 1,
        head_dim_v: int = 0,
        dtype: Any = "float32",
        dtype_v: Any = None,
        rotate: bool | None = None,
        page_size: int = 0,
        window: int = -1,
        causal: Literal["bottom_right"] | bool | None = "bottom_right",
        rope: Rope | None = None,
        capacity: int = 0,
    ) -> None:
        if rope is not None and not isinstance(rope, Rope):
            raise ValueError(f"rope: expected a saccade.Rope, got {type(rope).__name__}")
        self._core = _core.KvCache(
            batch,
            num_kv_heads,
            head_dim,
            head_dim_v,
            _name_of_dtype(dtype, "dtype"),
            None if dtype_v is None else _name_of_dtype(dtype_v, "dtype_v"),
            rotate,
            page_size,
            window,
            _is_causal(causal),
            rope._core if rope is not None else None,
            capacity,
        )
        self._head_dim_v = operator.index(head_dim_v) or operator.index(head_dim)
        self._like: Any = None  #: an array of the library that append() was given last, without numbers

    def append(self, k: Any, v: Any, *, sequence: int | None = None, layout: Layout = "bhsd") -> None:
        """Adds n tokens to every sequence, or to one. Numbers are rounded to the cache's dtype.

        :param k: keys, [batch, kv_heads, n, head_dim], for one sequence [kv_heads, n, head_dim].
        :param v: values, [batch, kv_heads, n, head_dim_v], for one sequence [kv_heads, n, head_dim_v].
        :param sequence: the number of that sequence; default: every sequence.
        :param layout: of k and v: "bhsd" or "bshd", which is [batch, n, kv_heads, dim].
        :raises ValueError: for arguments that do not fit; the cache is then unchanged.
        """
        self._core.append(k, v, sequence, current_layout(layout))
        self._like = empty(k, (0,)) if is_torch(k) else None

    @takes(AttentionOptions)
    def attention(
        self, q: Any, *, return_lse: bool = False, out: Any = None, **options: Unpack[AttentionOptions]
    ) -> Any:
        """:func:`saccade.attention` of the last tokens of each sequence, whose keys and values are in the cache
        already. The cache adds kv_lengths, kv_starts, block_table, causal and window to the options.

        :param q: queries of the last tokens, [batch, heads, seqlen_q, head_dim].
        :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads,
            seqlen_q].
        :param out: an array for the output, [batch, heads, seqlen_q, head_dim_v].
        :returns: the output, like q; with return_lse a tuple of it and lse.
        :raises ValueError: for arguments that do not fit, and for options that the cache sets.
        """
        require_known(options, "KvCache.attention")
        return self._attend(self._core.attention, q, return_lse, out, options)

    @takes(AttentionOptions)
    def decode(self, q: Any, *, return_lse: bool = False, out: Any = None, **options: Unpack[AttentionOptions]) -> Any:
        """:func:`saccade.decode` over the cache: as :meth:`attention`, at the speed of reading it once.

        :param q: queries of the last tokens, [batch, heads, seqlen_q, head_dim]; seqlen_q is typically 1.
        :param return_lse: also return the natural logarithm of each row's softmax denominator, [batch, heads,
            seqlen_q].
        :param out: an array for the output, [batch, heads, seqlen_q, head_dim_v].
        :returns: the output, like q; with return_lse a tuple of it and lse.
        :raises ValueError: as :meth:`attention` does.
        """
        require_known(options, "KvCache.decode")
        return self._attend(self._core.decode, q, return_lse, out, options)

    def _attend(self, function: Any, q: Any, return_lse: bool, out: Any, options: Any) -> Any:
        def call(q: Any, k: Any, v: Any, o: Any, lse: Any, weights: Any, options: dict[str, Any]) -> None:
            function(q, o, lse, weights, options)

        return _attend(call, q, q, q, out, return_lse, False, options, self._head_dim_v)

    @property
    def lengths(self) -> list[int]:
        """Tokens that each sequence has seen."""
        return self._core.lengths()

    def first_kept(self, sequence: int = 0) -> int:
        """The first position whose key is still kept: 0 without a window.

        :param sequence: the number of the sequence.
        :raises ValueError: for a sequence that does not exist.
        """
        return self._core.first_kept(sequence)

    def set_start(self, sequence: int, start: int) -> None:
        """Hides the first keys of a sequence from all queries: padding on the left.

        :param sequence: the number of the sequence.
        :param start: the first position that is seen; 0 hides none.
        :raises ValueError: for a sequence or a position that does not exist.
        """
        self._core.set_start(sequence, start)

    @property
    def starts(self) -> list[int]:
        """What :meth:`set_start` said for each sequence."""
        return self._core.starts()

    def positions(self, count: int) -> Any:
        """The positions of the last tokens of each sequence, for :meth:`Rope.rotate`.

        :param count: how many tokens.
        :returns: int64 [batch, count].
        :raises ValueError: if a sequence has fewer tokens.
        """
        return self._core.positions(count)

    def truncate(self, sequence: int, length: int) -> None:
        """Removes the last tokens of a sequence, as if they had never been appended.

        :param sequence: the number of the sequence.
        :param length: how many tokens remain.
        :raises ValueError: for a sequence that does not exist, and for a length that it does not have or whose keys a
            window has dropped.
        """
        self._core.truncate(sequence, length)

    def clear(self, sequence: int) -> None:
        """Empties a sequence.

        :param sequence: the number of the sequence.
        :raises ValueError: for a sequence that does not exist.
        """
        self._core.clear(sequence)

    def share_prefix(self, from_sequence: int, to_sequence: int, length: int) -> None:
        """Makes a sequence a copy of the first tokens of another; pages are shared.

        :param from_sequence: the number of the sequence to copy.
        :param to_sequence: the number of the sequence to replace.
        :param length: how many tokens are copied.
        :raises ValueError: for sequences that do not exist and a length that the first does not have.
        """
        self._core.share_prefix(from_sequence, to_sequence, length)

    def dequantize_k(self) -> Any:
        """The keys that attention reads: dequantized, and transformed back.

        :returns: float32 [batch, num_kv_heads, longest, head_dim]; index j holds position first_kept + j, with pages
            position j; zeros where a sequence has no token. A PyTorch tensor if the keys appended last were one, else
            a NumPy array.
        """
        return returned(self._like, self._core.dequantize_k())

    def dequantize_v(self) -> Any:
        """The values that attention reads, as :meth:`dequantize_k`.

        :returns: float32 [batch, num_kv_heads, longest, head_dim_v].
        """
        return returned(self._like, self._core.dequantize_v())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes what the cache holds to a safetensors file, which docs/files.md describes.

        :param path: the file's name; a file of that name is replaced, once all is written.
        :raises RuntimeError: for a file that cannot be written, and if this build lacks what writes files.
        """
        _require_files()
        self._core.save(file_name(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The cache that :meth:`save` wrote. Its results have the same bits, and more tokens can be appended.

        :param path: the file's name.
        :returns: a cache with the options of the one that was saved.
        :raises RuntimeError: for a file that cannot be read or does not hold a cache; says what is wrong in it.
        """
        _require_files()
        cache = cls.__new__(cls)
        cache._core = _core.KvCache.load(file_name(path))
        cache._head_dim_v = cache._core.head_dim_v()
        cache._like = None
        return cache

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys and values and their scales, used or not."""
        return self._core.nbytes()

    @property
    def pages_in_use(self) -> int:
        """Pages that sequences use; a shared page counts once; 0 without pages."""
        return self._core.pages_in_use()


def _name_of_dtype(dtype: Any, argument: str) -> str:
    name = shown(getattr(dtype, "__name__", dtype), str).rpartition(".")[2]
    name = _ALIASES.get(name, name)
    if name not in _DTYPES:
        raise ValueError(f"{argument}: expected {', '.join(_DTYPES)}, got {shown(dtype)}")
    return _DTYPES[name]


def is_quantized(dtype: Any) -> bool:
    """Whether a cache of this dtype stores scales."""
    return _name_of_dtype(dtype, "dtype") in [_DTYPES[name] for name in QUANTIZED]


def _require_files() -> None:
    if not hasattr(_core.KvCache, "load"):
        raise RuntimeError("this saccade was built without files of caches, which need zlib and nlohmann-json")


def _is_causal(causal: Any) -> bool:
    if isinstance(causal, str) and causal != "bottom_right":
        wanted = "None or 'bottom_right', as the queries of a cache are its last tokens"
        raise ValueError(f"causal: expected {wanted}, got {shown(causal)}; {CAUSAL_CHOICES}")
    return causal is not None and flag(causal, "causal")
