"""saccade.torch.attention and attention_varlen: every option with autograd, eager and recorded."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade  # noqa: E402
import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from saccade import _options  # noqa: E402
from saccade.torch import attention, attention_varlen, distributed  # noqa: E402
from saccade.torch._operators import PAIRS, TENSORS, Call  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

FUNCTIONS = (
    (attention, _options.TensorOptions),
    (attention_varlen, _options.TensorPackedOptions),
    (distributed.scaled_dot_product_attention, _options.TensorShardedOptions),
)


@pytest.mark.parametrize("function, options", FUNCTIONS, ids=lambda x: x.__name__)
def test_options_are_keywords_with_a_text(function, options):
    parameters = inspect.signature(function).parameters
    for name in options.__annotations__:
        assert parameters[name].default == _options.DEFAULTS.get(name)
        assert function.__doc__.count(f":param {name}: ") == 1


def test_every_option_is_one_of_the_operators():
    names = set().union(*(options.__annotations__ for _, options in FUNCTIONS))
    of_pairs = {part for pair in PAIRS.values() for part in pair}
    assert names - {"seed"} == {*TENSORS, *Call._fields, *PAIRS} - of_pairs - {"return_weights"}
    defaults = {**Call._field_defaults, **{name: tuple(map(Call._field_defaults.get, PAIRS[name])) for name in PAIRS}}
    assert all(defaults[name] == _options.DEFAULTS.get(name) for name in names if name in defaults)


@pytest.mark.parametrize("name", ["score_mod", "num_threads", "is_causal"])
def test_what_is_no_option_is_refused(name):
    q, k, v = operands()
    with pytest.raises(TypeError, match=f"attention.. got an unexpected keyword argument '{name}'"):
        attention(q, k, v, **{name: None})


def operands(*, heads=4, kv_heads=2, rows=5, keys=7, dtype=torch.float64):
    torch.manual_seed(0)
    shapes = ((2, heads, rows, 6), (2, kv_heads, keys, 6), (2, kv_heads, keys, 3))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


OPTIONS = {
    "plain": {},
    "causal": {"causal": "bottom_right"},
    "window": {"causal": "top_left", "window": (2, 0)},
    "offset": {"causal": "top_left", "query_offset": -2},
    "offsets": {"causal": "top_left", "query_offset": [-1, 2]},
    "scale": {"scale": 0.3, "softcap": 1.5},
    "lengths": {"kv_lengths": torch.tensor([4, 0])},
    "starts": {"kv_starts": [3, 7], "causal": "bottom_right"},
    "bool_mask": {"mask": torch.arange(7) % 3 != 1},
    "block_mask": {"block_mask": torch.tensor([[True, False], [True, True], [False, True]]), "block_mask_size": (2, 4)},
    "dropout": {"dropout_p": 0.4, "seed": 3},
    "slopes": {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])},
    "sinks": {"sinks": torch.tensor([0.5, -1.0, 2.0, 0.0])},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_gradcheck(name, layout):
    """Of o and of lse, where rows see something."""
    tensors = operands()
    if layout == "bshd":
        tensors = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in tensors]
    options = {**OPTIONS[name], "layout": layout}

    def function(q, k, v):
        o, lse = attention(q, k, v, return_lse=True, **options)
        return o, torch.where(lse.isfinite(), lse, 0)

    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize("shape", [(7,), (5, 1), (4, 1, 7), (2, 1, 5, 7)])
def test_masks_learn(shape):
    mask = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    q, k, v = operands()
    assert torch.autograd.gradcheck(lambda mask: attention(q, k, v, mask=mask, return_lse=True), (mask,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sinks_and_slopes_learn(dtype):
    """Their gradients are those of saccade.attention_backward, in their own types and shapes."""
    q, k, v = operands(dtype=dtype)
    sinks, slopes = torch.randn(4, requires_grad=True), torch.rand(2, 4, requires_grad=True)
    o, lse = attention(q, k, v, sinks=sinks, alibi_slopes=slopes, return_lse=True)
    dout, dlse = torch.randn_like(o), torch.randn_like(lse)
    got = torch.autograd.grad((o, lse), (q, k, v, sinks, slopes), (dout, dlse))
    arrays = [x.detach().numpy() for x in (q, k, v, o, lse, dout)]
    wanted = saccade.attention_backward(
        *arrays,
        dlse=dlse.numpy(),
        sinks=sinks.detach().numpy(),
        alibi_slopes=slopes.detach().numpy(),
        return_dsinks=True,
        return_dalibi_slopes=True,
    )
    for a, b in zip(got, (wanted.dq, wanted.dk, wanted.dv, wanted.dsinks, wanted.dalibi_slopes)):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-6)
    assert got[3].dtype == got[4].dtype == torch.float32


@pytest.mark.parametrize("name", OPTIONS)
def test_results_are_those_of_the_package(name):
    q, k, v = (x.detach().float() for x in operands())
    options = OPTIONS[name]
    got = attention(q, k, v, return_lse=True, return_weights=True, **options)
    wanted = saccade.attention(q.numpy(), k.numpy(), v.numpy(), return_lse=True, return_weights=True, **options)
    for a, b in zip(got, wanted):
        assert np.array_equal(a.numpy(), b)
    assert torch.equal(attention(q, k, v, **options), got[0])


def test_is_pytorchs_function_where_that_has_the_options():
    q, k, v = operands(kv_heads=4, keys=5, dtype=torch.float32)
    got = attention(q, k, v, causal="top_left")
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(got, wanted)
    for a, b in zip(torch.autograd.grad(got.sum(), (q, k, v)), torch.autograd.grad(wanted.sum(), (q, k, v))):
        torch.testing.assert_close(a, b)


def test_documents_are_alone():
    torch.manual_seed(0)
    q, k, v = (torch.randn(12, heads, 8, requires_grad=True) for heads in (4, 2, 2))
    starts = torch.tensor([0, 5, 5, 12])
    o, lse = attention_varlen(q, k, v, starts, causal="top_left", window=(3, 0), return_lse=True)
    assert o.shape == (12, 4, 8) and lse.shape == (4, 12)
    gradients = torch.autograd.grad(o.sum() + lse.sum(), (q, k, v))
    for rows in (slice(0, 5), slice(5, 12)):
        parts = [x.detach()[rows].requires_grad_() for x in (q, k, v)]
        one, one_lse = attention(*parts, causal="top_left", window=(3, 0), layout="bshd", return_lse=True)
        torch.testing.assert_close(o[rows], one)
        for a, b in zip(gradients, torch.autograd.grad(one.sum() + one_lse.sum(), parts)):
            torch.testing.assert_close(a[rows], b)


def test_dropout_follows_manual_seed():
    q, k, v = operands()
    torch.manual_seed(5)
    first = attention(q, k, v, dropout_p=0.5)
    again = attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(5)
    assert torch.equal(attention(q, k, v, dropout_p=0.5), first) and not torch.equal(again, first)


def test_pages_have_no_gradients():
    q, k, v = (x.detach() for x in operands())
    pages_k, pages_v = (x.permute(0, 1, 2, 3).contiguous() for x in (k, v))
    table = torch.tensor([[1], [0]], dtype=torch.int32)
    got = attention(q, pages_k, pages_v, block_table=table, kv_lengths=[7, 3])
    assert torch.equal(got, attention(q, k.flip(0), v.flip(0), kv_lengths=[7, 3]))
    q.requires_grad_()
    o = attention(q, pages_k, pages_v, block_table=table, kv_lengths=[7, 3])
    with pytest.raises(ValueError, match="pages have no gradients"):
        o.sum().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["plain", "window", "lengths", "block_mask", "dropout", "slopes", "sinks"])
def test_compiled_in_one_graph(backend, name):
    torch._dynamo.reset()
    q, k, v = operands(dtype=torch.float32)
    mask = torch.randn(5, 7, requires_grad=True)
    options = {key: value for key, value in OPTIONS[name].items() if key != "mask"}

    def function(q, k, v, mask):
        o, lse = attention(q, k, v, mask=mask, return_lse=True, **options)
        return o.sum() + torch.where(lse.isfinite(), lse, 0).sum()

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    results = [f(q, k, v, mask) for f in (compiled, function)]
    torch.testing.assert_close(*results)
    for a, b in zip(*(torch.autograd.grad(x, (q, k, v, mask)) for x in results)):
        torch.testing.assert_close(a, b)


def test_compiled_documents():
    torch._dynamo.reset()
    q, k, v = (torch.randn(12, heads, 8, requires_grad=True) for heads in (4, 2, 2))
    starts = torch.tensor([0, 5, 12])
    compiled = torch.compile(lambda q, k, v: attention_varlen(q, k, v, starts), backend="aot_eager", fullgraph=True)
    got, wanted = compiled(q, k, v), attention_varlen(q, k, v, starts)
    torch.testing.assert_close(got, wanted)
    for a, b in zip(*(torch.autograd.grad(x.sum(), (q, k, v)) for x in (got, wanted))):
        torch.testing.assert_close(a, b)


def test_exported():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v, causal="bottom_right", softcap=2.0)

    tensors = tuple(x.detach() for x in operands(dtype=torch.float32))
    program = torch.export.export(Model(), tensors)
    assert "saccade.attention_with_options" in str(program.graph)
    torch.testing.assert_close(program.module()(*tensors), Model()(*tensors))


def test_the_operator_declares_what_it_does():
    q, k, v = operands(dtype=torch.float32)
    tensors = [None] * 10
    tensors[0] = torch.randn(5, 7, requires_grad=True)
    call = ("top_left", None, -1, 3, None, 2.0, 0.0, 128, 128, "bhsd", False, True)
    torch.library.opcheck(torch.ops.saccade.attention_with_options.default, (q, k, v, *tensors, None, *call))


def test_operations_are_counted():
    q, k, v = operands()
    with FlopCounterMode(display=False) as mode:
        attention(q, k, v).sum().backward()
    pairs = 2 * 4 * 5 * 7
    assert mode.get_total_flops() == 2 * pairs * (6 + 3) + 2 * pairs * (3 * 6 + 2 * 3)
    packed = [x.detach()[0].transpose(0, 1) for x in operands(rows=7)]
    with FlopCounterMode(display=False) as mode:
        attention_varlen(*packed, [0, 2, 7])
    assert mode.get_total_flops() == 2 * 4 * (2 * 2 + 5 * 5) * (6 + 3)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"q": None}, "q: expected a tensor, got None"),
        ({"k": torch.randn(2, 2, 7, 5)}, "k has head_dim 5 but q has 6"),
        ({"causal": "left"}, "causal"),
        ({"window": 1.5}, "window: expected an int or two"),
        ({"sinks": torch.randn(3)}, r"sinks must have shape \[4\]"),
        ({"kv_starts": [0, 8]}, "kv_starts must lie between 0 and seqlen_k = 7, but one is 8"),
        ({"mask": "causal"}, "mask: expected a tensor, got a str"),
        ({"dropout_p": 1.5}, "dropout_p"),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_wrong_arguments_are_named(change, text, grad):
    q, k, v = (x.detach().requires_grad_(grad) for x in operands(dtype=torch.float32))
    arguments = {"q": q, "k": k, "v": v, **change}
    with pytest.raises(ValueError, match=text):
        attention(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)


def test_batches_of_gradients():
    q, k, v = operands()
    mask = torch.randn(4, 1, 7, dtype=torch.float64, requires_grad=True)
    o, lse = attention(q, k, v, mask=mask, return_lse=True)
    douts, dlses = torch.randn(3, *o.shape, dtype=o.dtype), torch.randn(3, *lse.shape, dtype=o.dtype)
    inputs = (q, k, v, mask)
    got = torch.autograd.grad((o, lse), inputs, (douts, dlses), is_grads_batched=True, retain_graph=True)
    for i in range(3):
        one = torch.autograd.grad((o, lse), inputs, (douts[i], dlses[i]), retain_graph=True)
        for a, b in zip(got, one):
            torch.testing.assert_close(a[i], b)


def test_seeds_are_those_of_the_package():
    q, k, v = (x.detach() for x in operands())
    for seed in (0, -5, 2**63, 2**64 - 1, np.int64(7)):
        got = attention(q, k, v, dropout_p=0.5, seed=seed)
        assert np.array_equal(got.numpy(), saccade.attention(q.numpy(), k.numpy(), v.numpy(), dropout_p=0.5, seed=seed))
    with pytest.raises(ValueError, match="seed: expected an integer, got a float"):
        attention(q, k, v, dropout_p=0.5, seed=1.5)


def test_few_rows_over_many_keys_are_those_of_decode():
    q, k, v = torch.randn(2, 4, 2, 32), torch.randn(2, 2, 1100, 32), torch.randn(2, 2, 1100, 32)
    options = {"causal": "bottom_right", "kv_starts": torch.tensor([0, 40]), "softcap": 5.0, "sinks": torch.randn(4)}
    wanted, lse = saccade.decode(q, k, v, return_lse=True, **options)
    o, found = attention(q, k, v, return_lse=True, **options)
    assert torch.equal(o, wanted) and torch.equal(found, lse)
    assert not torch.equal(wanted, saccade.attention(q, k, v, **options))  # another order of sums


@pytest.mark.parametrize("name", ["attention", "attention_varlen", "flex_attention", "flex_attention, a program"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_q_k_and_v(name, dtype):
    def function(q, k, v):
        if name.startswith("flex"):
            damped = (lambda score, b, h, row, key: score / (1 + (row - key).abs())) if "program" in name else None
            return saccade.torch.flex_attention(q, k, v, damped, enable_gqa=True, return_lse=True)
        if name == "attention":
            return attention(q, k, v, mask=mask, return_lse=True)
        return attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), [0, 2, 5], [0, 3, 7], return_lse=True)

    q, k, v = operands(dtype=torch.float32)
    mask = torch.randn(5, 7)  # keeps its type
    with torch.autocast("cpu", dtype):
        o, lse = function(q, k, v)
        assert function(*(x.detach().double() for x in (q, k, v)))[0].dtype is torch.float64
    wanted, wanted_lse = function(*(x.to(dtype) for x in (q, k, v)))
    assert o.dtype is dtype and torch.equal(o, wanted) and torch.equal(lse, wanted_lse)
    assert torch.autograd.grad(o.sum(), q)[0].dtype is torch.float32


def test_autocast_in_compiled_functions():
    q, k, v = operands(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")(q, k, v)
        assert compiled.dtype is torch.bfloat16 and torch.equal(compiled, attention(q, k, v))


def test_old_names_of_layouts_warn():
    x = torch.randn(2, 4, 3, 8, requires_grad=True)
    with pytest.warns(DeprecationWarning, match='layout="blhd" is deprecated; use "bshd"'):
        o = saccade.torch.attention(x, x, x, layout="blhd")
    assert torch.equal(o, saccade.torch.attention(x, x, x, layout="bshd"))


def test_causal_true_is_refused():
    x = torch.randn(2, 3, 4, 8)
    with pytest.raises(ValueError, match="causal: .*'top_left'.*PyTorch.*'bottom_right'.*flash-attn"):
        saccade.torch.attention(x, x, x, causal=True)
