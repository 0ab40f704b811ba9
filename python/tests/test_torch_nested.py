"""Nested tensors in saccade.torch.scaled_dot_product_attention and under the patch: each entry as if it were alone."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from saccade.torch import _operators, scaled_dot_product_attention  # noqa: E402
from torch.nested import nested_tensor_from_jagged  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.testing import assert_close  # noqa: E402

warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors is in prototype")

ROWS, KEYS = [3, 5, 0, 2], [4, 4, 2, 7]
JAGGED, STRIDED = torch.jagged, torch.strided


def entries(lengths, heads=4, dim=8, dtype=torch.float32, seed=0):
    """Tensors [length, heads, dim]."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, heads, dim, generator=generator).to(dtype).requires_grad_() for n in lengths]


def nested(tensors, layout=JAGGED):
    """[batch, heads, lengths, dim], from which gradients flow to the entries."""
    return torch.nested.as_nested_tensor(tensors, layout=layout).transpose(1, 2)


def unbound(o):
    return [x.transpose(0, 1) for x in o.unbind()]


def alone(function, q, k, v, **options):
    """[length, heads, dim] for each entry."""
    operands = ([x.transpose(0, 1)[None] for x in one] for one in zip(q, k, v))
    return [function(*one, **options)[0].transpose(0, 1) for one in operands]


def gradients(outputs, leaves):
    loss = sum((x.double().sin() * (i + 1)).sum() for i, x in enumerate(outputs))
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("layout", [JAGGED, STRIDED])
@pytest.mark.parametrize("keys", [ROWS, KEYS])
@pytest.mark.parametrize(
    "options", [{}, {"is_causal": True}, {"enable_gqa": True, "scale": 0.3}, {"is_causal": True, "enable_gqa": True}]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_is_pytorchs_function_of_each_entry(layout, keys, options, dtype):
    kv_heads = 2 if "enable_gqa" in options else 4
    q, k = entries(ROWS, dtype=dtype), entries(keys, kv_heads, dtype=dtype, seed=1)
    v = entries(keys, kv_heads, 5, dtype, 2)
    got = unbound(scaled_dot_product_attention(*(nested(x, layout) for x in (q, k, v)), **options))
    wanted = alone(F.scaled_dot_product_attention, q, k, v, **options)
    assert_close(got, wanted)
    assert_close(gradients(got, [*q, *k, *v]), gradients(wanted, [*q, *k, *v]))


@pytest.mark.parametrize("rank", [3, 4])
def test_gradients_of_gradients(rank):
    """Of a jagged tensor, as PyTorch's function of each entry has them."""
    rows = [x.detach() if rank == 4 else x.detach()[:, 0] for x in entries([3, 5, 2], dtype=torch.float64)]
    leaf = torch.nested.nested_tensor(rows, layout=JAGGED, requires_grad=True)
    x = leaf.transpose(1, 2) if rank == 4 else leaf
    o = scaled_dot_product_attention(x, x, x, is_causal=True)
    o = o.transpose(1, 2) if rank == 4 else o
    (first,) = torch.autograd.grad(o.values().sin().sum(), leaf, create_graph=True)
    got = torch.autograd.grad(first.values().square().sum(), leaf)[0].unbind()

    for i, row in enumerate(rows):
        row = row.requires_grad_()
        x = row.transpose(0, 1) if rank == 4 else row
        with sdpa_kernel(SDPBackend.MATH):
            o = F.scaled_dot_product_attention(x, x, x, is_causal=True)
            (first,) = torch.autograd.grad(o.sin().sum(), row, create_graph=True)
            assert_close(got[i], torch.autograd.grad(first.square().sum(), row)[0])


@pytest.mark.parametrize("layout", [JAGGED, STRIDED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_has_the_bits_of_each_entry_alone(layout, dtype):
    q, k, v = (entries([70, 30, 1], dtype=dtype, seed=i, dim=64) for i in range(3))
    got = unbound(scaled_dot_product_attention(*(nested(x, layout) for x in (q, k, v)), is_causal=True))
    for x, y in zip(got, alone(scaled_dot_product_attention, q, k, v, is_causal=True)):
        assert x.dtype is dtype and torch.equal(x, y)


@pytest.mark.parametrize("keys", [[3, 5, 1, 2], [4, 4, 2, 7]])
def test_is_pytorchs_function_of_nested_tensors(keys):
    """Which takes neither is_causal nor fewer heads of keys on the CPU."""
    leaves = [*entries([3, 5, 1, 2]), *entries(keys, seed=1), *entries(keys, seed=2)]
    found = []
    for function in (scaled_dot_product_attention, F.scaled_dot_product_attention):
        o = function(*(nested(leaves[i : i + 4]) for i in (0, 4, 8)))
        found.append((unbound(o), gradients(unbound(o), leaves), o.values().stride(), o.shape[1], o.shape[3]))
    assert_close(found[0], found[1])


def test_reads_a_packed_batch_in_place(monkeypatch):
    seen = []
    compute = _operators._core.attention

    def noted(q, k, v, *others):
        seen.extend(x.data_ptr() for x in (q, k, v))
        return compute(q, k, v, *others)

    monkeypatch.setattr(_operators._core, "attention", noted)
    values = [torch.randn(10, 4, 8) for _ in range(3)]
    starts = torch.tensor([0, 3, 3, 10])
    jagged = [nested_tensor_from_jagged(x, starts).transpose(1, 2) for x in values]
    scaled_dot_product_attention(*jagged)
    assert seen == [x.data_ptr() for x in values]
    seen.clear()
    strided = torch.nested.nested_tensor([torch.randn(3, 4, 8), torch.randn(7, 4, 8)])
    scaled_dot_product_attention(*[strided.transpose(1, 2)] * 3)
    assert seen == [strided.values().data_ptr()] * 3


@pytest.mark.parametrize("holes", ["all", "keys", "query"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("starts", [[0, 2, 1], [3, 0, 0]])
def test_holes_are_not_read(holes, is_causal, starts):
    lengths = [3, 5, 2]
    places = [slice(first, first + n) for first, n in zip(starts, lengths)]
    padded = [torch.randn(3, 10, 4, 8, dtype=torch.float64) for _ in range(3)]
    with torch.no_grad():
        for x in padded:
            for i, place in enumerate(places):
                kept = x[i, place].clone()
                x[i] = torch.nan
                x[i, place] = kept
    leaves = [x.clone().requires_grad_() for x in padded]

    def view(x, has_holes):
        if has_holes:
            return torch.nested.narrow(x, 1, torch.tensor(starts), torch.tensor(lengths), layout=JAGGED).transpose(1, 2)
        return nested([x[i, place] for i, place in enumerate(places)])

    q, k, v = (view(x, holes in ("all", "query" if i == 0 else "keys")) for i, x in enumerate(leaves))
    o = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    assert o.shape == q.shape
    got = unbound(o)
    tensors = [[x[i, place] for i, place in enumerate(places)] for x in leaves]
    wanted = alone(F.scaled_dot_product_attention, *tensors, is_causal=is_causal)
    assert_close(got, wanted)
    loss = [sum(x.square().sum() for x in outputs) for outputs in (got, wanted)]
    assert_close(torch.autograd.grad(loss[0], leaves), torch.autograd.grad(loss[1], leaves))
    assert not o.values().isnan().any()


def test_keeps_the_lengths_so_that_a_residual_can_be_added():
    x = torch.nested.nested_tensor([torch.randn(n, 32) for n in ROWS], layout=JAGGED, requires_grad=True)
    heads = x.unflatten(-1, [4, 8]).transpose(1, 2)
    o = scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
    (o + x).values().sum().backward()
    assert o.shape == x.shape and x.grad.shape == x.shape


@pytest.mark.parametrize("layout", [JAGGED, STRIDED])
def test_without_heads(layout):
    tensors = [entries([3, 5], 1, seed=i) for i in range(3)]
    flat = [torch.nested.as_nested_tensor([x[:, 0] for x in one], layout=layout) for one in tensors]
    got = scaled_dot_product_attention(*flat, is_causal=True)
    wanted = alone(F.scaled_dot_product_attention, *tensors, is_causal=True)
    assert_close([x for x in got.unbind()], [x[:, 0] for x in wanted])


def test_a_ragged_dimension_of_the_batch():
    """[batch, ragged, rows, dim], as of windows of pictures."""
    q, k, v = (torch.nested.nested_tensor([torch.randn(n, 6, 8) for n in (2, 3)], layout=JAGGED) for _ in range(3))
    got = scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(got.values(), F.scaled_dot_product_attention(q.values(), k.values(), v.values(), is_causal=True))


def test_gradcheck():
    starts, others = torch.tensor([0, 2, 3]), torch.tensor([0, 1, 4])

    def of(q, k, v):
        packed = (nested_tensor_from_jagged(x, s).transpose(1, 2) for x, s in ((q, starts), (k, others), (v, others)))
        return scaled_dot_product_attention(*packed, is_causal=True).values()

    leaves = [torch.randn(n, 2, 3, dtype=torch.float64, requires_grad=True) for n in (3, 4, 4)]
    assert torch.autograd.gradcheck(of, leaves)


@pytest.mark.parametrize("layout", [JAGGED, STRIDED])
def test_dropout(layout):
    q, k, v = (nested(entries([40, 60], dim=16, seed=i), layout) for i in range(3))
    ones = nested([torch.ones(n, 4, 16) for n in (40, 60)], layout)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(unbound(scaled_dot_product_attention(q, k, ones, dropout_p=0.5)))
    assert_close(found[0], found[1], rtol=0, atol=0)
    rows = torch.cat(found[0])[..., 0]  # each is a sum of weights that are kept, doubled
    assert rows.std() > 0.05 and abs(rows.mean() - 1) < 0.05
    leaves = entries([40, 60], dim=16)
    zeros = unbound(scaled_dot_product_attention(nested(leaves, layout), k, v, dropout_p=1.0))
    assert not any(x.any() for x in (*zeros, *gradients(zeros, leaves)))


def test_autocast():
    q, k, v = (nested(entries(KEYS, seed=i)) for i in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        assert scaled_dot_product_attention(q, k, v).dtype is torch.bfloat16


@pytest.mark.parametrize("layout", [JAGGED, STRIDED])
def test_the_patch_computes_them(layout):
    q, k, v = (nested(entries(KEYS, seed=i), layout) for i in range(3))
    wanted = scaled_dot_product_attention(q, k, v, is_causal=True)
    with saccade.torch.patch() as patch:
        got = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert sum(patch.statistics().taken.values()) == 1 and not patch.statistics().passed_on
    assert_close(unbound(got), unbound(wanted), rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_torch_compile(dynamic):
    def block(x):
        heads = x.unflatten(-1, [4, 8]).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(-2) * 2

    torch._dynamo.reset()
    with saccade.torch.patch():
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        for lengths in (ROWS, KEYS):
            x = torch.nested.nested_tensor([torch.randn(n, 32) for n in lengths], layout=JAGGED, requires_grad=True)
            outputs = [function(x).values() for function in (compiled, block)]
            assert_close(*outputs)
            assert_close(*(torch.autograd.grad(o.sin().sum(), x)[0].values() for o in outputs))


def test_errors_name_the_argument():
    q, k = nested(entries(ROWS)), nested(entries(KEYS, 2))
    dense = torch.randn(4, 4, 3, 8)
    for arguments, named, text in (
        ((q, dense, dense), {}, "query: expected query, key and value nested alike"),
        ((q, q, nested(entries(ROWS), STRIDED)), {}, "query: expected query, key and value nested alike"),
        ((q, q, q), {"attn_mask": torch.ones(3, 3, dtype=torch.bool)}, "attn_mask: nested tensors have no mask"),
        ((q, k, k), {}, "key: expected 4 heads, as query has, got 2"),
        ((q, nested(entries(KEYS)), q), {}, "value: expected the lengths of key"),
        ((q, nested(entries([3, 3])), nested(entries([3, 3]))), {}, "key: expected batch 4, as query has, got 2"),
    ):
        with pytest.raises(ValueError, match=text):
            scaled_dot_product_attention(*arguments, **named)
        with pytest.raises(RuntimeError, match=text):
            scaled_dot_product_attention(*arguments, **named)
