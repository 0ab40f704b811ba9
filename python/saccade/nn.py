"""Attention with trainable projections: the modules of the published PyTorch walk-throughs, without PyTorch.

Parameters are float32 arrays that share the module's memory and have PyTorch's state-dict names, so that its
checkpoints load unchanged::

    layer = saccade.nn.MultiHeadAttention(64, 64, num_heads=4, causal=True, seed=123)
    y = layer(x)                              # x: [seqlen, 64] or [batch, seqlen, 64]
    dx = layer.backward(dy)                   # adds to layer.grad
    for name, value in layer.parameters().items():
        value -= 0.01 * layer.grad[name]

As in PyTorch, a new module is in training mode: dropout is active and :meth:`Module.backward` can be called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, ClassVar, Literal, NamedTuple

import numpy as np

from . import _core
from ._arguments import flag, shown
from ._arrays import as_array, returned
from ._options import CAUSAL_CHOICES

__all__ = [
    "CausalAttention",
    "InputGradients",
    "Module",
    "MultiHeadAttention",
    "MultiHeadAttentionWrapper",
    "SelfAttention",
]


class InputGradients(NamedTuple):
    """The gradients of a loss with respect to query, key and value."""

    query: Any
    """float32, in the shape of query."""
    key: Any
    """float32, in the shape of key."""
    value: Any
    """float32, in the shape of value."""


class Module(_core.Module):
    """The base class of all modules: ``layer(...)`` is ``layer.forward(...)``. Threads may share a module; its
    calls then wait for each other.

    ``copy`` and ``pickle`` keep the parameters and the mode, but not the gradients or the position in the sequence
    of dropout: see :meth:`seed_dropout`.

    :param options: the arguments of the derived class, by name.
    """

    _make: ClassVar[Callable[..., None]]  # makes the compiled module from the arguments
    _is_causal: ClassVar[bool] = False  # whatever the arguments
    _pickled: ClassVar[tuple[str, ...]]  # names of the arguments, which pickles of 0.1.0 store by position

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._arguments = options
        self._make(**options)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.forward is not Module.forward and cls.__call__ is Module.__call__:
            cls.__call__ = _call_forward  # the compiled one skips forward() for a NumPy array

    def __getstate__(self) -> dict[str, Any]:
        return {"parameters": self.state_dict(), "training": self.training, "others": self.__dict__.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["others"])
        options = self._arguments
        Module.__init__(self, **(dict(zip(self._pickled, options)) if isinstance(options, tuple) else options))
        self.load_state_dict(state["parameters"])
        self.train(state["training"])

    def forward(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        *,
        mask: Any = None,
        key_mask: Any = None,
        causal: Literal["top_left", "bottom_right"] | bool = False,
        return_weights: Literal["per_head", "averaged"] | bool = False,
        weights_after_dropout: bool = False,
    ) -> Any:
        """Attention of query to key and value, or to itself if they are not given. Arrays must be float32, here and in
        :meth:`backward`; lists of numbers are converted.

        :param query: float32 [batch, seqlen_q, d_in], or without batch [seqlen_q, d_in].
        :param key: float32 [batch, seqlen_k, key_width]; default: query.
        :param value: float32 [batch, seqlen_k, value_width]; goes together with key.
        :param mask: bool (True = attend) or floating (added), broadcast to [batch, heads, seqlen_q, seqlen_k].
        :param key_mask: the keys that count in each batch entry: bool (True = attend) or floating, [batch, seqlen_k].
        :param causal: hide later keys, also in a module that is not causal by itself. Where there are other numbers of
            queries and keys, it must be "top_left" (row 0 stands at key 0, as with PyTorch's is_causal) or
            "bottom_right" (the last row stands at the last key), in a causal module too.
        :param return_weights: also return the weights: True or "per_head" [batch, heads, seqlen_q, seqlen_k],
            "averaged" [batch, seqlen_q, seqlen_k].
        :param weights_after_dropout: return the weights after dropout instead of those before it.
        :returns: the output [batch, seqlen_q, d_out], or a tuple of it and the weights.
        :raises ValueError: for arguments that do not fit; names the argument.
        """
        if (key is None) != (value is None):
            raise ValueError("value: key and value must be given together")
        kind = _kind_of(return_weights)
        inputs = _inputs(query, key, value)
        output, weights, _ = self._forward(
            *inputs, mask, key_mask, self._alignment(causal, *inputs[:2]), kind, weights_after_dropout, False
        )
        output = returned(query, output)
        return output if weights is None else (output, returned(query, weights))

    def _alignment(self, causal: Any, query: Any, key: Any) -> Any:
        """``causal``, where it is not ambiguous."""
        if isinstance(causal, str):
            if causal not in ("top_left", "bottom_right"):
                wanted = "True, False, 'top_left' or 'bottom_right'"
                raise ValueError(f"causal: expected {wanted}, got {shown(causal)}; {CAUSAL_CHOICES}")
            return causal
        hides = flag(causal, "causal") or self._is_causal or bool(self._arguments.get("causal"))
        rank = len(query.shape)
        if hides and key is not None and rank == len(key.shape) and rank in (2, 3):
            axis = 1 if rank == 3 and self._arguments.get("batch_first", True) else 0
            rows, keys = query.shape[axis], key.shape[axis]
            if rows != keys:
                given = f"{rows} queries and {keys} keys may be aligned in two ways: {CAUSAL_CHOICES}"
                raise ValueError(f"causal: expected 'top_left' or 'bottom_right', because {given}")
        return causal

    def steps(self, query: Any, key: Any = None, value: Any = None, **options: Any) -> dict[str, Any]:
        """The steps of a forward call.

        :param query: float32 [batch, seqlen_q, d_in], or without batch [seqlen_q, d_in].
        :param key: float32 [batch, seqlen_k, key_width]; default: query.
        :param value: float32 [batch, seqlen_k, value_width]; goes together with key.
        :param options: ``mask``, ``key_mask``, ``causal`` and ``weights_after_dropout`` of :meth:`forward`.
        :returns: arrays by name: q, k, v [batch, seqlen, heads * head_dim], context (what the output projection
            receives), weights [batch, heads, seqlen_q, seqlen_k] and output.
        :raises ValueError: as :meth:`forward` does.
        """
        mask, key_mask = options.pop("mask", None), options.pop("key_mask", None)
        causal, after = options.pop("causal", False), options.pop("weights_after_dropout", False)
        if options:
            raise TypeError(f"steps() got an unexpected keyword argument '{next(iter(options))}'")
        inputs = _inputs(query, key, value)
        output, weights, steps = self._forward(
            *inputs, mask, key_mask, self._alignment(causal, *inputs[:2]), "per_head", after, True
        )
        steps = {**steps, "weights": weights, "output": output}
        return {name: returned(query, array) for name, array in steps.items()}

    def backward(self, dout: Any) -> Any:
        """The gradients of a loss with respect to the inputs of the last call, from those with respect to its
        output; adds those of the parameters to :attr:`grad`.

        :param dout: the gradient with respect to the output, float32 in its shape.
        :returns: that of x, or :class:`InputGradients` if the call had key and value.
        :raises RuntimeError: if there was no call in training mode.
        """
        x, query, key, value = self._backward(_input(dout, "dout"))
        if x is not None:
            return returned(dout, x)
        return InputGradients(returned(dout, query), returned(dout, key), returned(dout, value))

    def parameters(self) -> dict[str, Any]:
        """All parameters by name, in PyTorch's order: arrays that share the module's memory and may be changed."""
        return self._parameters()

    @property
    def grad(self) -> dict[str, Any]:
        """The parameters' gradients by name, which also share the module's memory; None before there are any."""
        return self._gradients()

    def zero_grad(self) -> None:
        """Makes every gradient 0."""
        self._zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Copies of all parameters by name."""
        return {name: value.copy() for name, value in self.parameters().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replaces all parameters. Accepts PyTorch's state dicts of the same class and of
        ``torch.nn.MultiheadAttention``.

        :param state_dict: the parameters by name, arrays or PyTorch tensors of any floating dtype.
        :raises ValueError: lists what is missing, unexpected or of a wrong shape; the module is then unchanged.
        """
        if not isinstance(state_dict, Mapping):
            raise ValueError(f"state_dict: expected a dict of arrays, got {type(state_dict).__name__}")
        self._load_state_dict({name: as_array(_detached(value), name) for name, value in state_dict.items()})

    def train(self, mode: bool = True) -> Module:
        """Training mode: dropout is active and :meth:`backward` can be called.

        :param mode: False: evaluation mode.
        :returns: the module itself.
        """
        self._train(flag(mode, "mode"))
        return self

    def eval(self) -> Module:
        """Evaluation mode."""
        return self.train(False)

    @property
    def training(self) -> bool:
        """Whether the module is in training mode; see :meth:`train`."""
        return self._training()

    def seed_dropout(self, seed: int) -> None:
        """Makes dropout reproducible: the n-th training call after this one drops the same in every run.

        :param seed: an integer of 64 bits, -2^63 <= seed < 2^64.
        """
        self._seed_dropout(seed)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in self.parameters().items())
        return f"saccade.nn.{type(self).__name__}({shapes})"


class SelfAttention(Module):
    """One head over a whole sequence: softmax(q k^T / sqrt(d_out)) v.

    :param d_in: width of the input.
    :param d_out: width of queries, keys, values and the output.
    :param weight_layout: "out_in": linear layers ``W_query.weight`` [d_out, d_in] and so on; "in_out": plain parameters
        ``W_query`` [d_in, d_out].
    :param qkv_bias: linear layers have a bias.
    :param seed: parameters are those that PyTorch draws after ``torch.manual_seed(seed)``; default: a random one.
    :raises ValueError: for widths below 1.
    """

    _make = _core.Module._make_self_attention
    _pickled = ("d_in", "d_out", "weight_layout", "qkv_bias", "seed")

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        weight_layout: Literal["out_in", "in_out"] = "out_in",
        qkv_bias: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(d_in=d_in, d_out=d_out, weight_layout=weight_layout, qkv_bias=qkv_bias, seed=seed)


class CausalAttention(Module):
    """One causal head with dropout.

    :param d_in: width of the input.
    :param d_out: width of queries, keys, values and the output.
    :param context_length: the longest sequence allowed; 0: any.
    :param dropout: the probability of dropping a weight in training mode, 0 <= p < 1.
    :param qkv_bias: the projections have a bias.
    :param seed: as for :class:`SelfAttention`.
    """

    _make = _core.Module._make_causal_attention
    _is_causal = True
    _pickled = ("d_in", "d_out", "context_length", "dropout", "qkv_bias", "seed")

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int = 0,
        dropout: float = 0.0,
        qkv_bias: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            d_in=d_in, d_out=d_out, context_length=context_length, dropout=dropout, qkv_bias=qkv_bias, seed=seed
        )


class MultiHeadAttentionWrapper(Module):
    """Independent causal heads whose outputs are concatenated.

    :param d_in: width of the input.
    :param d_out: width of one head; the output is num_heads * d_out wide.
    :param context_length: the longest sequence allowed; 0: any.
    :param dropout: the probability of dropping a weight in training mode, 0 <= p < 1.
    :param num_heads: how many heads.
    :param qkv_bias: the projections have a bias.
    :param seed: as for :class:`SelfAttention`.
    """

    _make = _core.Module._make_multi_head_attention_wrapper
    _is_causal = True
    _pickled = ("d_in", "d_out", "num_heads", "context_length", "dropout", "qkv_bias", "seed")

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int = 0,
        dropout: float = 0.0,
        num_heads: int = 1,
        qkv_bias: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            d_in=d_in,
            d_out=d_out,
            num_heads=num_heads,
            context_length=context_length,
            dropout=dropout,
            qkv_bias=qkv_bias,
            seed=seed,
        )


class MultiHeadAttention(Module):
    """Multi-head self- or cross-attention: one projection each of queries, keys and values is split into heads,
    and ``out_proj`` joins them.

    The published class is ``MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads, causal=True)``;
    ``torch.nn.MultiheadAttention(e, h)`` is ``MultiHeadAttention(e, e, num_heads=h, qkv_bias=True,
    initialization="torch_multihead")``, and its state dict loads. The reverse does not work: this class has
    separate parameters for queries, keys and values (``W_query.weight``), PyTorch's has one ``in_proj_weight``.

    :param d_in: width of the input.
    :param d_out: width of the output, a multiple of num_heads; each head has d_out / num_heads.
    :param context_length: the longest sequence allowed; 0: any.
    :param dropout: the probability of dropping a weight in training mode, 0 <= p < 1.
    :param num_heads: how many heads of queries.
    :param qkv_bias: the projections of queries, keys and values have a bias.
    :param num_kv_heads: key and value heads; if fewer than num_heads, query heads share them (GQA); 0: num_heads.
    :param key_width, value_width: width of the key and value inputs (PyTorch's kdim, vdim); 0: d_in.
    :param causal: query i sees keys 0 to i. Where there are other numbers of queries and keys, the call has to say how
        they are aligned, "top_left" or "bottom_right": see :meth:`Module.forward`.
    :param out_bias: ``out_proj`` has a bias.
    :param add_bias_kv: append a trained key and value, which every query sees.
    :param add_zero_attn: append a key and value of zeros, which every query sees.
    :param batch_first: rank 3 is [batch, seqlen, width]; else [seqlen, batch, width].
    :param initialization: "linear_layers": four ``nn.Linear``; "torch_multihead": as torch.nn.MultiheadAttention.
    :param seed: as for :class:`SelfAttention`.
    """

    _make = _core.Module._make_multi_head_attention
    _pickled = (
        *("d_in", "d_out", "num_heads", "num_kv_heads", "key_width", "value_width", "context_length", "causal"),
        *("dropout", "qkv_bias", "out_bias", "add_bias_kv", "add_zero_attn", "batch_first"),
        *("torch_initialization", "seed"),
    )

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int = 0,
        dropout: float = 0.0,
        num_heads: int = 1,
        qkv_bias: bool = False,
        *,
        num_kv_heads: int = 0,
        key_width: int = 0,
        value_width: int = 0,
        causal: bool = False,
        out_bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        batch_first: bool = True,
        initialization: Literal["linear_layers", "torch_multihead"] = "linear_layers",
        seed: int | None = None,
    ) -> None:
        if not isinstance(initialization, str) or initialization not in ("linear_layers", "torch_multihead"):
            wanted = "'linear_layers' or 'torch_multihead'"
            raise ValueError(f"initialization: expected {wanted}, got {shown(initialization)}")
        super().__init__(
            d_in=d_in,
            d_out=d_out,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            key_width=key_width,
            value_width=value_width,
            context_length=context_length,
            causal=causal,
            dropout=dropout,
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            batch_first=batch_first,
            torch_initialization=initialization == "torch_multihead",
            seed=seed,
        )


def _call_forward(self: Module, *arguments: Any, **options: Any) -> Any:
    return self.forward(*arguments, **options)


def _inputs(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    key = None if key is None else _input(key, "key")
    return _input(query, "query"), key, None if value is None else _input(value, "value")


def _input(value: Any, name: str) -> Any:
    """An array unchanged; other values, such as lists, as a float32 array."""
    array = as_array(value, name)
    if array is value or hasattr(value, "__dlpack__") or array.dtype.kind not in "biuf":
        return array
    return array.astype(np.float32)


def _kind_of(return_weights: Any) -> str | None:
    if not isinstance(return_weights, str):
        return "per_head" if flag(return_weights, "return_weights") else None
    if return_weights not in ("per_head", "averaged"):
        wanted = "True, False, 'per_head' or 'averaged'"
        raise ValueError(f"return_weights: expected {wanted}, got {shown(return_weights)}")
    return return_weights


def _detached(value: Any) -> Any:
    """A PyTorch parameter without its gradient."""
    return value.detach() if hasattr(value, "detach") else value
