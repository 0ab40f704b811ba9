"""Functions of flex_attention that cannot be traced: PyTorch's vmap calls them for a tile of scores at a time."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

from ._flex_options import Blocks
from ._trace import tensors_in

try:  # without it, a function cannot index tensors with its arguments
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
except ImportError:
    TransformGetItemToIndex = contextlib.nullcontext

# The dispatcher's state outside of operators, which exclude what vmap needs.
_STATE = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


class Tiles:
    """A score_mod and a mask_mod. `why`: what prevents tracing."""

    def __init__(self, score_mod: Any, mask_mod: Any, blocks: Blocks | None, why: str, score: torch.dtype) -> None:
        self.score_mod, self.mask_mod, self.blocks = score_mod, mask_mod, blocks
        one = np.zeros((1, 1), np.int64)
        with _Captured() as captured, forward_ad._set_fwd_grad_enabled(False):
            sample = self._modified(torch.zeros(1, 1, dtype=score), 0, 0, one, one)
        self.tensors = captured.found
        if torch.is_grad_enabled() and sample.requires_grad:
            raise ValueError(f"score_mod: tensors that it uses have gradients only if it can be traced, but it {why}")

    def options(self, tensors: Any, gradients: Any = (), maxima: Tensor | None = None) -> dict[str, Any]:
        """:param maxima: receives each row's largest score, [batch, heads, seqlen_q]; filled with -inf."""

        def modify(scores: Any, batch: int, head: int, rows: Any, keys: Any) -> Any:
            with torch.no_grad():
                result = self._modified(torch.from_numpy(scores), batch, head, rows, keys)
                if maxima is not None and result.numel():
                    line = maxima[batch, head, torch.from_numpy(rows)[:, 0]]
                    maxima[batch, head, torch.from_numpy(rows)[:, 0]] = torch.maximum(line, result.amax(-1))
            return result.numpy()

        options: dict[str, Any] = {"score_mod": modify, "score_mod_backward": self.differentiate}
        if self.blocks is not None:
            effects, block_q, block_k = self.blocks
            options.update(block_mask=effects != 0, block_mask_size=(block_q, block_k))
        return options

    def differentiate(self, scores: Any, gradients: Any, batch: int, head: int, rows: Any, keys: Any) -> Any:
        given = torch.from_numpy(scores).requires_grad_()
        with torch.enable_grad(), torch._C._ForceDispatchKeyGuard(*_STATE):
            result = self._modified(given * 1, batch, head, rows, keys)
            if not result.requires_grad:
                return torch.zeros_like(given).numpy()
            (found,) = torch.autograd.grad(result, given, torch.from_numpy(gradients))
        return found.numpy()

    def _modified(self, scores: Tensor, batch: int, head: int, rows: Any, keys: Any) -> Tensor:
        places = (torch.tensor(batch), torch.tensor(head), torch.from_numpy(rows)[:, 0], torch.from_numpy(keys)[0])
        dtype = scores.dtype
        with torch._C._ForceDispatchKeyGuard(*_STATE), TransformGetItemToIndex():
            if self.score_mod is not None:
                of_keys = torch.vmap(self.score_mod, (0, None, None, None, 0))
                scores = torch.vmap(of_keys, (0, None, None, 0, None))(scores, *places)
            if self.mask_mod is not None:
                of_keys = torch.vmap(self.mask_mod, (None, None, None, 0))
                visible = torch.vmap(of_keys, (None, None, 0, None))(*places)
                scores = torch.where(visible | self._is_full(batch, head, *places[2:]), scores, -torch.inf)
        return scores.to(dtype)

    def _is_full(self, batch: int, head: int, rows: Tensor, keys: Tensor) -> Any:
        """Where a block is visible as a whole, whatever mask_mod says."""
        if self.blocks is None:
            return torch.tensor(False)
        effects, block_q, block_k = self.blocks
        effects = effects[batch % effects.shape[0], head % effects.shape[1]]
        return effects[(rows // block_q)[:, None], keys // block_k] == 1


class _Captured(TorchFunctionMode):
    """Collects the tensors that functions read and did not make."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []
        self._seen: dict[int, Any] = {}  # keeps what it has seen, so that no id is used twice

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors_in((*args, *kwargs.values())):
            if id(tensor) not in self._seen and not _is_wrapped(tensor):
                self.found.append(tensor)
            self._seen[id(tensor)] = tensor
        result = function(*args, **kwargs)
        self._seen.update((id(x), x) for x in tensors_in((result,)))
        return result
