"""saccade for PyTorch: attention on CPU tensors, with gradients.

- :func:`attention`, :func:`attention_varlen`: those of :mod:`saccade`, with gradients for all that can learn.
- :func:`scaled_dot_product_attention`: ``torch.nn.functional.scaled_dot_product_attention``, with its signature.
- :func:`flex_attention`: ``torch.nn.attention.flex_attention.flex_attention``, also backward.
- :func:`patch`: makes PyTorch call it instead of its own function, for tensors on the CPU.
- :func:`statistics`: which calls the patch computed, and which it passed on and why.
- :class:`MultiheadAttention`: ``torch.nn.MultiheadAttention``; returning weights only costs writing them.

Needs PyTorch 2.5 or newer, which saccade does not install by itself: run ``pip install '.[torch]'`` in a clone, or
``pip install torch``.
"""

from __future__ import annotations

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        "saccade.torch needs PyTorch, which is not installed: 'pip install torch', or see https://pytorch.org; the "
        "rest of saccade works without"
    ) from error

if tuple(map(int, _torch.__version__.split(".")[:2])) < (2, 5):
    raise ImportError(f"saccade.torch needs PyTorch 2.5 or newer, and {_torch.__version__} is installed")

from ._attention import attention, attention_varlen
from ._flex import flex_attention
from ._functional import scaled_dot_product_attention
from ._multihead_attention import MultiheadAttention
from ._patch import Patch, patch
from ._statistics import CallSite, Statistics, statistics

__all__ = [
    "CallSite",
    "MultiheadAttention",
    "Patch",
    "Statistics",
    "attention",
    "attention_varlen",
    "flex_attention",
    "patch",
    "scaled_dot_product_attention",
    "statistics",
]
