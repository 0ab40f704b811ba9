"""saccade.torch.scaled_dot_product_attention against PyTorch's: values, gradients, dtypes, masks, dropout, refusals."""

import random
import warnings

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade  # noqa: E402
import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_reference import assert_agrees  # noqa: E402

sdpa = saccade.torch.scaled_dot_product_attention

SEQLENS = (1, 2, 3, 7, 16, 17, 33, 64, 65, 97)
HEAD_DIMS = (1, 3, 8, 31, 40, 64, 80)


def random_case(seed):
    """Shapes, mask and options that PyTorch takes, one combination for each seed."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    dtype = (torch.float64, torch.float32, torch.bfloat16)[seed % 3]
    rank = choose.choice((2, 3, 4, 4, 4, 5))
    kv_lead = [choose.choice((1, 2, 3)) for _ in range(rank - 2)]
    options = {}
    lead = list(kv_lead)
    if rank > 2 and choose.random() < 0.3:
        options["enable_gqa"] = True
        lead[-1] *= choose.choice((2, 3))
    seqlen_q, seqlen_k, dim = choose.choice(SEQLENS), choose.choice(SEQLENS), choose.choice(HEAD_DIMS)
    dim_v = choose.choice((dim, dim, choose.choice(HEAD_DIMS)))

    def tensor(*shape):
        order = choose.choice(("contiguous", "heads inside", "rows apart", "columns apart"))
        if order == "heads inside" and len(shape) > 2:
            return torch.randn(*shape[:-3], shape[-2], shape[-3], shape[-1]).to(dtype).transpose(-2, -3)
        if order == "rows apart":
            return torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., : shape[-1]]
        if order == "columns apart":
            return torch.randn(*shape[:-2], shape[-1], shape[-2]).to(dtype).transpose(-1, -2)
        return torch.randn(shape).to(dtype)

    tensors = {
        "query": tensor(*lead, seqlen_q, dim),
        "key": tensor(*kv_lead, seqlen_k, dim),
        "value": tensor(*kv_lead, seqlen_k, dim_v),
    }
    kind = choose.choice(("none", "causal", "bool", "floating", "floating"))
    if kind == "causal":
        options["is_causal"] = True
    elif kind != "none":
        mask_rank = choose.choice((2, rank) if rank < 4 else (2, 3, rank))
        shape = [choose.choice((1, length, length)) for length in (*lead, seqlen_q, seqlen_k)[rank - mask_rank :]]
        mask = torch.rand(shape) < 0.7 if kind == "bool" else torch.randn(shape).to(dtype)
        if kind == "floating" and choose.random() < 0.3:
            mask = mask.masked_fill(torch.rand(shape) < 0.2, -torch.inf)
        tensors["attn_mask"] = mask
    if choose.random() < 0.3:
        options["scale"] = choose.choice((0.25, -0.1, 0.0))
    return tensors, options


@pytest.mark.parametrize("seed", range(360))
def test_agrees_with_pytorch(seed):
    tensors, options = random_case(seed)
    assert_agrees(sdpa, tensors, **options)


def leaves(*shapes, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize(
    "mask_shape", [None, (5, 7), (1, 7), (4, 5, 1), (4, 5, 7), (2, 1, 5, 7), (2, 4, 1, 7), (1, 1, 1, 1)]
)
@pytest.mark.parametrize("gqa", [False, True])
def test_gradcheck(mask_shape, gqa):
    inputs = leaves((2, 4, 5, 3), (2, 2 if gqa else 4, 7, 3), (2, 2 if gqa else 4, 7, 2))
    if mask_shape:
        inputs += leaves(mask_shape, seed=1)
    torch.autograd.gradcheck(lambda *x: sdpa(*x, enable_gqa=gqa, scale=0.7), inputs)
    if not mask_shape:
        torch.autograd.gradcheck(lambda *x: sdpa(*x, enable_gqa=gqa, is_causal=True), inputs)


def test_gradcheck_with_dropout():
    def attention(*inputs):
        torch.manual_seed(5)
        return sdpa(*inputs, dropout_p=0.4)

    torch.autograd.gradcheck(attention, leaves((2, 2, 5, 3), (2, 2, 7, 3), (2, 2, 7, 4), (5, 7)))


@pytest.mark.parametrize(
    "q, k, v",
    [
        ((2, 4, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)),  # all heads share one head of k and v
        ((2, 4, 5, 8), (1, 4, 7, 8), (2, 1, 7, 8)),
        ((2, 1, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)),
        ((1, 1, 5, 8), (1, 1, 7, 8), (3, 4, 7, 8)),
        ((2, 4, 5, 8), (4, 7, 8), (7, 8)),
        ((5, 8), (2, 4, 7, 8), (2, 4, 7, 8)),
        ((3, 2, 4, 5, 8), (4, 7, 8), (2, 1, 7, 8)),
        ((3, 2, 4, 5, 8), (1, 7, 8), (1, 7, 8)),
    ],
)
def test_leading_dimensions_broadcast(q, k, v):
    torch.manual_seed(0)
    assert_agrees(sdpa, {"query": torch.randn(q), "key": torch.randn(k), "value": torch.randn(v)})


@pytest.mark.parametrize("lead", [(2, 6), (3, 2, 6)])
def test_gqa_broadcasts_over_the_batch(lead):
    torch.manual_seed(0)
    tensors = {"query": torch.randn(*lead, 5, 8), "key": torch.randn(1, 2, 7, 8), "value": torch.randn(1, 2, 7, 8)}
    assert_agrees(sdpa, tensors, enable_gqa=True)


@pytest.mark.parametrize("mask", [(5, 7), (4, 5, 7), (2, 4, 1, 7), (2, 1, 5, 7), (3, 1, 1, 1, 7), (3, 2, 1, 5, 7)])
def test_masks_over_more_than_two_leading_dimensions(mask):
    torch.manual_seed(0)
    tensors = {name: torch.randn(3, 2, 4, 5 if name == "query" else 7, 8) for name in ("query", "key", "value")}
    assert_agrees(sdpa, {**tensors, "attn_mask": torch.randn(mask)})


@pytest.mark.parametrize("mask", [(), (1,), (7,)])
def test_masks_of_rank_0_and_1(mask):
    torch.manual_seed(0)
    tensors = {name: torch.randn(4, 5 if name == "query" else 7, 8) for name in ("query", "key", "value")}
    assert_agrees(sdpa, {**tensors, "attn_mask": torch.randn(mask)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask_dtype", [torch.float32, None])
def test_the_gradient_of_a_mask_has_its_dtype(dtype, mask_dtype):
    q, k, v = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=dtype)
    mask = torch.randn(3, 1, 7, dtype=mask_dtype or dtype, requires_grad=True)
    sdpa(q, k, v, mask).sum().backward()
    assert mask.grad.dtype == mask.dtype and mask.grad.shape == mask.shape
    assert q.grad.dtype == k.grad.dtype == v.grad.dtype == dtype


def test_half_precision_agrees():
    torch.manual_seed(0)
    tensors = {name: torch.randn(2, 3, 40, 32).half() for name in ("query", "key", "value")}
    assert_agrees(sdpa, {**tensors, "attn_mask": torch.randn(40, 40).half()})


def test_repeated_tensors():
    """Gradients of expanded leaves, of one tensor given three times, and with an output gradient of stride 0."""
    (x,) = leaves((2, 1, 6, 8))
    wanted = torch.autograd.grad(F.scaled_dot_product_attention(*[x.expand(2, 3, 6, 8)] * 3).sum(), x)
    got = torch.autograd.grad(sdpa(*[x.expand(2, 3, 6, 8)] * 3).sum(), x)
    torch.testing.assert_close(got, wanted)


def test_negated_views():
    """x.imag of a conjugate is a view whose sign is a flag of the tensor, not in the memory."""
    x = torch.randn(3, 5, 8, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(sdpa(x, x, x), F.scaled_dot_product_attention(x, x, x))


@pytest.mark.parametrize(
    "q, k, v",
    [
        ((2, 3, 0, 8), (2, 3, 7, 8), (2, 3, 7, 4)),
        ((2, 3, 5, 8), (2, 3, 0, 8), (2, 3, 0, 4)),
        ((0, 3, 5, 8),) * 3,
        ((2, 0, 5, 8),) * 3,
    ],
)
def test_empty_tensors(q, k, v):
    inputs = leaves(q, k, v)
    o = sdpa(*inputs)
    assert o.shape == (*q[:-1], v[-1]) and not o.any()
    gradients = torch.autograd.grad(o.sum(), inputs)
    assert [g.shape for g in gradients] == [x.shape for x in inputs] and not any(g.any() for g in gradients)


def test_rows_that_see_nothing_are_zero_and_give_nothing():
    q, k, v = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=torch.float32)
    with torch.no_grad():
        k[:, :, 3] = torch.nan
    seen = torch.ones(5, 7, dtype=torch.bool)
    seen[:, 3] = False
    seen[2] = False
    o = sdpa(q, k, v, seen)
    dq, dk, dv = torch.autograd.grad(o.sum(), (q, k, v))
    assert not o[:, :, 2].any() and not dq[:, :, 2].any() and not dk[:, :, 3].any()
    assert all(x.isfinite().all() for x in (o, dq, dk, dv))


def test_only_some_need_gradients():
    for wanted in range(1, 16):
        inputs = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), (5, 7))
        for i, x in enumerate(inputs):
            x.requires_grad_(bool(wanted >> i & 1))
        learnt = [x for x in inputs if x.requires_grad]
        got = torch.autograd.grad(sdpa(*inputs).square().sum(), learnt)
        expected = torch.autograd.grad(F.scaled_dot_product_attention(*inputs).square().sum(), learnt)
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("frozen, missing", [("kv", {"dk", "dv"}), ("q", {"dq"}), ("v", set()), ("qkv", {"dk", "dv"})])
def test_gradients_that_nobody_reads_are_not_computed(frozen, missing, monkeypatch):
    core, found = saccade.torch._attend._core, []
    backward = core.attention_backward

    def spy(*arguments):
        found.append({name for name, x in zip(("dq", "dk", "dv"), arguments[7:10]) if x is None})
        return backward(*arguments)

    monkeypatch.setattr(core, "attention_backward", spy)
    inputs = leaves((2, 3, 50, 8), (2, 3, 70, 8), (2, 3, 70, 4), (50, 70))
    whole = torch.autograd.grad(sdpa(*inputs).square().sum(), inputs)
    for x, name in zip(inputs, "qkv"):
        x.requires_grad_(name not in frozen)
    learnt = [i for i, x in enumerate(inputs) if x.requires_grad]
    part = torch.autograd.grad(sdpa(*inputs).square().sum(), [inputs[i] for i in learnt])
    assert found == [set(), missing]
    for i, gradient in zip(learnt, part):
        assert torch.equal(gradient, whole[i])


def test_causal_biases_cost_no_mask():
    q, k, v = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    for bias in (causal_upper_left(5, 7), causal_lower_right(5, 7)):
        torch.testing.assert_close(sdpa(q, k, v, bias), sdpa(q, k, v, bias._materialize()))
    with pytest.raises(ValueError, match="attn_mask: expected a CausalBias of 5 x 7, got 7 x 7"):
        sdpa(q, k, v, causal_upper_left(7, 7))
    with pytest.raises(ValueError, match="attn_mask: CausalBias should not be used with causal=True"):
        sdpa(q, k, v, causal_upper_left(5, 7), is_causal=True)


@pytest.mark.parametrize("seqlen_q, seqlen_k", [(1, 700), (2, 1500), (1, 16), (4, 3000)])
def test_few_rows_agree_with_and_without_gradients(seqlen_q, seqlen_k):
    torch.manual_seed(0)
    tensors = {"query": torch.randn(2, 4, seqlen_q, 64), "key": torch.randn(2, 2, seqlen_k, 64)}
    tensors["value"] = torch.randn(2, 2, seqlen_k, 64)
    assert_agrees(sdpa, tensors, enable_gqa=True)
    without = sdpa(**tensors, enable_gqa=True)
    torch.testing.assert_close(without, F.scaled_dot_product_attention(**tensors, enable_gqa=True))


def test_memory_order_of_the_output_is_that_of_query():
    x = torch.randn(2, 9, 3, 8)
    assert sdpa(*[x.transpose(1, 2)] * 3).transpose(1, 2).is_contiguous()
    assert sdpa(*[x.transpose(1, 2)] * 2, torch.randn(2, 3, 9, 4)).transpose(1, 2).is_contiguous()
    assert sdpa(x, x, x).is_contiguous()


@pytest.mark.parametrize("grad", [False, True])
def test_autocast_does_as_pytorch_does(grad):
    q, k, v = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=torch.float32)
    mask = torch.randn(5, 7, requires_grad=grad)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(grad):
        got, wanted = sdpa(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask)
        assert sdpa(q.double(), k.double(), v.double()).dtype == torch.float64
    assert got.dtype == wanted.dtype == torch.bfloat16
    assert torch.equal(got, sdpa(*(x.bfloat16() for x in (q, k, v, mask))))
    if grad:
        got.sum().backward()
        assert q.grad.dtype == mask.grad.dtype == torch.float32


# Dropout.


def test_dropout_follows_manual_seed():
    q, k, v = leaves((2, 3, 20, 8), (2, 3, 30, 8), (2, 3, 30, 8))
    torch.manual_seed(1)
    a, b = sdpa(q, k, v, dropout_p=0.5), sdpa(q, k, v, dropout_p=0.5)
    torch.manual_seed(1)
    with torch.no_grad():
        torch.testing.assert_close(sdpa(q, k, v, dropout_p=0.5), a, rtol=0, atol=0)
    assert not torch.equal(a, b)
    saccade.manual_seed(1)
    assert not torch.equal(sdpa(q, k, v, dropout_p=0.5), a)


def test_dropout_keeps_and_scales_as_it_should():
    """With equal scores and v = 1 the output is the kept share / (1 - p); with v the identity, each weight is seen."""
    p, rows, keys = 0.3, 64, 128
    q, k = torch.zeros(8, 4, rows, 16), torch.zeros(8, 4, keys, 16)
    torch.manual_seed(0)
    weights = sdpa(q, k, torch.eye(keys).expand(8, 4, keys, keys), dropout_p=p)
    kept = weights > 0
    torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1 / keys / (1 - p)))
    share, count = kept.double().mean().item(), kept.numel()
    assert abs(share - (1 - p)) < 5 * (p * (1 - p) / count) ** 0.5
    by_key = kept.double().mean((0, 1, 2))
    assert (by_key - (1 - p)).abs().max() < 6 * (p * (1 - p) / (count / keys)) ** 0.5
    neighbours = (kept[..., 1:] & kept[..., :-1]).double().mean().item()
    assert abs(neighbours - (1 - p) ** 2) < 0.005


def test_dropout_is_the_same_in_a_recomputed_forward_pass():
    q, k, v = leaves((2, 3, 20, 8), (2, 3, 30, 8), (2, 3, 30, 8))

    def gradients(run):
        torch.manual_seed(3)
        q.grad = k.grad = v.grad = None
        run(lambda *x: sdpa(*x, dropout_p=0.4)).square().sum().backward()
        return q.grad, k.grad, v.grad

    direct = gradients(lambda attention: attention(q, k, v))
    for reentrant in (False, True):
        again = gradients(lambda attention, way=reentrant: checkpoint(attention, q, k, v, use_reentrant=way))
        torch.testing.assert_close(again, direct, rtol=0, atol=0)


def test_dropout_of_everything():
    inputs = leaves((2, 3, 20, 8), (2, 3, 30, 8), (2, 3, 30, 8), (20, 30))
    o = sdpa(*inputs, dropout_p=1.0)
    assert o.requires_grad and not o.any()
    assert not any(gradient.any() for gradient in torch.autograd.grad(o.sum(), inputs))


# What is refused.


def operands(**change):
    torch.manual_seed(0)
    tensors = {"query": torch.randn(2, 3, 5, 8), "key": torch.randn(2, 3, 7, 8), "value": torch.randn(2, 3, 7, 8)}
    return {**tensors, **change}


@pytest.mark.parametrize(
    "change, text",
    [
        ({"query": None}, "query: expected a tensor, got None"),
        ({"key": [[1.0]]}, "key: expected a tensor, got list"),
        ({"value": torch.randn(2, 3, 7, 8).numpy()}, "value: expected a tensor, got ndarray"),
        ({"query": torch.randn(8)}, r"query: expected \[..., seqlen, dim\]"),
        (
            {"query": torch.ones(2, 3, 5, 8, dtype=torch.int32)},
            "query: expected float64, float32, bfloat16 or float16, got int32",
        ),
        ({"key": torch.ones(2, 3, 7, 8, dtype=torch.complex64)}, "key: expected float64.* got complex64"),
        ({"value": torch.ones(2, 3, 7, 8).to(torch.float8_e4m3fn)}, "value: expected float64.* got float8_e4m3fn"),
        ({"value": torch.ones(2, 3, 7, 8, dtype=torch.float64)}, "query, key, value and o must all be f64 or none"),
        ({"key": torch.randn(2, 3, 7, 9)}, "key has head_dim 9 but query has 8"),
        ({"value": torch.randn(2, 3, 6, 8)}, "value has seqlen 6|value .*6"),
        ({"key": torch.randn(3, 3, 7, 8)}, "key: batch and heads do not match"),
        ({"key": torch.randn(2, 1, 7, 8), "value": torch.randn(2, 2, 7, 8)}, "key: batch and heads .* enable_gqa=True"),
        ({"query": torch.randn(2, 4, 5, 8), "enable_gqa": True}, "4 .*3|3 .*4"),
        ({"attn_mask": torch.ones(5, 7, dtype=torch.int64)}, "attn_mask: expected bool"),
        ({"attn_mask": torch.ones(5, 6)}, "attn_mask must broadcast"),
        ({"attn_mask": torch.ones(4, 1, 1, 7, dtype=torch.bool)}, "attn_mask must broadcast"),
        ({"attn_mask": torch.ones(1, 1, 1, 5, 7)}, "attn_mask must have rank"),
        ({"attn_mask": "causal"}, "attn_mask: expected a tensor, got str"),
        ({"attn_mask": torch.ones(5, 7), "is_causal": True}, "attn_mask: is_causal=True excludes a mask"),
        ({"dropout_p": -0.1}, "dropout_p"),
        ({"dropout_p": 1.1}, "dropout_p"),
        ({"dropout_p": float("nan")}, "dropout_p"),
        ({"dropout_p": "much"}, "dropout_p: expected a number, got a str"),
        ({"dropout_p": None}, "dropout_p: expected a number, got a NoneType"),
        ({"scale": torch.ones(2)}, "scale: expected a number, got a Tensor"),
        ({"is_causal": torch.ones(2)}, "is_causal: expected True or False, got Tensor"),
        ({"enable_gqa": torch.ones(2)}, "enable_gqa: expected True or False, got Tensor"),
        ({"scale": "large"}, "scale: expected a number, got a str"),
        ({"query": torch.randn(2, 3, 5, 0)}, "key has head_dim 8 but query has 0"),
        ({"query": torch.empty(2, 3, 5, 8, device="meta")}, "query: expected a tensor on the CPU, got one on meta"),
        ({"attn_mask": torch.empty(5, 7, device="meta")}, "attn_mask: expected a tensor on the CPU, got one on meta"),
        (
            {"key": torch.randn(7, 8).to_sparse()},
            "key: expected a dense tensor, got one that is of layout torch.sparse_coo",
        ),
        (
            {"value": torch.randn(7, 8).to_mkldnn()},
            "value: expected a dense tensor, got one that is of layout torch._mkldnn",
        ),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_wrong_arguments_are_named(change, text, grad):
    arguments = operands(**change)
    if grad and isinstance(arguments["query"], torch.Tensor) and arguments["query"].is_floating_point():
        arguments["query"].requires_grad_()
    with pytest.raises(ValueError, match=text):
        sdpa(**arguments)


def test_dense_and_nested_tensors_are_not_mixed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=layout)
            with pytest.raises(ValueError, match="query: expected query, key and value nested alike"):
                sdpa(torch.randn(2, 3, 8), nested, nested)


def test_unknown_keywords():
    with pytest.raises(TypeError, match="causal"):
        sdpa(**operands(), causal=True)
    with pytest.raises(TypeError, match="key"):
        sdpa(torch.randn(5, 8))


def test_tensors_that_are_changed_in_place_are_noticed():
    q, k, v = leaves((5, 8), (7, 8), (7, 8))
    o = sdpa(q * 1, k, v)
    o.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


# The functions of the package itself.


def test_the_package_function_leads_here():
    q, k, v = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8))
    o = saccade.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert o.requires_grad
    torch.testing.assert_close(o, sdpa(q, k, v, is_causal=True))


def test_functions_without_autograd_refuse_tensors_that_require_grad():
    q, k, v = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=torch.float32)
    plain = [x.detach() for x in (q, k, v)]
    text = r"requires a gradient.*saccade.torch.*detach\(\)"
    with pytest.raises(ValueError, match="^q: " + text):
        saccade.attention(q, k, v)
    with pytest.raises(ValueError, match="^v: " + text):
        saccade.decode(*plain[:2], v)
    with pytest.raises(ValueError, match="^mask: " + text):
        saccade.attention(*plain, mask=torch.zeros(5, 7, requires_grad=True))
    with torch.no_grad():
        torch.testing.assert_close(saccade.attention(q, k, v), sdpa(q, k, v))


# Tensor subclasses, modes and graphs.


class Tagged(torch.Tensor):
    """A subclass that changes nothing."""


def test_subclasses_stay_what_they_are():
    q = torch.randn(2, 3, 5, 8)
    o = sdpa(q.as_subclass(Tagged), q, q)
    assert type(o) is Tagged and torch.equal(o.as_subclass(torch.Tensor), sdpa(q, q, q))
    parameter = torch.nn.Parameter(q)
    assert type(sdpa(parameter, parameter, parameter)) is torch.Tensor


def test_modes_see_it():
    seen = []

    class Listening(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    q = torch.randn(2, 3, 5, 8)
    with Listening():
        o = sdpa(q, q, q)
    assert sdpa in seen and torch.equal(o, sdpa(q, q, q))
    with torch.device("meta"):  # also a mode, for new tensors only
        assert torch.equal(sdpa(q, q, q, dropout_p=0.0), o)
        assert sdpa(q, q, q, dropout_p=0.5).device.type == "cpu"


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*is deprecated:FutureWarning")
def test_operators_are_recorded():
    from torch.fx.experimental.proxy_tensor import make_fx

    q = torch.randn(2, 3, 5, 8)
    graph = make_fx(lambda x: sdpa(x, x, x) * 2)(q)
    other = torch.randn(2, 3, 5, 8)
    torch.testing.assert_close(graph(other), sdpa(other, other, other) * 2)
    traced = torch.jit.trace(lambda x: sdpa(x, x, x) * 2, (q,), check_trace=False)
    torch.testing.assert_close(traced(other), sdpa(other, other, other) * 2)


def test_the_operators_declare_what_they_do():
    q, k, v, mask = leaves((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (5, 7), dtype=torch.float32)
    seed = torch.tensor(5)
    operator = torch.ops.saccade.attention.default
    for arguments in (
        (q, k, v, mask, None, None, None, 0.0, False, True),
        (q, k, v, None, seed, "top_left", 0.5, 0.3, True, True),
        (q.detach(), k.detach(), v.detach(), None, None, None, None, 0.0, False, False),
    ):
        torch.library.opcheck(
            operator, arguments, test_utils=("test_schema", "test_faketensor", "test_autograd_registration")
        )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_in_one_graph(backend):
    torch._dynamo.reset()
    inputs = leaves((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8), (5, 7), dtype=torch.float32)

    def attention(q, k, v, mask):
        return sdpa(q * 2, k, v, mask, enable_gqa=True).square()

    compiled = torch.compile(attention, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), attention(*inputs))
    got = torch.autograd.grad(compiled(*inputs).sum(), inputs)
    torch.testing.assert_close(got, torch.autograd.grad(attention(*inputs).sum(), inputs))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), attention(*inputs))
    dropping = torch.compile(
        lambda q, k, v: sdpa(q, k, v, dropout_p=0.5, enable_gqa=True), backend=backend, fullgraph=True
    )
    torch.manual_seed(2)
    a = dropping(*inputs[:3])
    assert not torch.equal(a, dropping(*inputs[:3]))
    torch.manual_seed(2)
    assert torch.equal(a, dropping(*inputs[:3]))


def test_a_storage_exchanged_during_the_call_is_read_to_the_end():
    q, k = torch.randn(1, 1, 64, 64), torch.randn(1, 1, 50_000, 64)
    expected = saccade.attention(q, k, k)
    kept, calls = k.clone(), 0

    def exchange(scores, *_):
        nonlocal calls
        calls += 1
        kept.data = torch.zeros(1, 1, 1, 64)
        return scores

    actual = saccade.attention(q, kept, k, score_mod=exchange)
    assert calls > 1 and kept.numel() == 64
    torch.testing.assert_close(actual, expected)


def test_what_has_no_numbers_is_no_array():
    q = torch.randn(1, 2, 4, 8)
    for mask in (causal_upper_left(4, 4), causal_lower_right(4, 4)):
        with pytest.raises(ValueError, match="mask: expected a plain tensor, got a CausalBias"):
            saccade.attention(q, q, q, mask=mask)
    with pytest.raises(ValueError, match="q: expected an array"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saccade.attention(torch.nested.nested_tensor([q[0], q[0]]), q, q)
