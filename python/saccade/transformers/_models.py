"""Models that compute attention in a way of their own and that saccade.transformers extends: Falcon and Bloom."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.models.bloom import modeling_bloom
from transformers.models.falcon import modeling_falcon

from ._attention import attention
from ._mask import MaskOfModel


def extend_models(name: str) -> None:
    """Makes Falcon and Bloom call :func:`attention` for the implementation of that name."""
    modeling_falcon.FALCON_ATTENTION_CLASSES[name] = FalconAttention
    modeling_bloom.BloomAttention.forward = _bloom_forward


class FalconAttention(modeling_falcon.FalconAttention):
    """transformers' module with the same parameters. ALiBi is a bias of each key, not of each pair."""

    def forward(
        self,
        hidden_states: Tensor,
        alibi: Tensor | None,
        attention_mask: Any,
        position_ids: Tensor | None = None,
        layer_past: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = (x.transpose(1, 2) for x in self._split_heads(self.query_key_value(hidden_states)))
        if alibi is None:
            assert position_embeddings is not None
            query, key = modeling_falcon.apply_rotary_pos_emb(query, key, *position_embeddings)
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        bias, dropout = None, 0.0
        if alibi is not None:
            dropout = self.attention_dropout.p if self.training else 0.0  # as theirs, with ALiBi only
            if isinstance(attention_mask, MaskOfModel):  # FalconModel adds it to a tensor
                bias = (alibi * self.inv_norm_factor).view(-1, self.num_heads, 1, alibi.shape[-1])
        o, weights = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout,
            self.inv_norm_factor,
            position_bias=bias,
            output_attentions=output_attentions,
        )
        return self.dense(o.flatten(2)), weights


_their_forward = modeling_bloom.BloomAttention.forward


def _bloom_forward(
    self: Any,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Any,
    layer_past: Any = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """``BloomAttention.forward``, which does not know the name of the implementation, but gets another mask by it."""
    if not isinstance(attention_mask, MaskOfModel):
        arguments = (hidden_states, residual, alibi, attention_mask, layer_past, use_cache, output_attentions)
        return _their_forward(self, *arguments, **others)
    query, key, value = self._reshape(self.query_key_value(hidden_states))
    if layer_past is not None:
        key, value = layer_past.update(key, value, self.layer_idx)
    o, weights = attention(
        self,
        query,
        key,
        value,
        attention_mask,
        self.attention_dropout.p if self.training else 0.0,
        self.inv_norm_factor,
        position_bias=(alibi * self.beta).view(-1, self.num_heads, 1, alibi.shape[-1]),
        output_attentions=output_attentions,
    )
    o = o.flatten(2)
    if self.pretraining_tp > 1 and self.slow_but_exact:  # theirs, which adds no bias then
        width = self.hidden_size // self.pretraining_tp
        parts = zip(o.split(width, -1), self.dense.weight.split(width, -1))
        projected = sum(torch.nn.functional.linear(part, weight) for part, weight in parts)
    else:
        projected = self.dense(o)
    return modeling_bloom.dropout_add(projected, residual, self.hidden_dropout, self.training), weights
