"""Replaces PyTorch's scaled_dot_product_attention with saccade's, wherever it is called."""

from __future__ import annotations

import functools
import threading
from types import TracebackType
from typing import Any, Callable, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling
from torch.jit import _builtins as script
from torch.overrides import handle_torch_function, has_torch_function

from ._attend import attend_to_few
from ._functional import is_causal_bias, scaled_dot_product_attention
from ._tensors import is_plain

_default = cast(Any, Tensor.__torch_function__).__func__
_disabled = torch._C._disabled_torch_function_impl
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # missing before PyTorch 2.7

_lock = threading.Lock()
_patches = 0
_installed: Any = None  # the function in torch.nn.functional while a patch is in force
_previous: Any = None  # the function that it replaced
_fast_path = True  # the setting of torch.backends.mha before


class Patch:
    """A patch, in force until :meth:`undo` or the end of its ``with`` block. A new block applies it again."""

    def __init__(self) -> None:
        self._in_force = False
        self.__enter__()

    def undo(self) -> None:
        """Ends this patch; further calls do nothing. PyTorch is as before when all patches have ended."""
        with _lock:
            if self._in_force:
                self._in_force = False
                _remove()

    def __enter__(self) -> Patch:
        with _lock:
            if not self._in_force:
                self._in_force = True
                _install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"<saccade.torch.Patch, {'in force' if self._in_force else 'undone'}>"


def patch() -> Patch:
    """Replaces ``torch.nn.functional.scaled_dot_product_attention`` with
    :func:`saccade.torch.scaled_dot_product_attention` for tensors on the CPU. Everything that calls it then uses
    saccade: ``nn.TransformerEncoderLayer``, ``nn.MultiheadAttention`` without weights, models of other libraries.
    Takes effect at once, for all threads::

        saccade.torch.patch()                # for good
        with saccade.torch.patch(): ...      # for the block
        handle = saccade.torch.patch(); ...; handle.undo()

    It may be called again while in force, by any thread: PyTorch stays patched until every handle is undone, in
    any order.

    Some calls still go to the previous function:

    - those with tensors on other devices, meta, fake, nested and sparse tensors, tensors of torch.func,
      torch.jit.trace and torch.export, and classes with a ``__torch_function__`` of their own;
    - all calls while PyTorch's fused kernel is switched off, as within
      ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` (functions of torch.compile do not check this setting);
    - those of programs of torch.jit.script.

    There is no other fallback: a call that saccade does not support raises ValueError. The fused inference path of
    ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` is off while a patch is in force
    (``torch.backends.mha.set_fastpath_enabled``), so that they use saccade in evaluation too.

    Names imported before (``from torch.nn.functional import scaled_dot_product_attention``) and calls from C++ are not
    patched.
    """
    return Patch()


def _install() -> None:
    global _patches, _installed, _previous, _fast_path
    _patches += 1
    if _patches == 1:
        _fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        _previous = F.scaled_dot_product_attention
        _installed = F.scaled_dot_product_attention = _in_place_of(_previous)
        script._get_builtin_table()[id(_installed)] = "aten::scaled_dot_product_attention"


def _remove() -> None:
    global _patches, _installed, _previous
    _patches -= 1
    if _patches == 0:
        if not torch.backends.mha.get_fastpath_enabled():  # somebody may have switched it on since
            torch.backends.mha.set_fastpath_enabled(_fast_path)
        del script._get_builtin_table()[id(_installed)]
        if F.scaled_dot_product_attention is _installed:  # false if other code has wrapped it since
            F.scaled_dot_product_attention = _previous
        _installed = _previous = None


def _in_place_of(previous: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(previous)
    def patched(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        here = _installed is patched
        if here and attn_mask is None and not is_compiling() and torch._C._get_flash_sdp_enabled():
            o = attend_to_few(query, key, value, dropout_p, is_causal, scale, enable_gqa)
            if o is not None:
                return o
        plain_mask = attn_mask is not None and not is_causal_bias(attn_mask)
        tensors = (query, key, value, attn_mask) if plain_mask else (query, key, value)
        options: dict[str, Any] = {
            "dropout_p": dropout_p,
            "is_causal": is_causal,
            "scale": scale,
            "enable_gqa": enable_gqa,
        }
        if here and has_torch_function(tensors):
            here = not any(map(_overrides, tensors))
            if here:  # a mode, or a class that changes nothing
                return handle_torch_function(patched, tensors, query, key, value, attn_mask, **options)
        function = scaled_dot_product_attention if here and _are_numbers(tensors) else previous
        return function(query, key, value, attn_mask, **options)

    patched.__module__ = F.__name__  # where pickle finds it
    return patched


def _are_numbers(tensors: tuple[Any, ...]) -> bool:
    """Whether saccade can compute with the tensors, now or when the function being compiled is called."""
    if is_compiling():
        return not _is_exporting() and all(tensor.is_cpu and not tensor.is_nested for tensor in tensors)
    if torch._C._get_tracing_state() is not None or not torch._C._get_flash_sdp_enabled():
        return False
    return all(map(is_plain, tensors))


def _overrides(tensor: Any) -> bool:
    """Whether an argument's class has a ``__torch_function__`` of its own."""
    function = getattr(type(tensor), "__torch_function__", _disabled)
    return function is not _disabled and getattr(function, "__func__", None) is not _default
