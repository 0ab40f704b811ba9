"""Exact attention on the CPU: fast, in linear memory, with gradients, and to be looked at.

Everything takes NumPy arrays and whatever else has ``__dlpack__`` (PyTorch tensors on the CPU, bf16 and f16 included),
without copying them where their innermost dimension is contiguous, and returns PyTorch tensors where ``q`` is one,
NumPy arrays otherwise.

- :func:`scaled_dot_product_attention`: PyTorch's function, with its signature and meaning.
- :func:`attention`, :func:`attention_varlen`, :func:`attention_backward`, :func:`decode`: everything else that
  attention can be.
- :class:`KvCache`, :class:`Rope`, :func:`merge_states`: what generating text needs.
- :func:`inspect`, :func:`heatmap`: what attention looks at.
- :mod:`saccade.nn`: modules with parameters. :mod:`saccade.torch` and :mod:`saccade.onnx`: for PyTorch and ONNX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import nn
from ._attention import (
    AttentionOptions,
    BackwardOptions,
    Gradients,
    alibi_slopes,
    attention,
    attention_backward,
    attention_operations,
    attention_varlen,
    decode,
    merge_states,
    scaled_dot_product_attention,
)
from ._runtime import info, num_threads, release_workspaces, set_num_threads
from ._heatmap import Picture, attention_lines, heatmap
from ._inspect import Inspection, inspect
from ._kv_cache import KvCache, Rope
from ._random import manual_seed

if TYPE_CHECKING:
    from . import onnx as onnx
    from . import torch as torch
else:

    def __getattr__(name: str) -> Any:
        """Imports saccade.torch and saccade.onnx when they are asked for, and with them PyTorch and ONNX."""
        if name not in ("onnx", "torch"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ImportError as error:
            raise AttributeError(str(error)) from error


__version__ = info()["version"]

__all__ = [
    "AttentionOptions",
    "BackwardOptions",
    "Gradients",
    "Inspection",
    "KvCache",
    "Picture",
    "Rope",
    "alibi_slopes",
    "attention",
    "attention_backward",
    "attention_lines",
    "attention_operations",
    "attention_varlen",
    "decode",
    "heatmap",
    "info",
    "inspect",
    "manual_seed",
    "merge_states",
    "nn",
    "num_threads",
    "release_workspaces",
    "scaled_dot_product_attention",
    "set_num_threads",
]


def __dir__() -> list[str]:
    return sorted({*globals(), "onnx", "torch"})
