"""Gradients of gradients and forward-mode tangents of saccade.torch's functions."""

import contextlib
import functools
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import torch.nn.functional as F  # noqa: E402
from saccade._options import TensorOptions  # noqa: E402
from saccade.torch import MultiheadAttention, _tangents, attention, attention_varlen  # noqa: E402
from saccade.torch import scaled_dot_product_attention as sdpa  # noqa: E402
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.autograd.functional import hessian, jacobian  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

LEARNT = {
    "mask": (4, 1, 5),
    "mask_of_all": (5,),
    "mask_of_entries": (2, 1, 3, 1),
    "sinks": (4,),
    "alibi_slopes": (4,),
    "alibi_slopes_of_entries": (2, 4),
}
OPTIONS = {
    "plain": {},
    "causal": {"causal": "bottom_right"},
    "window": {"causal": "top_left", "window": (2, 0), "query_offset": 2},
    "right_window": {"window": (0, 1), "query_offset": [-1, 2]},
    "softcap": {"scale": 0.3, "softcap": 1.5},
    "lengths": {"kv_lengths": [4, 0], "causal": "bottom_right"},
    "lengths_alone": {"kv_lengths": [4, 2]},
    "starts": {"kv_starts": [3, 5]},
    "bool_mask": {"mask": torch.arange(5) % 3 != 1},
    "block_mask": {"block_mask": torch.tensor([[True, False], [False, True]]), "block_mask_size": (2, 3)},
    "dropout": {"dropout_p": 0.4, "seed": 2**63 + 11},
}


def doubles(*shape):
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def operands(kv_heads=2, rows=3, keys=5, width=4):
    torch.manual_seed(0)
    return doubles(2, 4, rows, width), doubles(2, kv_heads, keys, width), doubles(2, kv_heads, keys, 3)


def check_both(function, tensors):
    """By finite differences: tangents and gradients of the function, and tangents and gradients of its gradients."""
    assert gradcheck(function, tensors, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, tensors, check_fwd_over_rev=True, fast_mode=True)


def finite(o, lse):
    return o, torch.where(lse.isfinite(), lse, 0)


def test_every_option_has_a_case():
    names = {name for options in OPTIONS.values() for name in options} | {name for name in LEARNT if "_of" not in name}
    beside = {"layout", "weights_after_dropout", "block_table"}  # the last has no gradients
    assert names | beside == set(TensorOptions.__annotations__)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_every_option(name, layout):
    tensors = operands()
    if layout == "bshd":
        tensors = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors]
    check_both(lambda *x: finite(*attention(*x, return_lse=True, layout=layout, **OPTIONS[name])), tensors)


@pytest.mark.parametrize("name", LEARNT)
@pytest.mark.parametrize("options", ["plain", "softcap", "dropout"])
def test_every_option_that_learns(name, options):
    def function(q, k, v, learnt):
        return attention(q, k, v, return_lse=True, **{name.split("_of")[0]: learnt}, **OPTIONS[options])

    check_both(function, (*operands(), doubles(*LEARNT[name])))


def test_documents():
    torch.manual_seed(0)
    tensors = [doubles(9, heads, 4) for heads in (4, 2, 2)]

    def function(q, k, v, slopes, sinks):
        options = {"causal": "top_left", "dropout_p": 0.3, "seed": 4, "return_lse": True}
        return attention_varlen(q, k, v, [0, 4, 4, 9], alibi_slopes=slopes, sinks=sinks, **options)

    check_both(function, (*tensors, doubles(3, 4), doubles(4)))


@pytest.mark.parametrize("rank", [2, 3])
def test_lower_ranks(rank):
    tensors = [x.detach().flatten(0, 1)[:2] for x in operands(4)]
    tensors = [(x if rank == 3 else x[0]).requires_grad_() for x in tensors]
    check_both(functools.partial(attention, causal="top_left", return_lse=True), tensors)


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"attn_mask": torch.ones(3, 3, dtype=torch.bool).tril()}, {"dropout_p": 0.5}],
    ids=["short", "causal", "mask", "dropout"],
)
def test_pytorchs_function(options):
    def function(*tensors):
        torch.manual_seed(5)
        return sdpa(*tensors, **options)

    check_both(function, operands(4, keys=3))


def test_weights_of_the_module():
    torch.manual_seed(0)
    module = MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    check_both(lambda x: module(x, x, x), (doubles(2, 3, 6),))


@pytest.mark.parametrize("ours", [sdpa, attention])
def test_the_third_derivative_is_pytorchs(ours):
    def third(function):
        q, k, v = operands(4)
        result = function(q, k, v).square().sum()
        for _ in range(3):
            (result,) = torch.autograd.grad(result.square().sum(), q, create_graph=True)
        return result

    with sdpa_kernel(SDPBackend.MATH):
        wanted = third(F.scaled_dot_product_attention)
    torch.testing.assert_close(third(ours), wanted)


@pytest.mark.parametrize("function", [sdpa, attention])
@pytest.mark.parametrize("kind", ["torch.func", "a mode", "batches"])
def test_the_third_derivative_is_an_error_in_operators(function, kind):
    """In batches it must not be a wrong number."""

    def length(of):
        return lambda q: torch.func.grad(of)(q).square().sum()

    q, k, v = operands(4)
    with pytest.raises(RuntimeError, match="within torch.func, dispatch modes and batches of gradients, attention can"):
        if kind == "torch.func":
            length(length(length(lambda q: function(q, k.detach(), v.detach()).square().sum())))(q.detach())
        with FlopCounterMode(display=False) if kind == "a mode" else contextlib.nullcontext():
            (first,) = torch.autograd.grad(function(q, k, v).square().sum(), q, create_graph=True)
            batches = {"is_grads_batched": True} if kind == "batches" else {}
            douts = torch.stack((first, first)) if batches else first
            (second,) = torch.autograd.grad(first, q, douts.detach(), create_graph=True, **batches)
            torch.autograd.grad(second.square().sum(), q)


def packed(q, k, v):
    documents = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    return attention_varlen(*documents, [0, 3, 6]).unflatten(0, (2, 3)).transpose(1, 2)


@pytest.mark.parametrize("ours", [sdpa, attention, packed])
@pytest.mark.parametrize("strategy", ["forward-mode", "reverse-mode"])
@pytest.mark.parametrize("kind", ["jacobian", "hessian"])
def test_batches_of_tangents_are_pytorchs(ours, strategy, kind):
    """vectorize=True: batches as is_grads_batched=True makes them."""
    q, k, v = (x.detach()[:, :2] for x in operands(4, keys=3))

    def derivatives(function, vectorize):
        if kind == "jacobian":
            return jacobian(lambda q: function(q, k, v), q, vectorize=vectorize, strategy=strategy)
        options = {"vectorize": vectorize, "outer_jacobian_strategy": strategy}
        return hessian(lambda q: function(q, k, v).square().sum(), q, **options)

    with sdpa_kernel(SDPBackend.MATH):
        wanted = derivatives(F.scaled_dot_product_attention, True)
    torch.testing.assert_close(derivatives(ours, True), wanted)


@pytest.mark.parametrize("function", [sdpa, attention])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_other_types(function, dtype):
    """Second gradients and tangents as those of the same numbers in f64, within the rounding of each result."""

    def results(dtype):
        q, k, v = (x.detach().to(dtype).requires_grad_() for x in tensors)
        gradients = torch.autograd.grad(function(q, k, v).square().sum(), (q, k, v), create_graph=True)
        with forward_ad.dual_level():
            o = function(forward_ad.make_dual(q.detach(), k[:, :, :3].detach()), k.detach(), v.detach())
            tangent = forward_ad.unpack_dual(o).tangent
        return (*torch.autograd.grad(sum(x.square().sum() for x in gradients), (q, k, v)), tangent)

    tensors = [x.to(dtype) for x in operands(4)]
    for got, wanted in zip(results(dtype), results(torch.float64)):
        assert got.dtype is dtype
        bound = 16 * torch.finfo(dtype).eps * wanted.abs().max()
        assert (got - wanted).abs().max() <= bound


def test_many_rows_are_cut(monkeypatch):
    """Cut into pieces of one row, with a window, the result is the same."""
    results = []
    for pairs in (1, 2**20):
        monkeypatch.setattr(_tangents, "_PAIRS", pairs)
        q, k, v = operands(rows=9, keys=9)
        mask = doubles(9, 9)
        o = attention(q, k, v, mask=mask, window=(3, 1), dropout_p=0.2, seed=1)
        gradients = torch.autograd.grad(o.square().sum(), (q, k, v), create_graph=True)
        results.append(torch.autograd.grad(sum(x.sum() for x in gradients), (q, k, v, mask)))
    torch.testing.assert_close(*results)


def test_what_is_hidden_has_no_influence():
    q, k, v = operands()
    k, v = (torch.where(torch.arange(5)[:, None] == 2, torch.nan, x.detach()).requires_grad_() for x in (k, v))
    o = attention(q, k, v, mask=torch.arange(5) != 2)
    gradients = torch.autograd.grad(o.square().sum(), (q, k, v), create_graph=True)
    for x in torch.autograd.grad(sum(x.square().sum() for x in gradients), (q, k, v)):
        assert x.isfinite().all()


def test_dropout_is_the_kernels():
    q, k, v = (x.detach() for x in operands(rows=70, keys=150))
    seed = 2**63 + 2**40 + 77
    _, weights = attention(q, k, v, dropout_p=0.4, seed=seed, return_weights=True, weights_after_dropout=True)
    heads = torch.arange(8).view(2, 2, 2, 1, 1, 1)
    factors = _tangents._Dropout(seed - 2**64, 0.4, heads).factors(slice(3, 70), slice(5, 150))
    assert torch.equal(factors > 0, weights.view(2, 2, 2, 70, 150)[..., 3:, 5:] > 0)


@pytest.mark.parametrize("function", [sdpa, attention])
def test_dispatch_modes_see_gradients_of_gradients(function):
    def second():
        (dq,) = torch.autograd.grad(function(q, k, v).square().sum(), q, create_graph=True)
        return torch.autograd.grad(dq.square().sum(), (q, k, v))

    q, k, v = operands(4)
    with FlopCounterMode(display=False):
        recorded = second()
    torch.testing.assert_close(recorded, second())


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.jacfwd,
        torch.func.hessian,
        lambda f: torch.func.jacrev(torch.func.jacrev(f)),
        lambda f: torch.func.jacrev(torch.func.jacfwd(f)),
        lambda f: lambda x: torch.func.vmap(torch.func.hessian(f))(torch.stack((x, 2 * x))),
    ],
    ids=["jacfwd", "hessian", "jacrev_jacrev", "jacrev_jacfwd", "vmap_hessian"],
)
@pytest.mark.parametrize("function", [sdpa, attention])
def test_transforms(transform, function):
    q, k, v = (x.detach()[:1, :2, :2, :2] for x in operands(4))
    mask = torch.randn(2, 2, dtype=torch.float64)
    name = "attn_mask" if function is sdpa else "mask"
    got = transform(lambda q: function(q, k, v, **{name: mask}).square().sum((0, 2)))(q)
    with sdpa_kernel(SDPBackend.MATH):
        wanted = transform(lambda q: F.scaled_dot_product_attention(q, k, v, mask).square().sum((0, 2)))(q)
    torch.testing.assert_close(got, wanted)


def test_rows_without_keys_have_the_sink():
    torch.manual_seed(0)
    q, k = (torch.randn(n, 2, 4, dtype=torch.float64) for n in (4, 2))
    with forward_ad.dual_level():
        sinks = forward_ad.make_dual(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
        _, lse = attention_varlen(q, k, k, [0, 2, 4], [0, 2, 2], sinks=sinks, return_lse=True)
        assert torch.equal(forward_ad.unpack_dual(lse).tangent[:, 2:], torch.ones(2, 2, dtype=torch.float64))


def test_tangents_beside_weights():
    q, k, v = (x.detach() for x in operands())
    with forward_ad.dual_level():
        o, _ = attention(forward_ad.make_dual(q, q), k, v, return_weights=True)
        alone = attention(forward_ad.make_dual(q, q), k, v)
        torch.testing.assert_close(*(forward_ad.unpack_dual(x).tangent for x in (o, alone)))


def test_pages_have_none():
    q, k, v = (x.detach() for x in operands())
    table = torch.tensor([[1], [0]], dtype=torch.int32)
    with forward_ad.dual_level(), pytest.raises(ValueError, match="pages have no gradients"):
        attention(forward_ad.make_dual(q, q), k, v, block_table=table, kv_lengths=[5, 3])


def test_memory_is_linear():
    """A matrix of all pairs would have 1 GiB."""
    program = """
import resource, torch
torch.set_num_threads(1)
from saccade.torch import attention
q, k, v = (torch.randn(1, 4, 8192, 8, requires_grad=True) for _ in range(3))
def second(rows):
    o = attention(q[:, :, :rows], k, v, causal="bottom_right", window=(255, 0))
    (dq,) = torch.autograd.grad(o.square().sum(), q, create_graph=True)
    torch.autograd.grad(dq.square().sum(), (q, k, v))
second(64)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
second(8192)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
    assert grown < 256 * 1024
