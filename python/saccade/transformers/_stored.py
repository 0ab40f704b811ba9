"""The keys and values of one layer as a QuantizedCache stores them, and attention over them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _core
from .._kv_cache import KvCache
from ..torch._tensors import require_plain
from ._placeholder import Placeholder

# A window keeps this many keys more, so that crop() can take the tokens of several forward passes back.
_SPARE = 256


class Store:
    """A :class:`saccade.KvCache` for a batch whose entries all have the same length and can be reordered.

    :param options: of the KvCache: dtype, dtype_v, rotate and capacity.
    :param window: keys that a query sees, its own among them; None: all.
    """

    def __init__(self, key: Tensor, value: Tensor, options: dict[str, Any], window: int | None) -> None:
        self.batch, heads, _, dim = key.shape
        self._cache = KvCache(
            batch=self.batch,
            num_kv_heads=heads,
            head_dim=dim,
            head_dim_v=value.shape[-1],
            causal=window is not None,
            window=-1 if window is None else window - 1 + _SPARE,
            **options,
        )
        self._is_windowed = window is not None
        self._heads, self._dims, self._dtypes = heads, (dim, value.shape[-1]), (key.dtype, value.dtype)
        self._places = list(range(self.batch))  #: for each entry of the batch, its sequence in the cache
        self.length = 0

    @property
    def nbytes(self) -> int:
        return self._cache.nbytes

    def append(self, key: Tensor, value: Tensor) -> None:
        for name, x in (("key_states", key), ("value_states", value)):
            require_plain(x, name)
            if x.requires_grad and torch.is_grad_enabled():
                raise ValueError(f"{name}: requires a gradient, which a QuantizedCache has not; use torch.no_grad()")
        self._cache.append(self._by_sequence(key.detach()), self._by_sequence(value.detach()))
        self.length += key.shape[2]

    def rows(self, count: int) -> tuple[StoredRows, StoredRows]:
        """The last keys and values, as objects for :func:`attention`."""
        keys, values = (
            StoredRows(self, (self.batch, self._heads, count, dim), dtype)
            for dim, dtype in zip(self._dims, self._dtypes)
        )
        return keys, values

    def dequantized(self, count: int) -> tuple[Tensor, Tensor]:
        """The last keys and values as tensors of the types that were appended."""
        found = (self._cache.dequantize_k(), self._cache.dequantize_v())
        tensors = (x[:, :, x.shape[2] - count :] for x in found)
        keys, values = (self._by_entry(x).to(dtype) for x, dtype in zip(tensors, self._dtypes))
        return keys, values

    def truncate(self, length: int) -> None:
        for sequence in range(self.batch):
            self._cache.truncate(sequence, length)
        self.length = length

    def reorder(self, entries: list[int]) -> None:
        """Entry i becomes what entry entries[i] was. Only what is needed more than once is copied."""
        unused = set(self._places) - {self._places[entry] for entry in entries}
        places: list[int] = []
        for entry in entries:
            place = self._places[entry]
            if place in places:
                place = unused.pop()
                self._cache.share_prefix(self._places[entry], place, self.length)
            places.append(place)
        self._places = places

    def attention(self, query: Tensor, keys: int, options: dict[str, Any], return_lse: bool) -> Any:
        """Attention of the last tokens over the last keys, as :func:`saccade.torch.attention` computes it.

        :param query: [batch, heads, queries, head_dim].
        :param keys: how many keys; earlier ones are hidden.
        :param options: those of :func:`saccade.torch.attention` that :class:`Mask` has, scale, softcap and sinks.
        :param return_lse: also return the natural logarithm of each row's softmax denominator.
        """
        require_plain(query, "query")
        if query.requires_grad and torch.is_grad_enabled():
            raise ValueError("query: requires a gradient, which a QuantizedCache has not; use torch.no_grad()")
        queries = query.shape[2]
        options = dict(options)
        causal = _causal(options.pop("causal", None), options.pop("query_offset", 0), queries, keys)
        mask = _mask(options.pop("mask", None), options.pop("kv_lengths", None), keys)
        if self._is_windowed and queries > 1 and causal is None:
            _require_causal(mask, queries, keys)
        options.update(causal=causal, mask=None if mask is None else self._of_kept(mask, keys))
        self._set_starts(options.pop("kv_starts", None), self.length - keys)
        # Over quantized keys decode() of one query takes less time than attention() for any number of keys.
        is_few = queries == 1 or _core.is_decode_faster(queries, keys, query.shape[1] // self._heads)
        out = query.new_empty(self.batch, queries, query.shape[1], self._dims[1]).transpose(1, 2)
        call = self._cache.decode if is_few else self._cache.attention
        threads = torch.get_num_threads()
        q = self._by_sequence(query.detach())
        o = call(q, return_lse=return_lse, out=out, num_threads=threads, **options)
        return tuple(self._by_entry(x) for x in o) if return_lse else self._by_entry(o)

    def _of_kept(self, mask: Tensor, keys: int) -> Tensor:
        """A mask of the last keys as one of all that the cache has kept, of which the others are hidden by starts."""
        if mask.shape[-1] != 1:
            mask = F.pad(mask, (self.length - self._cache.first_kept() - keys, 0))
        return self._by_sequence(mask) if mask.dim() == 4 and mask.shape[0] == self.batch else mask

    def _set_starts(self, starts: Tensor | None, hidden: int) -> None:
        if starts is None:
            wanted = [hidden] * self.batch
        else:
            wanted = [hidden + int(start) for start in self._by_sequence(starts).tolist()]
        for sequence, (is_set, start) in enumerate(zip(self._cache.starts, wanted)):
            if start != is_set:
                self._cache.set_start(sequence, start)

    def _by_sequence(self, x: Tensor) -> Tensor:
        """Entries of the batch in the order of the cache's sequences."""
        if self._places == list(range(self.batch)):
            return x
        return x[torch.tensor(self._places).argsort()]

    def _by_entry(self, x: Tensor) -> Tensor:
        return x if self._places == list(range(self.batch)) else x[self._places]


class StoredRows(Placeholder):
    """What :meth:`QuantizedCache.update` gives a model in the place of a tensor of keys or of values: the last rows of
    a :class:`Store`, for :func:`attention`.

    :param shape: [batch, heads, rows, dim].
    :param dtype: that of the tensors that were stored.
    """

    def __init__(self, store: Store, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
        super().__init__(shape)
        self._store, self._length, self.dtype = store, store.length, dtype

    @torch.compiler.disable
    def attention(self, query: Tensor, value: Any, options: dict[str, Any], return_lse: bool = False) -> Any:
        """:meth:`Store.attention` with these keys.

        :param query: [batch, heads, queries, head_dim].
        :param value: the rows of the values, from the same call of update().
        :param options: those of :func:`saccade.torch.attention`.
        :param return_lse: also return lse.
        """
        if not isinstance(value, StoredRows) or value._store is not self._store or value.shape[2] != self.shape[2]:
            raise ValueError("value: expected the values that QuantizedCache.update() returned with these keys")
        if self._length != self._store.length:
            raise ValueError(
                f"key: expected that of the last update(), got one of {self._length} tokens from a QuantizedCache that "
                f"has {self._store.length}"
            )
        return self._store.attention(query, self.shape[2], options, return_lse)

    def _refusal(self) -> str:
        return (
            "saccade.transformers: the model computes with its keys or values, which are stored in a QuantizedCache "
            "and no tensors here; choose attn_implementation='sdpa', which reads dequantized ones, or a DynamicCache"
        )

    def __repr__(self) -> str:
        return f"StoredRows({list(self.shape)})"


def _causal(causal: str | None, offset: Any, queries: int, keys: int) -> str | None:
    """The queries are the last tokens, so "top_left" with the position of the first is "bottom_right"."""
    positions = torch.as_tensor(offset).flatten().tolist()  # one, or that of each batch entry
    if causal is not None and any(position != keys - queries for position in positions):
        raise ValueError(
            f"attention_mask: expected a first query at position {keys - queries} of {keys} keys, got one at "
            f"{positions}; the queries have to be the last tokens of a QuantizedCache"
        )
    return None if causal is None else "bottom_right"


def _mask(mask: Tensor | None, lengths: Tensor | None, keys: int) -> Tensor | None:
    """The mask that hides padding on the right too."""
    if lengths is None or not bool((lengths < keys).any()):
        return mask
    seen = (torch.arange(keys) < lengths[:, None])[:, None, None, :]
    if mask is None:
        return seen
    return mask & seen if mask.dtype is torch.bool else mask.masked_fill(~seen, float("-inf"))


def _require_causal(mask: Tensor | None, queries: int, keys: int) -> None:
    """A cache with a window hides later keys by itself."""
    later = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
    if mask is not None:
        later = later & (mask if mask.dtype is torch.bool else mask > torch.finfo(mask.dtype).min)
    if bool(later.any()):
        raise ValueError(
            "attention_mask: tokens that see later ones cannot be combined with a sliding window in a QuantizedCache"
        )
