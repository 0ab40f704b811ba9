"""saccade.torch.MultiheadAttention against torch.nn.MultiheadAttention."""

import copy
import functools
import inspect
import io
import itertools
import warnings

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import torch.nn.functional as F  # noqa: E402
from saccade.torch import MultiheadAttention, _attend, _encoder  # noqa: E402
from torch import nn  # noqa: E402

BATCH, LENGTH, WIDTH, HEADS = 3, 5, 8, 2


def pair(**options):
    """PyTorch's module and ours, with the same parameters."""
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, **options)
    if theirs.in_proj_bias is not None:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    ours = MultiheadAttention(WIDTH, HEADS, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def leaf(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def inputs(module, kind, batched=True, length_k=LENGTH):
    def tensor(length, width):
        if not batched:
            return leaf(length, width)
        return leaf(BATCH, length, width) if module.batch_first else leaf(length, BATCH, width)

    query = tensor(LENGTH, WIDTH)
    if kind == "self":
        return query, query, query
    key = tensor(length_k, module.kdim)
    return query, key, key if kind == "same key and value" else tensor(length_k, module.vdim)


def outcome(module, tensors, options):
    """Output, weights and the gradients of a loss of both, with respect to all tensors that have one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of masks of different types
        output, weights = module(*tensors, **options)
    loss = (output * torch.arange(output.numel()).view_as(output).cos()).sum()
    if weights is not None:
        loss = loss + (weights * torch.arange(weights.numel()).view_as(weights).sin()).sum()
    learnt = [x for x in (*tensors, *options.values()) if isinstance(x, torch.Tensor) and x.requires_grad]
    return [output, weights, *torch.autograd.grad(loss, [*learnt, *module.parameters()])]


def masks(padding, attn, batched=True, length_k=LENGTH):
    """key_padding_mask and attn_mask of these kinds, in which each row sees at least the first key."""
    result = {}
    for name, kind, shape in (
        ("key_padding_mask", padding, (BATCH, length_k) if batched else (length_k,)),
        ("attn_mask", attn, (BATCH * HEADS if batched else HEADS, LENGTH, length_k)),
    ):
        if kind == "causal":
            result[name] = torch.ones(LENGTH, length_k, dtype=torch.bool).triu(1)
            result["is_causal"] = True
        elif kind:
            shape = shape[1:] if "2" in kind else shape
            result[name] = leaf(*shape) if "floating" in kind else torch.rand(shape) < 0.3
            if "bool" in kind:
                result[name][..., 0] = False
    return result


ARGUMENTS = [
    dict(zip(("bias", "add_bias_kv", "add_zero_attn", "batch_first"), values), dtype=torch.float64, **widths)
    for values in itertools.product((True, False), repeat=4)
    for widths in ({}, {"kdim": 6, "vdim": 10})
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: " ".join(k for k, v in arguments.items() if v))
@pytest.mark.parametrize("batched", [True, False])
def test_agrees_with_pytorch(arguments, batched):
    """Every constructor argument, each with another seventh of the combinations of forward arguments."""
    theirs, ours = pair(**arguments)
    kinds = ["all different"] if "kdim" in arguments else ["self", "same key and value", "all different"]
    paddings = [None, "bool", "floating"]
    attns = [None, "bool 2", "floating 2", "bool 3", "floating 3", "causal"]
    combinations = list(itertools.product(kinds, paddings, attns, ["averaged", "per head", None]))
    for kind, padding, attn, weights in combinations[ARGUMENTS.index(arguments) % 7 :: 7]:
        appended = arguments["add_bias_kv"] or arguments["add_zero_attn"]
        if attn == "causal" and appended and padding is None and weights is None:
            continue  # see test_appended_keys_are_seen_by_every_row
        torch.manual_seed(2)
        tensors, options = inputs(ours, kind, batched), masks(padding, attn, batched)
        options.update(need_weights=weights is not None, average_attn_weights=weights == "averaged")
        got, wanted = (outcome(module, tensors, options) for module in (ours, theirs))
        for a, b in zip(got, wanted):
            assert (a is None) == (b is None) and (a is None or a.shape == b.shape)
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("length_k", [1, 4, 9])
@pytest.mark.parametrize("attn", [None, "bool 2", "floating 3"])
def test_cross_attention(length_k, attn):
    theirs, ours = pair(dtype=torch.float64)
    tensors, options = inputs(ours, "all different", length_k=length_k), masks("bool", attn, length_k=length_k)
    for a, b in zip(outcome(ours, tensors, options), outcome(theirs, tensors, options)):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("need_weights", [True, False])
def test_other_dtypes(dtype, need_weights):
    """The error is at most 3 times that of PyTorch in the same dtype, + 16 eps times the largest number."""
    theirs, ours = (module.to(dtype) for module in pair())
    exact = copy.deepcopy(theirs).double()
    x = torch.randn(LENGTH, BATCH, WIDTH).to(dtype).requires_grad_()
    mask = torch.randn(LENGTH, LENGTH).to(dtype).requires_grad_()
    results = [
        outcome(module, (x.to(t),) * 3, {"attn_mask": mask.to(t), "need_weights": need_weights})
        for module, t in ((ours, dtype), (theirs, dtype), (exact, torch.float64))
    ]
    for got, naive, wanted in zip(*results):
        if got is None:
            continue
        assert got.dtype == naive.dtype and got.shape == naive.shape
        allowed = 3 * (naive - wanted).abs().max() + 16 * torch.finfo(dtype).eps * wanted.abs().max()
        assert (got - wanted).abs().max() <= allowed


def test_appended_keys_are_seen_by_every_row():
    """With is_causal but no weights or padding, PyTorch hides the keys that add_bias_kv appends from all rows."""
    theirs, ours = pair(add_bias_kv=True, add_zero_attn=True, dtype=torch.float64)
    (x, *_), options = inputs(ours, "self"), masks(None, "causal")
    got, _ = ours(x, x, x, need_weights=False, **options)
    torch.testing.assert_close(got, theirs(x, x, x, need_weights=True, **options)[0])
    torch.testing.assert_close(ours(x, x, x, is_causal=True)[0], got)


def test_causality_needs_no_mask():
    theirs, ours = pair(dtype=torch.float64)
    (x, *_), options = inputs(ours, "self"), masks("bool", "causal")
    wanted = theirs(x, x, x, **options)
    del options["attn_mask"]
    torch.testing.assert_close(ours(x, x, x, **options), wanted)


def test_rows_that_see_nothing():
    _, ours = pair()
    x = torch.randn(LENGTH, BATCH, WIDTH, requires_grad=True)
    hidden = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    hidden[1] = True
    output, weights = ours(x, x, x, key_padding_mask=hidden)
    assert not weights[1].any()
    torch.testing.assert_close(output[:, 1], ours.out_proj.bias.expand(LENGTH, WIDTH))
    (gradient,) = torch.autograd.grad(output.sum() + weights.square().sum(), x)
    assert gradient.isfinite().all() and not gradient[:, 1].any()


@pytest.mark.parametrize("average", [True, False])
def test_dropout(average):
    """The weights are those of the output, and gradients flow through those that were kept."""
    torch.manual_seed(0)
    module = MultiheadAttention(WIDTH, HEADS, dropout=0.4, bias=False, dtype=torch.float64)
    nn.init.eye_(module.out_proj.weight)
    x = leaf(40, BATCH, WIDTH)

    def run(x):
        torch.manual_seed(3)
        return module(x, x, x, average_attn_weights=average)

    output, weights = run(x)
    per_head = weights if not average else module(x, x, x, average_attn_weights=False)[1]
    assert 0.3 < (per_head == 0).double().mean() < 0.5
    if not average:
        values = F.linear(x, module.in_proj_weight[2 * WIDTH :]).unflatten(-1, (HEADS, -1)).permute(1, 2, 0, 3)
        torch.testing.assert_close((weights @ values).permute(2, 0, 1, 3).flatten(-2), output)
    small = leaf(4, 2, WIDTH)
    torch.autograd.gradcheck(run, small)
    module.eval()
    assert torch.equal(module(x, x, x)[0], module(x, x, x)[0])


def test_dropout_of_everything():
    module, x = MultiheadAttention(WIDTH, HEADS, dropout=1.0), torch.randn(LENGTH, BATCH, WIDTH, requires_grad=True)
    output, weights = module(x, x, x)
    assert not weights.any()
    (output.sum() + weights.sum()).backward()
    assert not x.grad.any()


def test_gradcheck_through_weights_alone():
    _, ours = pair(dtype=torch.float64, add_zero_attn=True)
    mask = leaf(BATCH * HEADS, LENGTH, LENGTH)
    x = leaf(LENGTH, BATCH, WIDTH)
    torch.autograd.gradcheck(lambda x, mask: ours(x, x, x, attn_mask=mask, average_attn_weights=False)[1], (x, mask))


def test_weights_that_nobody_differentiates_are_not_kept(monkeypatch):
    """need_weights=True is the default: its backward pass costs no more than without."""
    computed = []
    forward = _attend._forward
    monkeypatch.setattr(_attend, "_forward", lambda *a, **k: computed.append(1) or forward(*a, **k))
    _, ours = pair()
    x = torch.randn(LENGTH, BATCH, WIDTH, requires_grad=True)
    output, _ = ours(x, x, x)
    held = [tensor for tensor in _saved(output.grad_fn) if tensor.shape[-2:] == (LENGTH, LENGTH)]
    assert not held
    output.sum().backward()
    assert computed == [1]


def _saved(node):
    """All tensors that a graph keeps."""
    nodes, seen = [node], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "saved_tensors"):
            yield from (tensor for tensor in node.saved_tensors if tensor is not None)
        nodes += [parent for parent, _ in node.next_functions]


# It is a module like PyTorch's.


@pytest.mark.parametrize("arguments", ARGUMENTS[:6])
def test_parameters_and_state_dict(arguments):
    torch.manual_seed(5)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, **arguments)
    torch.manual_seed(5)
    ours = MultiheadAttention(WIDTH, HEADS, **arguments)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)
    theirs.load_state_dict(ours.state_dict())
    assert repr(ours) == repr(theirs)
    for module in (theirs, ours):
        torch.manual_seed(6)
        module._reset_parameters()
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)


def test_copies_and_pickles():
    theirs, ours = pair(dropout=0.1)
    x = torch.randn(LENGTH, BATCH, WIDTH)
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (copy.deepcopy(ours), torch.load(file, weights_only=False)):
        assert type(other) is MultiheadAttention
        assert torch.equal(other.eval()(x, x, x)[0], ours.eval()(x, x, x)[0])
    meta = MultiheadAttention(WIDTH, HEADS, device="meta")
    assert meta.in_proj_weight.is_meta
    meta.to_empty(device="cpu").load_state_dict(theirs.state_dict())
    torch.testing.assert_close(meta.eval()(x, x, x), theirs.eval()(x, x, x))


def test_constructor_refuses_what_pytorch_refuses():
    with pytest.raises(ValueError, match="greater than 0"):
        MultiheadAttention(0, 1)
    with pytest.raises(ValueError, match="num_heads: expected a divisor of embed_dim 8, got 3"):
        MultiheadAttention(8, 3)
    with pytest.raises(TypeError, match="causal"):
        MultiheadAttention(8, 2, causal=True)


def test_constructor_has_the_arguments_of_pytorchs():
    ours, theirs = (inspect.signature(each).parameters for each in (MultiheadAttention, torch.nn.MultiheadAttention))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_within_an_encoder_layer(training, padded, nested, monkeypatch):
    """nn.TransformerEncoderLayer uses it, also in evaluation, also if nn.TransformerEncoder makes nested tensors."""
    calls = []
    for owner, name in ((_attend, "_forward"), (_encoder, "_packed")):
        function = getattr(owner, name)
        counted = functools.partial(lambda f, *a, **k: calls.append(1) or f(*a, **k), function)
        monkeypatch.setattr(owner, name, counted)
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, 0.0, batch_first=True)
    ours = copy.deepcopy(layer)
    ours.self_attn = MultiheadAttention(WIDTH, HEADS, batch_first=True)
    ours.load_state_dict(layer.state_dict())
    models = [nn.TransformerEncoder(one, 2, enable_nested_tensor=nested).train(training) for one in (layer, ours)]
    x, padding = torch.randn(BATCH, LENGTH, WIDTH), torch.arange(LENGTH) >= torch.tensor([5, 3, 2])[:, None]
    with torch.no_grad():
        wanted, got = (model(x, src_key_padding_mask=padding if padded else None) for model in models)
    assert len(calls) == 2
    seen = ~padding if padded else slice(None)
    torch.testing.assert_close(got[seen], wanted[seen])


def test_other_code_finds_the_weights():
    """Libraries that adapt attention modules ask which of the two kinds of weights there are."""
    for arguments in ({}, {"kdim": 12}):
        theirs, ours = nn.MultiheadAttention(WIDTH, HEADS, **arguments), MultiheadAttention(WIDTH, HEADS, **arguments)
        assert ours._qkv_same_embed_dim == theirs._qkv_same_embed_dim
        assert (ours.q_proj_weight is None) == ours._qkv_same_embed_dim


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_in_one_graph(backend):
    torch._dynamo.reset()
    _, ours = pair()
    x = torch.randn(LENGTH, BATCH, WIDTH, requires_grad=True)
    padding = torch.rand(BATCH, LENGTH) < 0.3
    compiled = torch.compile(ours, backend=backend, fullgraph=True)
    for need_weights in (True, False):
        options = {"key_padding_mask": padding, "need_weights": need_weights}
        for a, b in zip(outcome(compiled, (x, x, x), options), outcome(ours, (x, x, x), options)):
            torch.testing.assert_close(a, b)


def test_scripts_hold_pytorchs_module():
    class Model(nn.Module):
        def __init__(self, attention):
            super().__init__()
            self.attention = attention

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x)[0]

    _, ours = pair()
    x = torch.randn(LENGTH, BATCH, WIDTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(Model(ours))
        torch.jit.save(script, io.BytesIO())
    torch.testing.assert_close(script(x), ours(x, x, x)[0])
    assert type(ours) is MultiheadAttention


def test_autocast():
    theirs, ours = pair(add_bias_kv=True)
    x = torch.randn(LENGTH, BATCH, WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (got, weights), (wanted, _) = ours(x, x, x), theirs(x, x, x)
    assert got.dtype == weights.dtype == torch.bfloat16
    torch.testing.assert_close(got, wanted.to(torch.bfloat16), rtol=0.03, atol=0.03)


# What is refused.


@pytest.mark.parametrize(
    "change, text",
    [
        ({"query": None}, "query: expected a tensor, got None"),
        ({"query": torch.randn(5, 3, 8, device="meta")}, "query: expected a tensor on the CPU"),
        ({"query": torch.randn(8)}, r"query: expected rank 2 or 3, got shape \[8\]"),
        ({"key": torch.randn(5, 8)}, r"key: expected rank 3, as query has, got shape \[5, 8\]"),
        ({"query": torch.randn(5, 3, 9)}, r"query: expected 8 in the last dimension, got shape \[5, 3, 9\]"),
        ({"key": torch.randn(4, 3, 8)}, "value: expected .4, 3. in front, as key has"),
        ({"key": torch.randn(5, 2, 8), "value": torch.randn(5, 2, 8)}, "key: expected batch 3, as query has, got 2"),
        ({"value": torch.randn(5, 3, 8).double()}, "value: expected torch.float32, as the parameters are"),
        ({"key_padding_mask": torch.ones(3, 5)[0]}, r"key_padding_mask: expected \[3, 5\], got \[5\]"),
        ({"key_padding_mask": torch.ones(3, 5, dtype=torch.int32)}, "key_padding_mask: expected bool or floating"),
        ({"key_padding_mask": [True]}, "key_padding_mask: expected a tensor, got list"),
        ({"attn_mask": torch.ones(5, 4)}, r"attn_mask: expected \[5, 5\] or \[6, 5, 5\], got \[5, 4\]"),
        ({"attn_mask": torch.ones(3, 5, 5)}, r"attn_mask: expected \[5, 5\] or \[6, 5, 5\], got \[3, 5, 5\]"),
        ({"attn_mask": torch.ones(5, 5, dtype=torch.uint8)}, "attn_mask: expected bool or floating"),
    ],
)
def test_wrong_arguments_are_named(change, text):
    _, ours = pair()
    arguments = {name: torch.randn(5, 3, 8) for name in ("query", "key", "value")}
    with pytest.raises(ValueError, match=text):
        ours(**{**arguments, **change})


def test_unknown_keywords():
    _, ours = pair()
    with pytest.raises(TypeError, match="mask"):
        ours(*[torch.randn(5, 3, 8)] * 3, mask=None)


def nested_tensor(parts, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(parts, **options)


@pytest.mark.parametrize("bias", [True, False])
def test_nested_tensors_in_evaluation(bias):
    _, ours = pair(batch_first=True, bias=bias)
    parts = [torch.randn(3, 8), torch.randn(1, 8), torch.randn(5, 8)]
    nested = nested_tensor(parts)
    with torch.no_grad():
        o, weights = ours.eval()(nested, nested, nested, need_weights=False)
        assert o.is_nested and weights is None
        for one, part in zip(o.unbind(), parts):
            torch.testing.assert_close(one, ours(part, part, part, need_weights=False)[0])


def test_other_nested_tensors_are_refused():
    _, ours = pair(batch_first=True)
    nested = nested_tensor([torch.randn(3, 8), torch.randn(5, 8)])
    jagged = nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
    ours.eval()
    with pytest.raises(ValueError, match="query: nested tensors have no gradients"):
        ours(nested, nested, nested, need_weights=False)
    with torch.no_grad():
        with pytest.raises(ValueError, match="query: nested tensors are for self-attention"):
            ours(nested, nested, nested)
        with pytest.raises(ValueError, match="query: nested tensors are for self-attention"):
            ours(nested, nested, nested_tensor([torch.randn(3, 8), torch.randn(5, 8)]), need_weights=False)
        with pytest.raises(ValueError, match="query: nested tensors are for self-attention"):
            ours(nested, nested, nested, need_weights=False, is_causal=True)
        with pytest.raises(ValueError, match="query: expected a dense tensor or a contiguous nested one"):
            ours(jagged, jagged, jagged, need_weights=False)
        with pytest.raises(ValueError, match="query: nested tensors are for self-attention in evaluation"):
            ours.train()(nested, nested, nested, need_weights=False)
