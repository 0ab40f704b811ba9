"""Checks of numbers: outputs and gradients, however the tensors are stored and whatever is around the call."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from .cases import Case, in_evaluation, results


def with_gradients(case: Case, call: Any = None, tensors: Any = None) -> tuple[Any, ...]:
    """What the call returns, and the gradients of a loss that weighs each number of it differently."""
    of, leaves = case.of_learnt(call)
    outputs = of(*(leaves if tensors is None else tensors))
    douts = [numbers_like(x) for x in outputs if x.requires_grad]
    gradients = torch.autograd.grad([x for x in outputs if x.requires_grad], leaves, douts, allow_unused=True)
    return outputs, gradients


def numbers_like(x: Tensor) -> Tensor:
    """Always the same numbers, of the shape and type of x."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(x.dtype)


def gradients(case: Case) -> Any:
    torch.manual_seed(1)
    return with_gradients(case)


def without_gradients(case: Case) -> Any:
    with torch.no_grad():
        return results(case.call(*case.tensors))


def in_inference_mode(case: Case) -> Any:
    with torch.inference_mode():
        return tuple(x.clone() for x in results(case.call(*case.tensors)))


def strides(case: Case) -> Any:
    """PyTorch's function gives rows that are contiguous; what follows may rely on it."""
    with torch.no_grad():
        return [x.stride(-1) for x in results(case.call(*case.tensors)) if x.dim() and x.shape[-1] > 1]


def noncontiguous(case: Case) -> Any:
    of, leaves = case.of_learnt()
    apart = [noncontiguous_like(x) for x in leaves]
    outputs = of(*apart)
    return outputs, torch.autograd.grad(sum(x.sum() for x in outputs), apart, allow_unused=True)


def of_some_inputs(case: Case) -> Any:
    """Gradients of one tensor at a time, while the others are constants."""
    of, leaves = case.of_learnt()
    found = []
    for i in range(min(len(leaves), 6)):
        one = [x if i == j else x.detach() for j, x in enumerate(leaves)]
        loss = sum(x.square().sum() for x in of(*one))
        found.append(torch.autograd.grad(loss, leaves[i], allow_unused=True) if loss.requires_grad else None)
    return found


def autocast(case: Case) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        outputs, gradients = with_gradients(case)
    return [x.dtype for x in outputs], [None if x is None else x.dtype for x in gradients]


def checkpointed(case: Case) -> Any:
    torch.manual_seed(1)
    return with_gradients(case, lambda *tensors: checkpoint(case.call, *tensors, use_reentrant=False))


def saved_tensors(case: Case) -> Any:
    def pack(x: Tensor) -> Any:
        return x.detach().clone()

    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        return with_gradients(case)


def changed_in_place(case: Case) -> Any:
    """A tensor that the backward pass needs and that has changed since is an error."""
    of, leaves = case.of_learnt()
    own = [x * 1 for x in leaves]
    loss = sum(x.square().sum() for x in of(*own))
    own[1].add_(1)
    return torch.autograd.grad(loss, leaves, allow_unused=True)


def conjugate_views(case: Case) -> Any:
    """Tensors that store their numbers negated."""
    tensors = [torch.complex(torch.zeros_like(x), -x).conj().imag if _is_real(x) else x for x in case.tensors]
    with torch.no_grad():
        return results(case.call(*tensors))


def _is_real(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.float64)


def evaluated(case: Case) -> Any:
    """A module in evaluation, with and without gradients: PyTorch has a fused path for the second."""
    still = in_evaluation(case)
    positional, named = still.arguments
    with torch.no_grad():
        fused = results(still.module(*positional, **named))
    return with_gradients(still), fused


def copied(case: Case) -> Any:
    """A module after pickle and deepcopy."""
    positional, named = case.arguments
    copies = (copy.deepcopy(case.module), pickle.loads(pickle.dumps(case.module)))
    with torch.no_grad():
        return [results(module(*positional, **named)) for module in copies]


def wrong_arguments(case: Case) -> Any:
    """The kinds of errors, of scaled_dot_product_attention."""
    (query, key, value), named = (case.arguments[0] + (None, None))[:3], case.arguments[1]
    function = torch.nn.functional.scaled_dot_product_attention
    mask = query.new_zeros(query.shape[-2], key.shape[-2])
    wrong: list[tuple[Any, Any]] = [
        ((query, key[..., :-1], value), named),
        ((query[0, 0] if query.dim() < 4 else query[0, 0, 0], key, value), named),
        ((query.long(), key.long(), value.long()), named),
        ((query, key, value), {**named, "attn_mask": torch.ones(9, 9, dtype=torch.bool), "is_causal": False}),
        ((query, key, value), {**named, "attn_mask": mask, "is_causal": True}),
        ((query, key, value), {**named, "dropout_p": 1.5}),
        ((query, key), named),
        ((query, key, value), {**named, "no_such_argument": 1}),
        ((query, key, None), named),
    ]
    return [_kind_of_error(function, *arguments) for arguments in wrong]


def short_value(case: Case) -> Any:
    """A value with fewer rows than key."""
    (query, key, value), named = (case.arguments[0] + (None, None))[:3], case.arguments[1]
    return _kind_of_error(torch.nn.functional.scaled_dot_product_attention, (query, key, value[..., :-1, :]), named)


def _kind_of_error(function: Any, positional: Any, named: Any) -> str:
    try:
        function(*positional, **named)
    except (RuntimeError, TypeError) as error:  # what PyTorch raises; a ValueError alone is none of these
        return "RuntimeError" if isinstance(error, RuntimeError) else "TypeError"
    return "none"


def ensembles(case: Case) -> Any:
    """Modules stacked by torch.func."""
    modules = [copy.deepcopy(case.module) for _ in range(2)]
    parameters, buffers = torch.func.stack_module_state(modules)
    positional, named = case.arguments

    def call(parameters: Any, buffers: Any) -> Any:
        return results(torch.func.functional_call(modules[0], (parameters, buffers), positional, named))

    return pytree.tree_map(Tensor.detach, torch.func.vmap(call, randomness="same")(parameters, buffers))
