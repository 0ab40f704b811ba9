"""Functions of flex_attention that cannot be traced: PyTorch's vmap calls them for a tile of scores at a time."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

try:  # without it, a function cannot index tensors with its arguments
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
except ImportError:
    TransformGetItemToIndex = contextlib.nullcontext


class Tiles:
    """A score_mod and a mask_mod. `why`: what prevents tracing."""

    learnt: tuple[Tensor, ...] = ()

    def __init__(self, score_mod: Any, mask_mod: Any, blocks: Any, why: str) -> None:
        self.score_mod, self.mask_mod, self.blocks = score_mod, mask_mod, blocks
        if torch.is_grad_enabled() and self._learns():
            raise ValueError(f"score_mod: tensors that it uses have gradients only if it can be traced, but it {why}")

    def _learns(self) -> bool:
        """Whether a function uses tensors that require grad."""
        one = np.zeros((1, 1), np.int64)
        return self._modified(torch.zeros(1, 1), 0, 0, one, one).requires_grad

    def options(self, gradients: Any = ()) -> dict[str, Any]:
        options: dict[str, Any] = {"score_mod": self.modify, "score_mod_backward": self.differentiate}
        if self.blocks is not None:
            effects, block_q, block_k = self.blocks
            options.update(block_mask=effects != 0, block_mask_size=(block_q, block_k))
        return options

    def modify(self, scores: Any, batch: int, head: int, rows: Any, keys: Any) -> Any:
        with torch.no_grad():
            return self._modified(torch.from_numpy(scores), batch, head, rows, keys).numpy()

    def differentiate(self, scores: Any, gradients: Any, batch: int, head: int, rows: Any, keys: Any) -> Any:
        given = torch.from_numpy(scores).requires_grad_()
        with torch.enable_grad():
            result = self._modified(given * 1, batch, head, rows, keys)
            if not result.requires_grad:
                return torch.zeros_like(given).numpy()
            (found,) = torch.autograd.grad(result, given, torch.from_numpy(gradients))
        return found.numpy()

    def _modified(self, scores: Tensor, batch: int, head: int, rows: Any, keys: Any) -> Tensor:
        places = (torch.tensor(batch), torch.tensor(head), torch.from_numpy(rows)[:, 0], torch.from_numpy(keys)[0])
        with TransformGetItemToIndex():
            if self.score_mod is not None:
                of_keys = torch.vmap(self.score_mod, (0, None, None, None, 0))
                scores = torch.vmap(of_keys, (0, None, None, 0, None))(scores, *places)
            if self.mask_mod is not None:
                of_keys = torch.vmap(self.mask_mod, (None, None, None, 0))
                visible = torch.vmap(of_keys, (None, None, 0, None))(*places)
                scores = torch.where(visible, scores, -torch.inf)
        return scores
