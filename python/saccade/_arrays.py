"""Converts arguments to arrays, and creates arrays for results in the library of the arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


def as_array(value: Any, name: str) -> Any:
    """The argument itself if it is an array of any library, otherwise converted to a NumPy array."""
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        raise ValueError(f"{name}: expected an array, got None")
    exports = hasattr(value, "__dlpack__")
    try:
        if exports and isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
            return value
        array = np.from_dlpack(value) if exports else np.asarray(value)
    except (AttributeError, BufferError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected an array, got {type(value).__name__} ({error})") from None
    if array.dtype == object:
        raise ValueError(f"{name}: expected an array of numbers, got {type(value).__name__}")
    return array


def is_torch(value: Any) -> bool:
    """Whether the value is a PyTorch tensor; does not import PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def empty(like: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """An uninitialised array of like's library, of ``dtype`` ("f32" or "f64") or by default of like's.

    :raises MemoryError: if there is not enough memory, for any size.
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
    except ValueError:  # more bytes than a pointer can address
        raise MemoryError(f"no room for an array of shape {list(shape)}") from None


def returned(like: Any, array: np.ndarray | None) -> Any:
    """Converts a NumPy array of results to an array of like's library, without copying it."""
    if array is not None and is_torch(like):
        import torch

        return torch.from_numpy(array)
    return array


def precision(like: Any) -> str:
    """The type that softmax is computed in: "f64" for f64 arrays, "f32" for all others."""
    return "f64" if str(like.dtype) in ("float64", "torch.float64") else "f32"


def dtype_name(array: Any) -> str:
    """NumPy's name for the dtype of an array of any library: "float32", "bfloat16"."""
    return str(array.dtype).rpartition(".")[2]


def _torch_dtype(name: str) -> Any:
    import torch

    return torch.float64 if name == "f64" else torch.float32
