"""Which tensors saccade can compute with, and in which form the compiled module reads them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

_OF_PYTORCH = frozenset((Tensor, torch.nn.Parameter))
_FLOATING = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16))
_transforms = torch._C._functorch.peek_interpreter_stack
is_batched = torch._C._functorch.is_legacy_batchedtensor


def is_transformed() -> bool:
    """Whether a transform of torch.func (vmap, grad, jvp ...) is in force."""
    return _transforms() is not None


def is_recorded() -> bool:
    """Whether torch.compile, a dispatch mode or a trace records the operators that are called.

    Such a record contains operators only, not what a Python function computes outside them.
    """
    return is_compiling() or torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None


def are_batched(*tensors: Tensor | None) -> bool:
    """Whether some are batches of is_grads_batched, vectorize and gradcheck, which only operators can take: PyTorch
    calls these for each entry."""
    return any(x is not None and is_batched(x) for x in tensors)


def is_plain(tensor: Any) -> bool:
    """Whether a tensor holds its numbers in main memory: on the CPU, dense, not a placeholder (fake, vmap)."""
    return (
        (type(tensor) in _OF_PYTORCH or _is_harmless_subclass(tensor))
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not is_transformed()
    )


def require_plain(tensor: Any, name: str, floating: bool = True) -> None:
    """Raises ValueError for what :func:`is_plain` rejects and, with ``floating``, for other element types."""
    if is_plain(tensor) and (tensor.dtype in _FLOATING or not floating):
        return
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name}: expected a tensor, got {'None' if tensor is None else type(tensor).__name__}")
    if tensor.is_nested or tensor.layout is not torch.strided:
        kind = "nested" if tensor.is_nested else f"of layout {tensor.layout}"
        raise ValueError(f"{name}: expected a dense tensor, got one that is {kind}")
    if not tensor.is_cpu:
        raise ValueError(
            f"{name}: expected a tensor on the CPU, got one on {tensor.device}; saccade runs on the CPU only"
        )
    if is_plain(tensor):
        raise ValueError(f"{name}: expected float64, float32, bfloat16 or float16, got {_dtype(tensor)}")
    if is_transformed():
        raise ValueError(f"{name}: torch.func transforms (vmap, grad, jvp ...) are not supported")
    raise ValueError(f"{name}: expected a plain tensor, got a {type(tensor).__name__}")


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors as PyTorch casts the arguments of its own functions of attention within torch.autocast."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype is not torch.float64 else x for x in tensors)


def readable(tensor: Tensor) -> Tensor:
    """The tensor with its actual numbers in memory: x.imag of a conjugate, for example, stores them negated."""
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def empty_rows_like(tensor: Tensor) -> Tensor:
    """A new tensor of the same shape and order of dimensions in memory, with contiguous rows."""
    return torch.empty_like(tensor) if tensor.stride(-1) == 1 else tensor.new_empty(tensor.shape)


def precision(tensor: Tensor) -> torch.dtype:
    """The type of softmax, lse and weights."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def or_empty(result: Tensor | None, q: Tensor) -> Tensor:
    """What an operator returns for a result that there is not."""
    return q.new_empty(0, dtype=precision(q)) if result is None else result


def _is_harmless_subclass(tensor: Any) -> bool:
    """Whether a subclass leaves PyTorch's operators unchanged, unlike FakeTensor or DTensor."""
    if not isinstance(tensor, Tensor):
        return False
    return type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).rpartition(".")[2]
