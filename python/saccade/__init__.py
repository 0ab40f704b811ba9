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
- :mod:`saccade.nn`: modules with parameters. :mod:`saccade.torch`, :mod:`saccade.transformers` and
  :mod:`saccade.onnx`: for PyTorch, Hugging Face transformers and ONNX; imported on first use.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from . import nn
from ._attention import (
    Gradients,
    alibi_slopes,
    attention,
    attention_backward,
    attention_flops,
    attention_operations,  # noqa: F401 (deprecated)
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
from ._runtime import (
    backend,
    get_num_threads,
    info,
    num_threads,  # noqa: F401 (deprecated)
    release_workspaces,
    set_num_threads,
)

if TYPE_CHECKING:
    from . import distributed as distributed
    from . import onnx as onnx
    from . import torch as torch
    from . import transformers as transformers
    from .torch import flex_attention as flex_attention

# The modules that are imported on first use, with the packages that each needs; and the names that are taken from one.
_MODULES: dict[str, tuple[str, ...]] = {
    "distributed": (),
    "onnx": ("onnx",),
    "torch": ("torch",),
    "transformers": ("torch", "transformers"),
}
_NAMES = {"flex_attention": "torch"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports a module on first use, and with it what it needs: an ImportError names what is missing."""
        if name in _NAMES:
            return getattr(__getattr__(_NAMES[name]), name)
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # imported without the import system
        return True


__version__ = info()["version"].replace("-dev", ".dev0")  # as Python writes it

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
    "attention_flops",
    "attention_lines",
    "attention_varlen",
    "backend",
    "decode",
    "get_num_threads",
    "heatmap",
    "info",
    "inspect",
    "look",
    "manual_seed",
    "merge_states",
    "nn",
    "page",
    "release_workspaces",
    "scaled_dot_product_attention",
    "set_num_threads",
]


def __dir__() -> list[str]:
    """The public names, and the modules whose packages are installed."""
    there = {name for name, packages in _MODULES.items() if all(map(_is_installed, packages))}
    return sorted({*__all__, "__version__", *there, *(name for name, module in _NAMES.items() if module in there)})
