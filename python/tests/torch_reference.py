"""Checks whether a result of saccade.torch agrees with PyTorch's.

The expected result is that of PyTorch's function in f64. The allowed error depends on the error of PyTorch's
unfused function in the precision of the inputs: for the output twice that + 8 eps times the bound, for gradients
three times that + 16 eps times the bound. The bound is the same sum over absolute values, which allows for
cancellation.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def assert_agrees(attention: Callable[..., Tensor], tensors: dict[str, Tensor | None], **options: Any) -> None:
    """Compares output and all gradients of a call with PyTorch's."""
    got = outcome(attention, tensors, None, options)
    with sdpa_kernel(SDPBackend.MATH):
        wanted = outcome(F.scaled_dot_product_attention, tensors, torch.float64, options)
        naive = outcome(F.scaled_dot_product_attention, tensors, None, options)
    bounds = bounds_of(tensors, options)
    assert got.keys() == wanted.keys()
    for name, result in got.items():
        own = tensors.get(name, tensors["query"])
        assert result.shape == wanted[name].shape and result.dtype == own.dtype, name
        if result.numel() == 0:
            continue
        times, eps = (2, 8) if name == "output" else (3, 16)
        error = (result.double() - wanted[name]).abs()
        allowed = times * (naive[name].double() - wanted[name]).abs().max()
        allowed += eps * torch.finfo(result.dtype).eps * bounds[name].max()
        worst = error.flatten().argmax()
        assert error.max() <= allowed, (
            f"{name}: got {result.flatten()[worst]}, expected {wanted[name].flatten()[worst]}, "
            f"error {error.max():.3g}, allowed {allowed:.3g}"
        )


def outcome(
    attention: Callable[..., Tensor],
    tensors: dict[str, Tensor | None],
    dtype: torch.dtype | None,
    options: dict[str, Any],
) -> dict[str, Tensor]:
    """Output and gradients by name. The output's gradient is the same for every dtype, except for rounding."""
    leaves = {name: _leaf(tensor, dtype) for name, tensor in tensors.items()}
    output = attention(**leaves, **options)
    learnt = {name: leaf for name, leaf in leaves.items() if leaf is not None and leaf.requires_grad}
    gradients = torch.autograd.grad(
        output, list(learnt.values()), _dout(output.shape).to(tensors["query"].dtype).to(output.dtype)
    )
    return {"output": output.detach(), **dict(zip(learnt, gradients))}


def bounds_of(tensors: dict[str, Tensor | None], options: dict[str, Any]) -> dict[str, Tensor]:
    """Output and gradients with absolute values under every sum."""
    leaves = {name: _leaf(tensor, torch.float64) for name, tensor in tensors.items()}
    query, key, value, mask = (leaves.get(name) for name in ("query", "key", "value", "attn_mask"))
    group = query.shape[-3] // key.shape[-3] if options.get("enable_gqa") else 1
    k_heads, v_heads = (x.repeat_interleave(group, -3) if group > 1 else x for x in (key, value))
    lead = torch.broadcast_shapes(query.shape[:-2], k_heads.shape[:-2], v_heads.shape[:-2])
    q, k, v = (x.expand(*lead, *x.shape[-2:]) for x in (query, k_heads, v_heads))
    scale = options.get("scale")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.mT * scale
    if options.get("is_causal"):
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
    weights = scores.softmax(-1).nan_to_num().detach()
    dout = _dout((*q.shape[:-1], v.shape[-1])).abs()
    dweights = dout @ v.detach().abs().mT
    dscores = weights * (dweights + (weights * dweights).sum(-1, keepdim=True))
    bounds = {"output": weights @ v.detach().abs()}
    factors = {
        "query": (q, dscores @ k.detach().abs() * abs(scale)),
        "key": (k, dscores.mT @ q.detach().abs() * abs(scale)),
    }
    factors["value"] = (v, weights.mT @ dout)
    if mask is not None and mask.requires_grad:
        factors["attn_mask"] = (mask.expand(scores.shape), dscores)
    for name, (expanded, bound) in factors.items():
        (bounds[name],) = torch.autograd.grad(expanded, leaves[name], bound)  # sums over broadcast dimensions
    return bounds


def _leaf(tensor: Tensor | None, dtype: torch.dtype | None) -> Tensor | None:
    if tensor is None or not tensor.is_floating_point():
        return tensor
    tensor = tensor.detach()
    return (tensor if dtype is None else tensor.to(dtype)).requires_grad_()


def _dout(shape: Any) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
