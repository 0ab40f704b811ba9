"""The differences that are meant, each with its reason and the sentence of docs/torch.md that names it."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from .cases import FUNCTIONS, Case
from .differences import Difference, Permitted


def _is_other_dropout(found: Difference) -> bool:
    """Other values, or where a check compares a call that the patch passes on with one that it does not."""
    is_compared_within = found.check == "aot_autograd" or "compliance" in found.check
    return found.case.drops and (
        found.kind == "values" or (is_compared_within and found.kind == "refused" and _is_comparison(found.text))
    )


def _is_comparison(text: str) -> bool:
    return "not close" in text or "Outputs of the operator are different" in text


def _is_change_in_place(found: Difference) -> bool:
    return found.check == "changed in place" and "modified by an inplace operation" in found.text


def _is_short_value(found: Difference) -> bool:
    return found.check == "fewer values than keys" and found.text.endswith("RuntimeError in place of none")


def _is_of_large_scores(found: Difference) -> bool:
    """Weights are exp(score - lse), with the relative error of a rounded lse, which is about the largest score."""
    if found.kind != "values" or not found.eps or found.case.subject != FUNCTIONS[0]:
        return False
    return found.eps <= _largest_score(found.case)


def _is_of_weights_of_1(found: Difference) -> bool:
    """Where one weight in each row is 1, gradients of query and key are 0. The numbers that cancel are about as large
    as the gradient of value."""
    if found.kind != "values" or found.case.subject != FUNCTIONS[0] or found.case.drops:
        return False
    return found.eps_of_all <= 16 and _least_largest_weight(found.case) > 1 - torch.finfo(found.case.dtype).eps


def _least_largest_weight(case: Case) -> float:
    (query, key, *_), named = case.in_f64().arguments
    every = torch.eye(key.shape[-2], dtype=torch.float64).expand(*key.shape[:-1], -1)
    with torch.no_grad():
        return float(scaled_dot_product_attention(query, key, every, **named).amax(-1).min())


def _largest_score(case: Case) -> float:
    (query, key, _), named = case.arguments
    if named.get("enable_gqa") and query.dim() > 2:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    scale = named.get("scale") or query.shape[-1] ** -0.5
    with torch.no_grad():
        return float((query.double() @ key.double().mT * scale).abs().max())


def _is_copied(found: Difference) -> bool:
    return found.check == "copy on write" and found.text.endswith("False in place of True")


def _is_of_other_kernel(found: Difference) -> bool:
    return found.check == "operations counted" and found.kind == "values" and _is_unfused(found.case)


def _is_unfused(case: Case) -> bool:
    """Whether PyTorch's fused kernel does not take the call."""
    (query, key, _), named = case.arguments
    learns_mask = isinstance(named.get("attn_mask"), torch.Tensor)  # the samples' masks require grad
    return case.subject == FUNCTIONS[0] and (query.dim() != key.dim() or learns_mask)


PERMITTED = (
    Permitted(
        "dropout streams",
        "which weights are dropped is drawn by saccade's own generator, seeded from PyTorch's",
        "**Dropout streams differ**: `torch.manual_seed` makes results reproducible, not equal to PyTorch's.",
        _is_other_dropout,
        of_dropout=True,
    ),
    Permitted(
        "tensors changed in place",
        "PyTorch's unfused kernel works on scaled copies, and so does not need the tensor any more",
        "A tensor that is changed in place before `backward()` is always an error",
        _is_change_in_place,
    ),
    Permitted(
        "a value shorter than key",
        "PyTorch's fused kernel does not look at how many rows value has",
        "A value with fewer rows than key is an error",
        _is_short_value,
    ),
    Permitted(
        "operations of another kernel",
        "PyTorch counts those of its unfused kernel where it uses that",
        "as it does those of PyTorch's fused kernel, which computes the scores twice",
        _is_of_other_kernel,
    ),
    Permitted(
        "lazy copies",
        "saccade asks a tensor for its address, upon which PyTorch makes the copy",
        "Lazy copies (`torch._lazy_clone`) are made when they are read",
        _is_copied,
    ),
    Permitted(
        "gradients of large scores",
        "the backward pass computes weights again from lse, the rounding of which is relative to the scores",
        "their error is up to eps times the largest score",
        _is_of_large_scores,
    ),
    Permitted(
        "gradients of 0 of weights of 1",
        "rowsum(dout * o) is not rounded as dout v^T is, in PyTorch's fused kernel neither; its unfused one alone is "
        "differentiated twice",
        "they are 0 up to eps times what cancels",
        _is_of_weights_of_1,
    ),
)
