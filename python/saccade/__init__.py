"""Exact attention on the CPU: fast, in linear memory, with gradients, statistics and heat maps.

All functions accept NumPy arrays and other arrays with ``__dlpack__``, such as PyTorch tensors on the CPU, also of
bf16 and f16. Arrays are not copied if their innermost dimension is contiguous. Results are PyTorch tensors if
``q`` is one, otherwise NumPy arrays.

- :func:`scaled_dot_product_attention`: PyTorch's function, with its signature and meaning.
- :func:`attention`, :func:`attention_varlen`, :func:`attention_backward`, :func:`decode`: attention
  with all other options.
- :class:`KvCache`, :class:`Rope`, :func:`merge_states`: for generating text.
- :func:`inspect`, :func:`heatmap`, :func:`page`: statistics and pictures of the weights, every head of a model;
  :func:`look`: the same from a model's folder and a text.
- :mod:`saccade.distributed`: attention over several processes.
- :mod:`saccade.nn`: modules with parameters. :mod:`saccade.torch` and :mod:`saccade.onnx`: for PyTorch and ONNX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import nn
from ._attention import (
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
from ._attention_page import Page, page
from ._heatmap import Picture, attention_lines, heatmap
from ._inspect import Inspection, inspect
from ._kv_cache import KvCache, Rope
from ._look import look
from ._options import AttentionOptions, BackwardOptions
from ._random import manual_seed
from ._runtime import backend, info, num_threads, release_workspaces, set_num_threads

if TYPE_CHECKING:
    from . import distributed as distributed
    from . import onnx as onnx
    from . import torch as torch
    from .torch import flex_attention as flex_attention
else:

    def __getattr__(name: str) -> Any:
        """Imports a module on first use, and with it PyTorch or ONNX."""
        if name == "flex_attention":
            return getattr(__getattr__("torch"), name)
        if name not in ("distributed", "onnx", "torch"):
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
    "Page",
    "Picture",
    "Rope",
    "alibi_slopes",
    "attention",
    "attention_backward",
    "attention_lines",
    "attention_operations",
    "attention_varlen",
    "backend",
    "decode",
    "heatmap",
    "info",
    "inspect",
    "look",
    "manual_seed",
    "merge_states",
    "nn",
    "num_threads",
    "page",
    "release_workspaces",
    "scaled_dot_product_attention",
    "set_num_threads",
]


def __dir__() -> list[str]:
    return sorted({*globals(), "flex_attention", "onnx", "torch"})
