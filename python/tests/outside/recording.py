"""Checks of calls that PyTorch records or of which it sees shapes only: compilers, tracers, fake tensors, modes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import CrossRefFakeMode, FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal import composite_compliance
from torch.testing._internal.logging_tensor import LoggingTensorMode
from torch.testing._internal.optests import aot_autograd_check
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from .cases import Case, in_evaluation, results
from .values import with_gradients


def _as_call(case: Case) -> tuple[Any, Any]:
    """A function of the sample's arguments, for checks that wrap these; a module's parameters stay as they are."""
    if case.module is not None:
        return lambda *given, **named: results(case.module(*given, **named)), case.arguments
    return case.call, (case.tensors, {})


def _equal(got: Any, wanted: Any, equal_nan: bool = True) -> None:
    torch.testing.assert_close(got, wanted, equal_nan=equal_nan)


def _learning(arguments: Any) -> Any:
    def learn(x: Tensor) -> Tensor:
        return x.detach().clone().requires_grad_(x.is_floating_point())

    return pytree.tree_map_only(Tensor, learn, arguments)


def compliance(case: Case) -> Any:
    """Of operators that are composed of others: no data is read around a subclass."""
    call, arguments = _as_call(case)
    positional, named = pytree.tree_map_only(Tensor, Tensor.detach, arguments)
    composite_compliance.check_with_mode(call, positional, named, _equal)
    if len(case.tensors) < 5:  # there are two to the power of that many
        composite_compliance.check_all_permutations(call, positional, named, _equal)
    return True


def compliance_backward(case: Case) -> Any:
    call, arguments = _as_call(case)
    composite_compliance.check_backward_formula(call, *_learning(arguments), assert_equal_fn=_equal)
    return True


def compliance_forward(case: Case) -> Any:
    call, arguments = _as_call(case)
    composite_compliance.check_forward_ad_formula(call, *_learning(arguments), assert_equal_fn=_equal)
    return True


def copy_on_write(case: Case) -> Any:
    """Inputs that are copied when written stay shared."""
    lazy = [torch._lazy_clone(x) for x in case.tensors]
    results(case.call(*lazy))
    return [torch._C._is_cow_tensor(x) for x in lazy]


def fake_beside_real(case: Case) -> Any:
    with CrossRefFakeMode():
        return with_gradients(case)


def fake(case: Case) -> Any:
    """Shapes, types and strides of fake tensors, forward and backward."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        tensors = [mode.from_tensor(x).requires_grad_(x.is_floating_point()) for x in case.tensors]
        outputs = results(case.call(*tensors))
        learnt = [x for x in tensors if x.requires_grad]
        gradients = torch.autograd.grad(sum(x.sum() for x in outputs), learnt, allow_unused=True)
        return [None if x is None else (tuple(x.shape), x.dtype) for x in (*outputs, *gradients)]


def meta(case: Case) -> Any:
    tensors = [x.to("meta").requires_grad_(x.is_floating_point()) for x in case.tensors]
    outputs = results(case.call(*tensors))
    learnt = [x for x in tensors if x.requires_grad]
    gradients = torch.autograd.grad(sum(x.sum() for x in outputs), learnt, allow_unused=True)
    return [None if x is None else (tuple(x.shape), x.dtype, x.device.type) for x in (*outputs, *gradients)]


def traced_to_fx(case: Case) -> Any:
    """The results of graphs that make_fx records from real, fake and symbolic tensors, forward and backward."""

    def all_of(*learnt: Tensor) -> Any:
        outputs = of(*learnt)
        return outputs, torch.autograd.grad(sum(x.sin().sum() for x in outputs), learnt, allow_unused=True)

    of, leaves = case.of_learnt()
    return [make_fx(all_of, tracing_mode=mode, _allow_non_fake_inputs=True)(*leaves)(*leaves) for mode in _MODES]


_MODES = ("real", "fake", "symbolic")


def ahead_of_time(case: Case) -> Any:
    of, leaves = case.of_learnt()

    def curved(*learnt: Tensor) -> Any:  # the check's loss is a sum, and that of a LayerNorm's outputs is 0
        return tuple(x.cos() for x in of(*learnt))

    for dynamic in (False, True):
        aot_autograd_check(curved, leaves, {}, dynamic, assert_equals_fn=_equal, check_gradients=True)
    return True


def compiled(case: Case) -> Any:
    torch._dynamo.reset()
    call = torch.compile(_plain_call(case), fullgraph=True, backend="aot_eager")
    return with_gradients(case, call)


def compiled_dynamic(case: Case) -> Any:
    torch._dynamo.reset()
    call = torch.compile(_plain_call(case), fullgraph=True, backend="aot_eager", dynamic=True)
    return with_gradients(case, call)


def compiled_by_inductor(case: Case) -> Any:
    torch._dynamo.reset()
    return with_gradients(case, torch.compile(_plain_call(case), fullgraph=True))


def _plain_call(case: Case) -> Any:
    """The call without the seeding that PyTorch's sample has around it."""
    if case.module is not None:
        return case.call
    function = eval(f"torch.{case.subject}", {"torch": torch})
    leaves, spec = pytree.tree_flatten(case.arguments)
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]

    def call(*tensors: Tensor) -> Any:
        own = dict(zip(places, tensors))
        positional, named = pytree.tree_unflatten([own.get(i, x) for i, x in enumerate(leaves)], spec)
        return function(*positional, **named)

    return call


def exported(case: Case) -> Any:
    still = in_evaluation(case)
    positional, named = pytree.tree_map_only(Tensor, Tensor.detach, still.arguments)
    program = torch.export.export(still.module, positional, named)
    with torch.no_grad():
        return results(program.module()(*positional, **named))


def traced(case: Case) -> Any:
    tensors = case.tensors
    if case.module is not None:
        positional, named = pytree.tree_map_only(Tensor, Tensor.detach, case.arguments)
        tensors = {**dict(zip(inspect.signature(case.module.forward).parameters, positional)), **named}
        if any(not isinstance(x, Tensor) for x in tensors.values()):
            tensors = positional
    with torch.no_grad():
        if isinstance(tensors, dict):
            graph = torch.jit.trace(case.module, example_kwarg_inputs=tensors)
            return results(graph(**tensors))
        graph = torch.jit.trace(case.module or _plain_call(case), tensors)
        return results(graph(*tensors))


def scripted(case: Case) -> Any:
    positional, named = case.arguments
    with torch.no_grad():
        return results(torch.jit.script(case.module)(*positional, **named))


def schemas(case: Case) -> Any:
    """Operators change and alias what their schemas say."""
    with SchemaCheckMode(), torch.no_grad():
        return results(case.call(*case.tensors))


def under_a_mode(case: Case) -> Any:
    with LoggingTensorMode():
        return with_gradients(case)


def subclass(case: Case) -> Any:
    """Two tensors that act as one."""
    of, leaves = case.of_learnt()
    pairs = [TwoTensor(x.detach(), x.detach().clone()).requires_grad_() for x in leaves]
    outputs = of(*pairs)
    gradients = torch.autograd.grad(sum(x.sin().sum() for x in outputs), pairs, allow_unused=True)
    return [None if x is None else (x.a, x.b) for x in (*outputs, *gradients)]


def operations(case: Case) -> Any:
    of, leaves = case.of_learnt()
    with FlopCounterMode(display=False) as counter:
        sum((x.square().sum() for x in of(*leaves)), torch.zeros(())).backward()  # grad() is nothing for its hooks
    return counter.get_total_flops()
