"""What programs ask of PyTorch's function, and so of saccade.torch.scaled_dot_product_attention: batches of gradients,
heads without numbers, counts of operations, policies of checkpointing."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from saccade.torch import _attend  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

sdpa = saccade.torch.scaled_dot_product_attention


@pytest.mark.parametrize("seqlen", [4, 90])  # short calls, and others
@pytest.mark.parametrize("masked", [False, True])
def test_batches_of_gradients(seqlen, masked):
    """What jacobian(vectorize=True) and is_grads_batched ask for, as PyTorch's function does."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, seqlen, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    if masked:
        inputs.append(torch.randn(seqlen, seqlen, dtype=torch.float64, requires_grad=True))
    douts = torch.randn(3, 1, 2, seqlen, 8, dtype=torch.float64)
    got, wanted = (
        torch.autograd.grad(function(*inputs), inputs, douts, is_grads_batched=True)
        for function in (sdpa, F.scaled_dot_product_attention)
    )
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b)
    detached = tuple(x.detach() for x in inputs)
    for a, b in zip(
        torch.autograd.functional.jacobian(lambda *x: sdpa(*x)[..., :2, 0], detached, vectorize=True),
        torch.autograd.functional.jacobian(lambda *x: sdpa(*x)[..., :2, 0], detached),
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("seqlen", [4, 90])
@pytest.mark.parametrize("function", [sdpa, saccade.torch.attention])
def test_gradients_of_a_class_of_their_own(function, seqlen):
    """What autograd hands on may be a subclass that plain inputs are not."""
    q, k, v = (torch.randn(1, 2, seqlen, 8, requires_grad=True) for _ in range(3))
    o = function(q, k, v)
    dout = torch.randn_like(o)
    wanted = torch.autograd.grad(o, (q, k, v), dout, retain_graph=True)
    for pair, one in zip(torch.autograd.grad(o, (q, k, v), TwoTensor(dout, 2 * dout)), wanted):
        torch.testing.assert_close((pair.a, pair.b), (one, 2 * one))


@pytest.mark.parametrize("function", [sdpa, saccade.torch.attention])
def test_linearize(function):
    """Tangents of a call that is recorded."""
    inputs = torch.randn(3, 1, 2, 5, 8, dtype=torch.float64).unbind()
    moves = tuple(x.cos() for x in inputs)
    output, push = torch.func.linearize(function, *inputs)
    torch.testing.assert_close((output, push(*moves)), torch.func.jvp(function, inputs, moves))


def test_head_dim_0():
    """All scores are 0, so the result is the mean of the values; values may have no columns too."""
    query, key = torch.randn(2, 3, 5, 0, requires_grad=True), torch.randn(2, 3, 7, 0, requires_grad=True)
    value = torch.randn(2, 3, 7, 4, requires_grad=True)
    for causal in (False, True):
        got, wanted = (f(query, key, value, is_causal=causal) for f in (sdpa, F.scaled_dot_product_attention))
        torch.testing.assert_close(got, wanted)
        got, wanted = (torch.autograd.grad(o.square().sum(), (query, key, value)) for o in (got, wanted))
        for a, b in zip(got, wanted):
            torch.testing.assert_close(a, b)
    assert sdpa(torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 0)).shape == (2, 5, 0)


def test_errors_are_those_of_pytorch_too():
    x = torch.randn(2, 3, 5, 8)
    for arguments in ((x[0, 0, 0],) * 3, (x, x, x, torch.ones(5, 5), 0.0, True), (x, x.double(), x)):
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(*arguments)
        with pytest.raises(RuntimeError):
            sdpa(*arguments)


def test_operations_are_counted():
    def count(function, grad):
        tensors = [torch.randn(2, 4, n, 16, requires_grad=grad) for n in (64, 128, 128)]
        with FlopCounterMode(display=False) as mode:
            o = function(*tensors)
            if grad:
                o.sum().backward()
        return mode.get_total_flops()

    for grad in (False, True):
        assert count(sdpa, grad) == count(F.scaled_dot_product_attention, grad) > 0


def test_checkpointing_policies_find_the_operator():
    x = torch.randn(1, 2, 64, 16, requires_grad=True)
    kept = functools.partial(create_selective_checkpoint_contexts, [torch.ops.saccade.attention.default])
    calls = []
    forward = _attend._forward
    for options, wanted in (({"context_fn": kept}, 1), ({}, 2)):
        calls.clear()
        _attend._forward = lambda *a, **k: calls.append(1) or forward(*a, **k)
        try:
            checkpoint(lambda x: sdpa(x.sin(), x, x), x, use_reentrant=False, **options).sum().backward()
        finally:
            _attend._forward = forward
        assert len(calls) == wanted
