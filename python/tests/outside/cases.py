"""The calls: PyTorch's samples of attention and of the modules that contain it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.utils import _pytree as pytree

_PLACE_OF_DROPOUT = 10  # among the positional arguments of multi_head_attention_forward
FUNCTIONS = ("nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward")
MODULES = (
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerEncoder,
    nn.TransformerDecoderLayer,
    nn.Transformer,
)


class Case(NamedTuple):
    """A call of a function of tensors."""

    subject: str  #: the function or module
    name: str  #: which of its samples
    call: Callable[..., Any]  #: takes the tensors
    tensors: tuple[Tensor, ...]
    drops: bool  #: dropout drops some of the weights
    module: nn.Module | None = None  #: in training; its parameters are the last tensors
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})  #: of the module or function
    function: Callable[..., Any] | None = None  #: takes the arguments

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[0].dtype

    @property
    def learnt(self) -> tuple[int, ...]:
        """Which tensors have gradients."""
        return tuple(i for i, x in enumerate(self.tensors) if x.is_floating_point())

    def in_f64(self) -> Case:
        """The same call of the same numbers in f64."""
        arguments = _double(self.arguments)
        if self.module is not None:
            module = copy.deepcopy(self.module).double()
            return of_module(self.subject, self.name, module, arguments)
        return self._replace(tensors=_double(self.tensors), arguments=arguments)

    def beside(self, seed: int) -> Case:
        """The same call with each number replaced by one of its two neighbours in its type."""
        if self.module is None:
            arguments = _moved(self.arguments, seed)
            return self._replace(tensors=_taken_apart(arguments)[0], arguments=arguments)
        module = copy.deepcopy(self.module)
        with torch.no_grad():
            for x, y in zip(module.parameters(), _moved(list(module.parameters()), seed + 1)):
                x.copy_(y)
        return of_module(self.subject, self.name, module, _moved(self.arguments, seed))

    def without_dropout(self) -> Case:
        """The same call, which drops nothing."""
        if self.module is not None:
            module = copy.deepcopy(self.module)
            for x in module.modules():
                if isinstance(x, nn.Dropout):
                    x.p = 0.0
                elif isinstance(x, nn.MultiheadAttention):
                    x.dropout = 0.0
            return of_module(self.subject, self.name, module, self.arguments)
        positional, named = self.arguments
        if len(positional) > _PLACE_OF_DROPOUT:
            positional = (*positional[:_PLACE_OF_DROPOUT], 0.0, *positional[_PLACE_OF_DROPOUT + 1 :])
        if "dropout_p" in named:
            named = {**named, "dropout_p": 0.0}
        return of_function(self.subject, self.name, self.function, (positional, named), False)

    def of_learnt(self, call: Callable[..., Any] | None = None) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
        """The call as a function of the tensors that have gradients, which returns a tuple of tensors, and new leaves
        for them."""
        call = call or self.call

        def of(*learnt: Tensor) -> tuple[Tensor, ...]:
            tensors = list(self.tensors)
            for i, x in zip(self.learnt, learnt):
                tensors[i] = x
            return results(call(*tensors))

        return of, tuple(self.tensors[i].detach().clone().requires_grad_() for i in self.learnt)


def results(output: Any) -> tuple[Tensor, ...]:
    """The tensors with gradients in what a call returned."""
    return tuple(x for x in pytree.tree_leaves(output) if isinstance(x, Tensor) and x.is_floating_point())


def all_cases(dtype: torch.dtype) -> Iterator[Case]:
    """Every sample in this type; modules have samples in f32 and f64."""
    for info in op_db:
        if info.name in FUNCTIONS:
            torch.manual_seed(0)
            for number, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=True)):
                yield _of_function(info, number, sample)
    for info in module_db:
        if info.module_cls in MODULES and dtype in info.dtypes:
            torch.manual_seed(0)
            given = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=True)
            for number, sample in enumerate(given):
                yield from _of_module(info, number, sample, dtype)


def _of_function(info: Any, number: int, sample: Any) -> Case:
    arguments = ((sample.input, *sample.args), sample.kwargs)
    dropout = sample.kwargs.get("dropout_p", 0.0)
    if len(sample.args) >= _PLACE_OF_DROPOUT:
        dropout = sample.args[_PLACE_OF_DROPOUT - 1]
    return of_function(info.name, f"{number}: {_described(arguments)}", info.op, arguments, 0 < dropout < 1)


def of_function(
    subject: str, name: str, function: Any, arguments: tuple[tuple[Any, ...], dict[str, Any]], drops: bool
) -> Case:
    """A call of a function."""
    tensors, rebuilt = _taken_apart(arguments)

    def call(*given: Tensor) -> Any:
        positional, named = rebuilt(given)
        return function(*positional, **named)

    return Case(subject, name, call, tensors, drops, arguments=arguments, function=function)


def _of_module(info: Any, number: int, sample: Any, dtype: torch.dtype) -> Iterator[Case]:
    given, forward = sample.constructor_input, sample.forward_input
    module = info.module_cls(*given.args, **given.kwargs).to(dtype)
    variants = [forward.kwargs]
    if info.module_cls is nn.MultiheadAttention:  # the samples want weights, which the patched function does not give
        variants.append({**forward.kwargs, "need_weights": False})
    for named in variants:
        arguments = (tuple(forward.args), named)
        yield of_module(info.name, f"{number}: {sample.desc} {_described(arguments)}", module, arguments)


def of_module(subject: str, name: str, module: nn.Module, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Case:
    """A call of a module, with its parameters among the tensors."""
    inputs, rebuilt = _taken_apart(arguments)
    names, parameters = zip(*module.named_parameters())

    def call(*tensors: Tensor) -> Any:
        own = dict(zip(names, tensors[len(inputs) :]))
        positional, named = rebuilt(tensors[: len(inputs)])
        return torch.func.functional_call(module, own, positional, named)

    drops = module.training and any(isinstance(x, nn.Dropout) and 0 < x.p < 1 for x in module.modules())
    return Case(subject, name, call, (*inputs, *(x.detach() for x in parameters)), drops, module, arguments)


def in_evaluation(case: Case) -> Case:
    """The same call of a module in evaluation."""
    assert case.module is not None
    return of_module(case.subject, case.name, copy.deepcopy(case.module).eval(), case.arguments)


def _taken_apart(tree: Any) -> tuple[tuple[Tensor, ...], Callable[..., Any]]:
    leaves, spec = pytree.tree_flatten(tree)
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

    def rebuilt(tensors: tuple[Tensor, ...]) -> Any:
        new = list(leaves)
        for i, x in zip(places, tensors):
            new[i] = x
        return pytree.tree_unflatten(new, spec)

    return tuple(leaves[i].detach() for i in places), rebuilt


def _double(tree: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda x: x.double() if x.is_floating_point() else x, tree)


def _moved(tree: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)

    def moved(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        towards = torch.where(torch.rand(x.shape, generator=generator) < 0.5, -torch.inf, torch.inf).to(x.dtype)
        return torch.where(x.isfinite(), torch.nextafter(x.detach(), towards), x.detach())

    return pytree.tree_map_only(Tensor, moved, tree)


def _described(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> str:
    positional, named = arguments

    def text(x: Any) -> str:
        if isinstance(x, Tensor):
            return f"{str(x.dtype)[6:]}{list(x.shape)}"
        return getattr(x, "__name__", None) or repr(x)

    return ", ".join([*map(text, positional), *(f"{name}={text(x)}" for name, x in named.items() if x is not None)])
