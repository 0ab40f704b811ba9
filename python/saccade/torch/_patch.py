"""Replaces PyTorch's scaled_dot_product_attention with saccade's, wherever it is called."""

from __future__ import annotations

import functools
import inspect
import threading
from types import TracebackType
from typing import Any, Callable, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling
from torch.jit import _builtins as script
from torch.overrides import handle_torch_function, has_torch_function

from ._attend import attend_plainly
from ._context_parallel import are_shards, attend_to_shards, is_in_force, local_parts
from ._context_parallel import reason_to_pass_on as context_parallel_reason
from ._encoder import encoder_layer, self_attention, takes_nested
from ._functional import is_causal_bias, scaled_dot_product_attention
from ._nested import is_computable, is_nested
from ._statistics import Statistics, count, statistics
from ._tensors import is_plain, is_recorded, is_transformed

_default = cast(Any, Tensor.__torch_function__).__func__
_disabled = torch._C._disabled_torch_function_impl
_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # missing before PyTorch 2.7

_lock = threading.Lock()
_patches = 0


class Patch:
    """A patch, in force until :meth:`undo` or the end of its ``with`` block. A new block applies it again."""

    def __init__(self) -> None:
        self._in_force = False
        self.__enter__()

    def undo(self) -> None:
        """Ends this patch; further calls do nothing. PyTorch is as before when all patches have ended."""
        with _lock:
            if self._in_force:
                self._after = statistics()
                self._in_force = False
                _remove()

    def statistics(self) -> Statistics:
        """:func:`saccade.torch.statistics` of the time that this patch was last in force."""
        return (statistics() if self._in_force else self._after).since(self._before)

    def __enter__(self) -> Patch:
        with _lock:
            if not self._in_force:
                _install()
                self._in_force = True
                self._before = statistics()
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

    - those with tensors on other devices, meta, fake and sparse tensors, tensors of torch.func,
      torch.jit.trace and torch.export, and classes with a ``__torch_function__`` of their own;
    - all calls while PyTorch's fused kernel is switched off, as within
      ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` (functions of torch.compile do not check this setting);
    - those of programs of torch.jit.script.

    There is no other fallback: a call that saccade does not support raises ValueError. In evaluation
    ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` call fused functions of PyTorch instead
    (``torch.backends.mha``); these are replaced too.

    Names imported before (``from torch.nn.functional import scaled_dot_product_attention``) and calls from C++ are not
    patched.
    """
    return Patch()


class _Replacement:
    """A function of PyTorch, and ours in its place while a patch is in force."""

    def __init__(self, owner: Any, name: str, in_place_of: Callable[[Callable[..., Any], _Replacement], Any]) -> None:
        self.owner, self.name, self.in_place_of = owner, name, in_place_of
        self.installed: Any = None  # None: no patch is in force
        self.previous: Any = None

    def install(self) -> None:
        self.previous = getattr(self.owner, self.name)
        self.installed = self.in_place_of(self.previous, self)
        setattr(self.owner, self.name, self.installed)
        script._get_builtin_table()[id(self.installed)] = f"aten::{self.name}"

    def remove(self) -> None:
        del script._get_builtin_table()[id(self.installed)]
        if getattr(self.owner, self.name) is self.installed:  # false if other code has wrapped it since
            setattr(self.owner, self.name, self.previous)
        self.installed = self.previous = None


def _install() -> None:
    global _patches
    _patches += 1
    if _patches == 1:
        if is_in_force():
            _patches = 0
            raise RuntimeError("patch() within context_parallel() would see each rank's rows alone: patch before it")
        for replacement in _REPLACEMENTS:
            replacement.install()


def _remove() -> None:
    global _patches
    _patches -= 1
    if _patches == 0:
        for replacement in _REPLACEMENTS:
            replacement.remove()


def _attention_in_place_of(previous: Callable[..., Tensor], replacement: _Replacement) -> Callable[..., Tensor]:
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
        here = replacement.installed is patched
        if here and attn_mask is None and not is_compiling() and torch._C._get_flash_sdp_enabled():
            o = attend_plainly(query, key, value, dropout_p, is_causal, scale, enable_gqa)
            if o is not None:
                count(_ATTENTION)
                return o
        plain_mask = attn_mask is not None and not is_causal_bias(attn_mask)
        tensors = (query, key, value, attn_mask) if plain_mask else (query, key, value)
        options: dict[str, Any] = {
            "dropout_p": dropout_p,
            "is_causal": is_causal,
            "scale": scale,
            "enable_gqa": enable_gqa,
        }
        reason = None if here else "the patch is undone"
        nested = here and is_nested(query, key, value) and is_computable(tensors)
        if here and not nested and has_torch_function(tensors):
            reason = "a class with a __torch_function__ of its own" if any(map(_overrides, tensors)) else None
            if not reason:  # a mode, or a class that changes nothing
                return handle_torch_function(patched, tensors, query, key, value, attn_mask, **options)
        function: Callable[..., Tensor] = scaled_dot_product_attention
        if here and not is_compiling() and are_shards(query, key, value):
            reason = reason or _reason_to_pass_on(local_parts(query, key, value))
            reason = reason or context_parallel_reason(query, key, value, attn_mask)
            function = attend_to_shards
        else:
            reason = reason or _reason_to_pass_on(() if nested else tensors)
        function = previous if reason else function
        o = function(query, key, value, attn_mask, **options)
        if here and not is_compiling():
            count(_ATTENTION, reason)
        return o

    patched.__module__ = F.__name__  # where pickle finds it
    return patched


def _fused_in_place_of(
    ours: Callable[..., Any], weight_of: Callable[..., Tensor | None]
) -> Callable[[Callable[..., Any], _Replacement], Callable[..., Any]]:
    """For the functions of PyTorch's fused inference path, the first argument of which is the input. weight_of: the
    first weight among the others, which stands for all; None where ours cannot take the arguments."""
    parameters = inspect.signature(ours)

    def in_place_of(previous: Callable[..., Any], replacement: _Replacement) -> Callable[..., Any]:
        def patched(*given: Any, **named: Any) -> Any:
            if replacement.installed is not patched:
                return previous(*given, **named)
            arguments = parameters.bind(*given, **named).args if named else given
            x, weight = arguments[0], weight_of(*arguments)
            reason: str | None
            if weight is None:
                reason = "key and value are not query, or weights of a nested tensor"
            elif x.is_nested:
                is_batch = takes_nested(x) and not is_recorded()
                reason = _reason_to_pass_on((weight,)) if is_batch else "a nested tensor that is no packed batch"
            else:
                reason = _reason_to_pass_on((x, weight))
            result = previous(*given, **named) if reason else ours(*arguments)
            if not is_compiling():
                count(replacement.name, reason)
            return result

        patched.__name__ = patched.__qualname__ = replacement.name
        patched.__module__ = replacement.owner.__name__
        return patched

    return in_place_of


def _weight_of_layer(_: Tensor, __: int, ___: int, qkv_weight: Tensor, *____: Any) -> Tensor:
    return qkv_weight


def _weight_of_attention(
    query: Tensor, key: Tensor, value: Tensor, _: int, __: int, qkv_weight: Tensor, *others: Any
) -> Tensor | None:
    needs_weights = len(others) > 4 and bool(others[4])
    is_simple = key is query and value is query and not (query.is_nested and needs_weights)
    return qkv_weight if is_simple else None


_ATTENTION = "scaled_dot_product_attention"


def _reason_to_pass_on(tensors: tuple[Any, ...]) -> str | None:
    """Why saccade cannot compute with the tensors, now or when the function being compiled is called; None: it can."""
    if is_compiling():
        is_taken = not _is_exporting() and all(tensor.is_cpu and not tensor.is_nested for tensor in tensors)
        return None if is_taken else "torch.export, or tensors that are not dense and on the CPU"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if not torch._C._get_flash_sdp_enabled():
        return "PyTorch's fused kernel is switched off"
    if all(map(is_plain, tensors)):
        return None
    if is_transformed():
        return "a transform of torch.func"
    for tensor in tensors:
        if isinstance(tensor, Tensor) and not tensor.is_cpu:
            return f"a tensor on {tensor.device.type}"
        if isinstance(tensor, Tensor) and (tensor.is_nested or tensor.layout is not torch.strided):
            return "a nested tensor" if tensor.is_nested else f"a tensor of layout {tensor.layout}"
    return "what is no plain tensor"


def _overrides(tensor: Any) -> bool:
    """Whether an argument's class has a ``__torch_function__`` of its own."""
    function = getattr(type(tensor), "__torch_function__", _disabled)
    return function is not _disabled and getattr(function, "__func__", None) is not _default


_REPLACEMENTS = (
    _Replacement(F, "scaled_dot_product_attention", _attention_in_place_of),
    _Replacement(torch, "_transformer_encoder_layer_fwd", _fused_in_place_of(encoder_layer, _weight_of_layer)),
    _Replacement(torch, "_native_multi_head_attention", _fused_in_place_of(self_attention, _weight_of_attention)),
)
