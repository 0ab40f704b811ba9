"""Arrays for results: of the library that the arguments are from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


def as_array(value: Any, name: str) -> Any:
    """The argument itself if it is an array of some library, a NumPy array of it otherwise."""
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        raise ValueError(f"{name}: wanted an array, got None")
    exports = hasattr(value, "__dlpack__")
    try:
        if exports and isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
            return value
        array = np.from_dlpack(value) if exports else np.asarray(value)
    except (AttributeError, BufferError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: wanted an array, got {type(value).__name__} ({error})") from None
    if array.dtype == object:
        raise ValueError(f"{name}: wanted an array of numbers, got {type(value).__name__}")
    return array


def is_torch(value: Any) -> bool:
    """Whether the value is a PyTorch tensor; does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def empty(like: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """An array to be filled, of like's library and, unless one is named ("f32", "f64"), of its dtype.

    :raises MemoryError: where there is no room for it, however large.
    """
    if is_torch(like):
        import torch

        return torch.empty(tuple(shape), dtype=_torch_dtype(dtype) if dtype else like.dtype)
    if dtype:
        numpy_dtype = np.dtype(np.float64 if dtype == "f64" else np.float32)
    else:
        numpy_dtype = like.dtype if isinstance(like.dtype, np.dtype) else np.dtype(dtype_name(like))
    try:
        return np.empty(shape, numpy_dtype)
    except ValueError:  # more bytes than a pointer can count
        raise MemoryError(f"no room for an array of shape {list(shape)}") from None


def returned(like: Any, array: np.ndarray | None) -> Any:
    """A NumPy array of results as one of like's library, without copying it."""
    if array is not None and is_torch(like):
        import torch

        return torch.from_numpy(array)
    return array


def precision(like: Any) -> str:
    """The type that softmax is computed in: "f64" for f64 arrays, "f32" for all others."""
    return "f64" if str(like.dtype) in ("float64", "torch.float64") else "f32"


def dtype_name(array: Any) -> str:
    """The dtype by NumPy's name, whatever the library: "float32", "bfloat16"."""
    return str(array.dtype).rpartition(".")[2]


def _torch_dtype(name: str) -> Any:
    import torch

    return torch.float64 if name == "f64" else torch.float32
