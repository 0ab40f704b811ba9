"""The masks of transformers' models, described instead of stored."""

from __future__ import annotations

import sys
from typing import Any, Callable

import torch
from torch import Tensor
from torch.compiler import is_compiling
from transformers import masking_utils
from transformers.utils import logging

from ._documents import Documents, documents_of_chunks, documents_of_sequences
from ._patterns import Pattern, pattern_of
from ._placeholder import Placeholder

_logger = logging.get_logger(__name__)


class Mask(Placeholder):
    """What :func:`mask` returns to a model, which hands it on to :func:`attention`: which keys each query sees.

    It is no tensor: a model that computes with it gets a TypeError or an AttributeError that says so.

    :param shape: [batch, 1, queries, keys].
    :param options: what hides keys, as :func:`saccade.torch.attention` takes it.
    :param documents: packed sequences or chunks, with which the options are those of
        :func:`saccade.torch.attention_varlen`; None: there are none.
    :param arguments: those of :func:`mask`, from which :meth:`dense` computes the numbers.
    :param is_by_position: whether queries see different keys.
    :param model: the name of the model, for messages.
    """

    dtype = torch.bool
    options: dict[str, Any]
    """What hides keys, as :func:`saccade.torch.attention` takes it."""
    documents: Documents | None
    """Packed sequences or chunks; the options are then those of :func:`saccade.torch.attention_varlen`."""
    is_by_position: bool
    """Whether queries see different keys."""

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        options: dict[str, Any],
        documents: Documents | None,
        arguments: dict[str, Any],
        is_by_position: bool = True,
        model: str = "a model",
    ) -> None:
        super().__init__(shape)
        self._arguments, self._model = arguments, model
        self.options, self.documents, self.is_by_position = options, documents, is_by_position

    def dense(self) -> Tensor:
        """The same as numbers, True where a key is seen: [batch, 1, queries, keys]."""
        return _dense(self._arguments)

    def __repr__(self) -> str:
        return f"Mask({list(self._shape)}, {'documents' if self.documents else ', '.join(self.options)})"

    __str__ = __repr__

    def _refusal(self) -> str:
        return (
            f"saccade.transformers: {self._model} computes with its attention mask, which is no tensor here; choose "
            "another attn_implementation"
        )


class MaskOfModel(Mask):
    """For models that saccade.transformers extends: they leave a mask without dimensions as it is."""

    ndim = 0


def mask(
    batch_size: int,
    q_length: int = 1,
    kv_length: int = 1,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Any = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    config: Any = None,
    **others: Any,
) -> Any:
    """What transformers calls to make a mask: the arguments are those of its ``sdpa_mask``.

    :param batch_size: entries of the batch.
    :param q_length: how many queries.
    :param kv_length: how many keys.
    :param q_offset: the position of the first query.
    :param kv_offset: the position of the first key.
    :param mask_function: ``mask_function(batch, head, q_idx, kv_idx)``, True where the query sees the key, made by the
        functions of ``transformers.masking_utils``.
    :param attention_mask: the padding, bool [batch, keys], False where a key counts for no query.
    :param local_size: not used: the window is read from mask_function.
    :param allow_is_causal_skip: not used: a causal mask is never None.
    :param allow_is_bidirectional_skip: whether the result may be None where no key is hidden.
    :param use_vmap: how ``sdpa_mask`` computes a mask that is a tensor.
    :param config: the configuration of the model, by which models are found that compute with their mask.
    :param others: other arguments of ``sdpa_mask``, of which ``cache_position`` has the positions of the queries.
    :returns: a :class:`Mask`; None where ``sdpa_mask`` may return it and no key is hidden, so never for a causal
        mask; a bool tensor [batch, 1, queries, keys] if ``mask_function`` is not one of causality, windows, chunks and
        packed sequences, such as for tokens of images that see each other, and for models that compute with it.
    """
    if isinstance(attention_mask, Mask):
        return attention_mask
    arguments = {**others, "batch_size": batch_size, "kv_length": kv_length, "kv_offset": kv_offset}
    arguments.update(mask_function=mask_function, attention_mask=attention_mask, use_vmap=use_vmap)
    positions = others.get("cache_position")  # of the queries, up to transformers 5.2
    if positions is None:
        arguments.update(q_length=q_length, q_offset=q_offset)
    else:
        q_length, q_offset = positions.shape[0], positions[0]
    if _computes_itself(config):
        _logger.warning_once(
            f"{type(config).__name__}: these models do not go through transformers' AttentionInterface; saccade does "
            "not compute their attention"
        )
        return masking_utils.eager_mask(allow_is_bidirectional_skip=False, **arguments)
    pattern = pattern_of(mask_function)
    if pattern is None or isinstance(kv_offset, Tensor) or (attention_mask is not None and attention_mask.dim() != 2):
        return _dense(arguments)
    if _knows_block_masks(config):
        return _dense(arguments)
    if isinstance(q_offset, Tensor) and not is_compiling():
        q_offset = int(q_offset)
    padding = _Padding(attention_mask, kv_length, kv_offset)
    pattern = _reduced(pattern, kv_length, kv_offset)
    is_extended = type(config).__name__ in _EXTENDED
    is_plain = not padding and _is_plain(pattern, q_length, kv_length, q_offset, kv_offset)
    if is_plain and allow_is_bidirectional_skip and not pattern.causal and not is_extended:
        return None
    shape = (batch_size, 1, q_length, kv_length)
    options: dict[str, Any]
    documents = None
    if is_plain:
        options = {"causal": "top_left"} if pattern.causal and q_length > 1 else {}
    elif pattern.sequences is not None or (pattern.chunk is not None and q_length > 1):
        if padding.keys is not None or (pattern.sequences is not None and padding):
            return _dense(arguments)
        if pattern.sequences is not None:
            documents = documents_of_sequences(pattern, batch_size, q_length)
        else:
            documents = documents_of_chunks(pattern, shape, q_offset, kv_offset, padding.starts, padding.lengths)
        options = {"causal": "top_left" if pattern.causal else None, "window": pattern.window, **documents.options}
    else:
        options = _options(pattern, padding, batch_size, q_offset, kv_offset)
    kind = MaskOfModel if is_extended else Mask
    is_by_position = pattern.causal or pattern.window != (-1, -1) or documents is not None
    return kind(shape, options, documents, arguments, is_by_position, _model_of(config))


def _model_of(config: Any) -> str:
    return "a model" if config is None else f"the model of {type(config).__name__}"


class _Padding:
    """The keys that count, of each batch entry."""

    def __init__(self, attention_mask: Tensor | None, kv_length: int, kv_offset: int) -> None:
        self.starts: Tensor | None = None  #: the first key: [batch]
        self.lengths: Tensor | None = None  #: the last key, plus 1: [batch]
        self.keys: Tensor | None = None  #: where others between these do not count, all that do: [batch, keys]
        if attention_mask is None:
            return
        if not is_compiling() and attention_mask.shape[1] >= kv_offset + kv_length and bool(attention_mask.all()):
            return
        keys = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        keys = keys[:, kv_offset : kv_offset + kv_length].to(torch.bool)
        as_bytes = keys.to(torch.uint8)
        self.starts = as_bytes.argmax(1)
        self.lengths = kv_length - as_bytes.flip(1).argmax(1)
        if is_compiling() or not torch.equal(self.lengths - self.starts, as_bytes.sum(1)):
            self.keys = keys

    def __bool__(self) -> bool:
        return self.starts is not None


def _dense(arguments: dict[str, Any]) -> Tensor:
    found = masking_utils.sdpa_mask(allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **arguments)
    assert found is not None  # only these flags allow it
    return found


def _reduced(pattern: Pattern, kv_length: int, kv_offset: int) -> Pattern:
    """The pattern without a window or chunks in which all keys lie."""
    left, right = pattern.window
    if left >= kv_length - 1 and (right < 0 or right >= kv_length - 1):
        pattern = pattern._replace(window=(-1, -1))
    if pattern.chunk is not None and kv_offset + kv_length <= pattern.chunk and pattern.positions is None:
        pattern = pattern._replace(chunk=None, left_padding=None)
    return pattern


def _is_plain(pattern: Pattern, q_length: int, kv_length: int, q_offset: Any, kv_offset: int) -> bool:
    """Whether nothing but causality hides a key, counted from the first of both."""
    if pattern.window != (-1, -1) or pattern.chunk is not None or pattern.sequences is not None:
        return False
    if not pattern.causal:
        return True
    if isinstance(q_offset, Tensor):
        return False
    if q_length == 1:
        return q_offset + 1 >= kv_offset + kv_length
    return q_offset == kv_offset


def _options(pattern: Pattern, padding: _Padding, batch: int, q_offset: Any, kv_offset: int) -> dict[str, Any]:
    """Those of saccade.torch.attention. The row of a query is counted from the first key."""
    offset = q_offset - kv_offset
    options: dict[str, Any] = {}
    if pattern.causal:
        options["causal"] = "top_left"
    if pattern.window != (-1, -1):
        options["window"] = pattern.window
    if options:
        options["query_offset"] = offset.expand(batch) if isinstance(offset, Tensor) else offset
    starts = padding.starts
    if pattern.chunk is not None:  # of the only query
        assert pattern.left_padding is not None
        within = q_offset - pattern.left_padding
        first = q_offset - within % pattern.chunk - kv_offset
        first = first.clamp(min=0)
        starts = first if starts is None else torch.maximum(first, starts)
    if starts is not None:
        options["kv_starts"] = starts
    if padding.lengths is not None:
        options["kv_lengths"] = padding.lengths
    if padding.keys is not None:
        options["mask"] = padding.keys[:, None, None, :]
    return options


_EXTENDED = frozenset(("BloomConfig", "FalconConfig"))


def _computes_itself(config: Any) -> bool:
    """Whether the attention modules of a model do not call transformers' interface."""
    kind = type(config)
    if kind.__name__ in _EXTENDED:
        return False
    known = _computing_themselves.get(kind)
    if known is None:
        module = _module_of(config)
        known = False
        if module is not None and not hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
            known = any(
                isinstance(value, type) and "Attention" in name and value.__module__ == module.__name__
                for name, value in vars(module).items()
            )
        _computing_themselves[kind] = known
    return known


_computing_themselves: dict[type, bool] = {}


def _knows_block_masks(config: Any) -> bool:
    """Whether a model's code looks whether its mask is one of flex_attention: it computes with others."""
    return hasattr(_module_of(config), "BlockMask")


def _module_of(config: Any) -> Any:
    """The module of transformers with the model of a config; None if there is none."""
    name = type(config).__module__
    module = name.replace("configuration_", "modeling_")
    return None if module == name else sys.modules.get(module)
