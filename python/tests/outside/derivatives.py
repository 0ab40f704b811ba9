"""Checks of derivatives: PyTorch's gradcheck and gradgradcheck, forward-mode tangents, torch.func."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.functional import hessian as functional_hessian
from torch.autograd.functional import jacobian as functional_jacobian
from torch.autograd.gradcheck import gradcheck, gradgradcheck

from .cases import Case
from .values import numbers_like


def numerical(case: Case) -> Any:
    return gradcheck(*case.of_learnt(), fast_mode=True, check_undefined_grad=True)


def numerical_batched(case: Case) -> Any:
    return gradcheck(*case.of_learnt(), fast_mode=True, check_batched_grad=True)


def numerical_forward(case: Case) -> Any:
    return gradcheck(*case.of_learnt(), fast_mode=True, check_forward_ad=True, check_backward_ad=False)


def numerical_batched_forward(case: Case) -> Any:
    return gradcheck(
        *case.of_learnt(),
        fast_mode=True,
        check_forward_ad=True,
        check_backward_ad=False,
        check_batched_forward_grad=True,
        check_undefined_grad=False,
    )


def numerical_twice(case: Case) -> Any:
    return gradgradcheck(*case.of_learnt(), fast_mode=True, gen_non_contig_grad_outputs=True)


def numerical_forward_over_reverse(case: Case) -> Any:
    return gradgradcheck(
        *case.of_learnt(), fast_mode=True, check_fwd_over_rev=True, check_rev_over_rev=False, check_undefined_grad=False
    )


def twice(case: Case) -> Any:
    """Gradients of gradients, which are the same as without a graph. They are weighed by fixed numbers, not by
    themselves: their errors are those of other checks, in which PyTorch's fused kernel takes part too."""
    of, leaves = case.of_learnt()

    def gradients(create_graph: bool) -> Any:
        torch.manual_seed(1)
        loss = sum(x.square().sum() for x in of(*leaves))
        return torch.autograd.grad(loss, leaves, create_graph=create_graph, allow_unused=True)

    first = gradients(True)
    torch.testing.assert_close(first, gradients(False))
    found = [x for x in first if x is not None and x.requires_grad]
    return torch.autograd.grad(found, leaves, [numbers_like(x) for x in found], allow_unused=True)


def tangents(case: Case) -> Any:
    of, leaves = case.of_learnt()
    with forward_ad.dual_level():
        outputs = of(*(forward_ad.make_dual(x.detach(), x.detach().cos()) for x in leaves))
        return [tuple(forward_ad.unpack_dual(x)) for x in outputs]


def batched(case: Case) -> Any:
    of, leaves = case.of_learnt()
    outputs = tuple(x for x in of(*leaves) if x.requires_grad)
    douts = [torch.stack([torch.ones_like(x), x.detach().cos()]) for x in outputs]
    return torch.autograd.grad(outputs, leaves, douts, is_grads_batched=True, allow_unused=True)


def jacobian(case: Case) -> Any:
    of, leaves = case.of_learnt()
    return [
        functional_jacobian(of, leaves[:3] + leaves[3:4], vectorize=vectorize) if len(leaves) < 5 else None
        for vectorize in (False, True)
    ]


def hessian(case: Case) -> Any:
    of, leaves = case.of_learnt()

    def loss(x: Tensor) -> Tensor:
        return sum((y.square().sum() for y in of(x, *(leaf.detach() for leaf in leaves[1:]))), x.new_zeros(()))

    return functional_hessian(loss, leaves[0])


# torch.func


def _primals(case: Case) -> tuple[Any, tuple[Tensor, ...]]:
    of, leaves = case.of_learnt()
    return of, tuple(x.detach() for x in leaves)


def func_grad(case: Case) -> Any:
    of, primals = _primals(case)
    every = tuple(range(len(primals)))
    return torch.func.grad(lambda *x: sum(y.sin().sum() for y in of(*x)), argnums=every)(*primals)


def func_vjp(case: Case) -> Any:
    of, primals = _primals(case)
    outputs, pull = torch.func.vjp(of, *primals)
    return outputs, pull(tuple(x.cos() for x in outputs))


def func_jvp(case: Case) -> Any:
    of, primals = _primals(case)
    return torch.func.jvp(of, primals, tuple(x.cos() for x in primals))


def func_linearize(case: Case) -> Any:
    of, primals = _primals(case)
    outputs, push = torch.func.linearize(of, *primals)
    return outputs, push(*(x.cos() for x in primals))


def func_vmap(case: Case) -> Any:
    """Two calls at once: all tensors in front, the first alone, the second behind."""
    of, primals = _primals(case)
    pairs = [torch.stack([x, x.cos()]) for x in primals]
    calls = [(pairs, 0), ([pairs[0], *primals[1:]], (0, *[None] * (len(primals) - 1)))]
    if len(primals) > 1:
        behind = [primals[0], pairs[1].movedim(0, -1), *primals[2:]]
        calls.append((behind, (None, -1, *[None] * (len(primals) - 2))))
    return [torch.func.vmap(of, in_dims, randomness="same")(*x) for x, in_dims in calls]


def func_vmap_of_vjp(case: Case) -> Any:
    of, primals = _primals(case)
    pairs = [torch.stack([x, x.cos()]) for x in primals]

    def gradients(*x: Tensor) -> Any:
        outputs, pull = torch.func.vjp(of, *x)
        return pull(tuple(y.cos() for y in outputs))

    return torch.func.vmap(gradients, randomness="same")(*pairs)


def func_vjp_of_vmap(case: Case) -> Any:
    of, primals = _primals(case)
    pairs = [torch.stack([x, x.cos()]) for x in primals]
    outputs, pull = torch.func.vjp(torch.func.vmap(of, randomness="same"), *pairs)
    return outputs, pull(tuple(x.cos() for x in outputs))


def func_jacobians(case: Case) -> Any:
    of, primals = _primals(case)
    return torch.func.jacrev(of)(*primals), torch.func.jacfwd(of, randomness="same")(*primals)


def func_vjp_of_vjp(case: Case) -> Any:
    of, primals = _primals(case)

    def gradients(*x: Tensor) -> Any:
        outputs, pull = torch.func.vjp(of, *x)
        return pull(tuple(y.cos() for y in outputs))

    found, pull = torch.func.vjp(gradients, *primals)
    return found, pull(tuple(x.sin() for x in found))


def func_jvp_of_vjp(case: Case) -> Any:
    of, primals = _primals(case)

    def gradients(*x: Tensor) -> Any:
        outputs, pull = torch.func.vjp(of, *x)
        return pull(tuple(y.cos() for y in outputs))

    return torch.func.jvp(gradients, primals, tuple(x.sin() for x in primals))


def func_hessian(case: Case) -> Any:
    of, primals = _primals(case)
    return torch.func.hessian(lambda x: sum(y.square().sum() for y in of(x, *primals[1:])))(primals[0])
