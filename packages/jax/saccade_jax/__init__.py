"""Exact attention on the CPU for JAX, in linear memory: under ``jit``, ``vmap`` and ``grad``.

``docs/jax.md`` describes it.
"""

from ._attention import attention, attention_varlen
from ._dot_product_attention import dot_product_attention

__all__ = ["attention", "attention_varlen", "dot_product_attention"]
