"""A cache of transformers that keeps keys and values in 8 or 4 bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, Cache, DynamicCache, PreTrainedConfig
from transformers import cache_utils as theirs
from transformers.utils import logging

from .._arguments import shown
from .._kv_cache import QUANTIZED, KvCache, is_quantized
from ._attention import attention
from ._stored import Store

_logger = logging.get_logger(__name__)
_KINDS = ("full_attention", "sliding_attention", "moe", "mlp")  #: of layers; the last two keep nothing


class QuantizedCache(Cache):
    """Keys and values of previous tokens in 8 or 4 bits a number, in the place of transformers' cache of that name::

        cache = saccade.transformers.QuantizedCache(model.config, dtype="int8")
        model.generate(tokens, past_key_values=cache)

    With ``attn_implementation="saccade"`` attention reads the stored numbers: :class:`saccade.KvCache` says what is
    stored, and attention is exact over that, also that of the prompt. With another implementation the model gets
    dequantized tensors of all keys and values for each call, and a warning says so once.

    Layers with full attention and with a sliding window are possible. Those with a window drop keys that have left it.
    Batches with padding, beam search and :meth:`crop` work. A cache can be neither copied nor pickled, and records no
    gradients.

    :param config: the configuration of the model that uses the cache: ``model.config``.
    :param dtype: of the stored numbers: "int8", "int4" or "float8_e4m3fn" ("fp8"); or "float32", "bfloat16" or
        "float16" if the values are quantized.
    :param dtype_v: of the values; default: dtype.
    :param rotate: store Hadamard transforms, as :class:`saccade.KvCache` does. Default: True if either is "int4".
    :param capacity: tokens of each batch entry for which memory is allocated at once; a full cache grows by half.
    :raises ValueError: for a config that is none, for models with chunked attention, linear attention or other layers
        that keep something else than keys and values, and for options out of their range.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        dtype: Any = "int8",
        *,
        dtype_v: Any = None,
        rotate: bool | None = None,
        capacity: int = 0,
    ) -> None:
        if not isinstance(config, PreTrainedConfig):
            raise ValueError(f"config: expected a configuration of transformers, got {type(config).__name__}")
        options = {"dtype": dtype, "dtype_v": dtype_v, "rotate": rotate, "capacity": capacity}
        _require_options(options)
        decoder = config.get_text_config(decoder=True)
        super().__init__(layers=[_layer(x, decoder, options) for x in _their_layers(decoder)])

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys and values and their scales in all layers, used or not."""
        return sum(layer.nbytes for layer in self.layers if isinstance(layer, QuantizedLayer))


class QuantizedLayer(theirs.CacheLayerMixin):
    """The keys and values of one layer of a :class:`QuantizedCache`.

    :param config: the configuration of the decoder, which says how attention is computed.
    :param options: of :class:`saccade.KvCache`.
    :param sliding_window: keys that a query sees, its own among them; None: all.
    """

    is_croppable = True

    def __init__(self, config: PreTrainedConfig, options: dict[str, Any], sliding_window: int | None = None) -> None:
        self._config, self._options = config, options
        self._store: Store | None = None
        self.sliding_window, self.is_sliding = sliding_window, sliding_window is not None
        self.is_initialized = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self._store = Store(key_states, value_states, self._options, self.sliding_window)
        self.batch_size = key_states.shape[0]
        self.is_initialized = True

    @torch.compiler.disable
    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Stores new keys and values, [batch, heads, tokens, dim]. Returns all that the new tokens may see."""
        if self._store is None:
            self.lazy_initialization(key_states, value_states)
        assert self._store is not None
        count = self.get_mask_sizes(key_states.shape[2])[0]
        self._store.append(key_states, value_states)
        return self._given(count)

    @property
    def keys(self) -> Any:
        """The keys as update() returns them; None before its first call."""
        return None if self._store is None else self._given(self.get_mask_sizes(0)[0])[0]

    @property
    def values(self) -> Any:
        """The values as update() returns them; None before its first call."""
        return None if self._store is None else self._given(self.get_mask_sizes(0)[0])[1]

    def _given(self, count: int) -> tuple[Any, Any]:
        assert self._store is not None
        name = self._config._attn_implementation
        if AttentionInterface._global_mapping.get(name) is attention:
            return self._store.rows(count)
        _logger.warning_once(
            f"saccade.transformers.QuantizedCache: attn_implementation='{name}' reads all keys and values dequantized, "
            "in each call; 'saccade' reads the stored numbers"
        )
        return self._store.dequantized(count)

    @property
    def nbytes(self) -> int:
        """Bytes allocated for keys and values and their scales."""
        return 0 if self._store is None else self._store.nbytes

    def get_seq_length(self) -> int:
        return 0 if self._store is None else self._store.length

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        """How many keys the next tokens may see, and the position of the first.

        :param query_length: how many tokens; or, as up to transformers 5.2, their positions.
        """
        query_length = query_length.shape[0] if isinstance(query_length, Tensor) else query_length
        length = self.get_seq_length()
        seen = length if self.sliding_window is None else min(length, self.sliding_window - 1)
        return seen + query_length, length - seen

    def get_max_length(self) -> int:
        return -1 if self.sliding_window is None else self.sliding_window

    get_max_cache_shape = get_max_length  # its name in earlier versions of transformers 5

    def reset(self) -> None:
        if self._store is not None:
            self._store.truncate(0)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self._store is None:
            return
        entries = beam_idx.tolist()
        if len(entries) != self.batch_size:
            raise ValueError(f"beam_idx: expected {self.batch_size} entries, got {len(entries)}")
        self._store.reorder(entries)

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last tokens.

        :param tokens_to_remove: minus how many; or, as in earlier versions of transformers 5, how many remain.
        """
        length = self.get_seq_length()
        remaining = length + tokens_to_remove if tokens_to_remove <= 0 else min(tokens_to_remove, length)
        if self._store is not None and remaining < length:
            self._store.truncate(max(remaining, 0))

    def batch_repeat_interleave(self, repeats: int) -> None:
        _refuse_other_batch("batch_repeat_interleave")

    def batch_select_indices(self, indices: Tensor) -> None:
        _refuse_other_batch("batch_select_indices")


def _refuse_other_batch(name: str) -> None:
    raise ValueError(f"{name}: the batch of a QuantizedCache cannot change; fill another cache instead")


def _require_options(options: dict[str, Any]) -> None:
    """Creates a cache to see that it can be created, before a model computes its first keys."""
    dtype, dtype_v, capacity = options["dtype"], options["dtype_v"], options["capacity"]
    if not isinstance(capacity, int) or capacity < 0:
        raise ValueError(f"capacity: expected a number of tokens, 0 or more, got {shown(capacity)}")
    KvCache(num_kv_heads=1, head_dim=1, dtype=dtype, dtype_v=dtype_v, rotate=options["rotate"])
    if not any(is_quantized(x) for x in (dtype, dtype_v) if x is not None):
        raise ValueError(f"dtype: expected {', '.join(QUANTIZED)} for keys or values, got {shown(dtype)}")


def _their_layers(decoder: PreTrainedConfig) -> list[Any]:
    """The layers that transformers' own cache has for a model, which know its windows."""
    kinds = getattr(decoder, "layer_types", None) or ()
    if (
        not kinds
        and getattr(decoder, "sliding_window", None) is None
        and getattr(decoder, "attention_chunk_size", None)
    ):
        kinds = ("chunked_attention",)
    for kind in kinds:
        if kind not in _KINDS:
            raise ValueError(f"config: expected layers with full or sliding attention, got {kind}; use a DynamicCache")
    return DynamicCache(config=decoder).layers


def _layer(layer: Any, decoder: PreTrainedConfig, options: dict[str, Any]) -> Any:
    if type(layer) is theirs.DynamicLayer:
        return QuantizedLayer(decoder, options)
    if type(layer) is theirs.DynamicSlidingWindowLayer:
        return QuantizedLayer(decoder, options, layer.sliding_window)
    if type(layer).__name__ == "DummyLayer":  # which keeps nothing; not every version has it
        return layer
    raise ValueError(f"config: expected layers with full or sliding attention, got one of a {type(layer).__name__}")
