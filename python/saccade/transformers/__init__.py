"""saccade for Hugging Face transformers: attention of its models, on the CPU, with gradients.

- :func:`register`: makes ``attn_implementation="saccade"`` known.
- :class:`QuantizedCache`: keeps the keys and values of ``generate()`` in 8 or 4 bits.
- :func:`attention`, :func:`mask`: the two functions that it registers, for an implementation of your own.

Needs transformers 5 or newer and PyTorch, which saccade does not install by itself: run ``pip install
'.[transformers]'`` in a clone, or ``pip install transformers torch``.
"""

from __future__ import annotations

import saccade.torch as _torch  # noqa: F401  (says what is missing if PyTorch is)

try:
    import transformers as _transformers
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ImportError(
        "saccade.transformers needs Hugging Face transformers, which is not installed: 'pip install transformers'; the "
        "rest of saccade works without"
    ) from error

if int(_transformers.__version__.split(".")[0]) < 5:
    raise ImportError(
        f"saccade.transformers needs transformers 5 or newer, and {_transformers.__version__} is installed"
    )

from ._attention import attention
from ._cache import QuantizedCache
from ._mask import Mask, mask
from ._models import extend_models

__all__ = ["Mask", "QuantizedCache", "attention", "mask", "register"]


def register(name: str = "saccade") -> None:
    """Makes saccade an attention implementation of transformers: ``attn_implementation=name`` in ``from_pretrained``,
    ``from_config`` and ``set_attn_implementation``.

    Models that go through transformers' ``AttentionInterface`` then compute their attention with :func:`attention`, and
    their masks are a :class:`Mask`, which stores no number for a pair of a query and a key. Falcon and Bloom, which do
    not go through that interface, do so too once this function has been called; other such models compute as with
    "eager", and a warning says so. May be called again.

    :param name: the name of the implementation; without "flash", "flex", "sdpa", "eager" and "|", to which
        transformers gives a meaning.
    :raises ValueError: for another name.
    """
    if not isinstance(name, str) or not name or any(word in name for word in ("flash", "flex", "sdpa", "eager", "|")):
        raise ValueError(f"name: expected one without 'flash', 'flex', 'sdpa', 'eager' and '|', got {name!r}")
    _transformers.AttentionInterface.register(name, attention)
    _transformers.AttentionMaskInterface.register(name, mask)
    extend_models(name)
