"""saccade.nn: the published modules, their parameters and gradients."""

import copy
import pickle
import sys

import numpy as np
import pytest
from saccade import nn

from reference import attention, random

INPUTS = np.float32(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)


def test_published_numbers_come_out():
    plain = nn.SelfAttention(3, 2, weight_layout="in_out", seed=123)(INPUTS)
    np.testing.assert_allclose(plain[0], [0.2996, 0.8053], atol=5e-5)
    linear = nn.SelfAttention(3, 2, seed=789)(INPUTS)
    np.testing.assert_allclose(linear[0], [-0.0739, 0.0713], atol=5e-5)
    heads = nn.MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2, seed=123)(np.stack([INPUTS, INPUTS]))
    np.testing.assert_allclose(heads[0, 0], [-0.4519, 0.2216, 0.4772, 0.1063], atol=5e-5)
    split = nn.MultiHeadAttention(3, 2, 6, 0.0, 2, causal=True, seed=123)(np.stack([INPUTS, INPUTS]))
    np.testing.assert_allclose(split[1, 5], [0.2575, 0.4028], atol=5e-5)


def test_parameters_share_the_module_memory():
    layer = nn.SelfAttention(3, 4, seed=1)
    assert list(layer.parameters()) == ["W_query.weight", "W_key.weight", "W_value.weight"]
    before = layer(INPUTS)
    kept = layer.state_dict()
    layer.parameters()["W_value.weight"][...] *= 2
    np.testing.assert_allclose(layer(INPUTS), 2 * before, rtol=1e-6)
    layer.load_state_dict(kept)
    np.testing.assert_array_equal(layer(INPUTS), before)
    weight = layer.parameters()["W_query.weight"]
    del layer
    assert np.isfinite(weight).all()  # keeps the module alive


def test_steps_are_the_formula():
    layer = nn.MultiHeadAttention(3, 8, num_heads=2, seed=5)
    steps, weights = layer.steps(INPUTS), layer.parameters()
    for name, letter in (("W_query", "q"), ("W_key", "k"), ("W_value", "v")):
        np.testing.assert_allclose(steps[letter], INPUTS @ weights[f"{name}.weight"].T, atol=1e-6)
    q, k, v = (steps[x].reshape(6, 2, 4).swapaxes(0, 1) for x in "qkv")
    o, w, _ = attention(q, k, v)
    np.testing.assert_allclose(steps["weights"], w, atol=1e-6)
    np.testing.assert_allclose(steps["context"], o.swapaxes(0, 1).reshape(6, 8), atol=1e-6)
    np.testing.assert_allclose(
        steps["output"], steps["context"] @ weights["out_proj.weight"].T + weights["out_proj.bias"], atol=1e-6
    )
    np.testing.assert_array_equal(layer(INPUTS), steps["output"])
    y, averaged = layer(INPUTS, return_weights="averaged")
    np.testing.assert_allclose(averaged, w.mean(0), atol=1e-6)
    assert layer(INPUTS, return_weights=True)[1].shape == (2, 6, 6)


def test_gradients_go_downhill():
    rng = np.random.default_rng(0)
    layer = nn.MultiHeadAttention(4, 4, num_heads=2, qkv_bias=True, seed=2)
    query, key = random(rng, 2, 5, 4), random(rng, 2, 7, 4)
    target = random(rng, 2, 5, 4)

    def step():
        y = layer(query, key, key)
        gradients = layer.backward(2 * (y - target))
        return float(((y - target) ** 2).sum()), gradients

    assert all(gradient is None for gradient in layer.grad.values())
    first, gradients = step()
    assert gradients.query.shape == query.shape and gradients.value.shape == key.shape
    direction = random(rng, *query.shape)

    def loss(x):
        return float(((layer(x, key, key).astype(np.float64) - target) ** 2).sum())

    slope = (loss(query + 1e-2 * direction) - loss(query - 1e-2 * direction)) / 2e-2
    assert (gradients.query * direction).sum() == pytest.approx(slope, rel=1e-2)
    for _ in range(20):
        layer.zero_grad()
        last, _ = step()
        for name, value in layer.parameters().items():
            value -= 0.02 * layer.grad[name]
    assert last < 0.8 * first
    with pytest.raises(RuntimeError):
        layer.eval().backward(target)


def test_any_strides():
    layer = nn.MultiHeadAttention(3, 4, num_heads=2, seed=4)
    y = layer(INPUTS)
    dx = layer.backward(y)
    columns = np.asfortranarray(INPUTS)
    np.testing.assert_array_equal(layer(columns), y)
    np.testing.assert_array_equal(layer.backward(np.asfortranarray(y)), dx)
    np.testing.assert_array_equal(layer(columns, columns, columns), y)
    np.testing.assert_array_equal(layer.steps(columns)["output"], y)


def test_masks_and_modes():
    layer = nn.MultiHeadAttention(3, 4, num_heads=2, seed=3).eval()
    assert not layer.training
    keep = np.array([True, True, True, False, True, False])
    alone = layer(INPUTS, INPUTS[keep], INPUTS[keep])
    np.testing.assert_allclose(layer(INPUTS, mask=keep), alone, atol=1e-6)
    np.testing.assert_allclose(layer(INPUTS[None], key_mask=keep[None])[0], alone, atol=1e-6)
    np.testing.assert_allclose(layer(INPUTS, causal=True)[0], layer(INPUTS[:1])[0], atol=1e-6)
    dropping = nn.CausalAttention(3, 4, dropout=0.5, seed=3)
    dropping.seed_dropout(1)
    first = dropping(INPUTS)
    assert (dropping(INPUTS) != first).any()
    dropping.seed_dropout(1)
    np.testing.assert_array_equal(dropping(INPUTS), first)
    np.testing.assert_array_equal(dropping.eval()(INPUTS), dropping(INPUTS))


def modules():
    yield nn.SelfAttention(3, 4, weight_layout="in_out", seed=1)
    yield nn.CausalAttention(3, 4, 9, 0.5, True, seed=1)
    yield nn.MultiHeadAttentionWrapper(3, 4, 9, 0.5, 2)
    yield nn.MultiHeadAttention(3, 4, num_heads=2, add_bias_kv=True, initialization="torch_multihead")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("module", list(modules()), ids=lambda module: type(module).__name__)
def test_copies_and_pickles(module, duplicate):
    for value in module.parameters().values():
        value += 1
    module.name = "mine"
    twin = duplicate(module.eval())
    assert type(twin) is type(module) and twin.name == "mine" and not twin.training
    y = module(INPUTS)
    np.testing.assert_array_equal(twin(INPUTS), y)
    for value in module.parameters().values():
        value += 1
    np.testing.assert_array_equal(twin(INPUTS), y)
    assert (module(INPUTS) != y).any()
    assert duplicate(module.train()).training


ARGUMENTS_IN_0_1_0 = [  # of the modules above, as 0.1.0 pickles them
    (3, 4, "in_out", False, 1),
    (3, 4, 9, 0.5, True, 1),
    (3, 4, 2, 9, 0.5, False, None),
    (3, 4, 2, 0, 0, 0, 0, False, 0.0, False, True, True, False, True, True, None),
]


@pytest.mark.parametrize(
    ("module", "arguments"), list(zip(modules(), ARGUMENTS_IN_0_1_0)), ids=lambda x: type(x).__name__
)
def test_reads_pickles_of_0_1_0(module, arguments):
    state = module.eval().__getstate__()
    loaded = type(module).__new__(type(module))
    loaded.__setstate__({**state, "others": {"_arguments": arguments}})
    np.testing.assert_array_equal(loaded(INPUTS), module(INPUTS))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(loaded))(INPUTS), module(INPUTS))


def test_classes_of_its_users():
    class Doubled(nn.MultiHeadAttention):
        def forward(self, query, **options):
            return 2 * super().forward(query, **options)

    class Same(Doubled):
        pass

    class Mixin:
        def forward(self, query, **options):
            return 2 * super().forward(query, **options)

    kinds = [Doubled, Same]
    if sys.version_info >= (3, 10):  # nanobind for Python 3.9 has no second base class

        class Mixed(Mixin, nn.MultiHeadAttention):
            pass

        kinds.append(Mixed)

    class Called(Doubled):
        def __call__(self, query, **options):
            return -self.forward(query, **options)

    class Unmade(nn.Module):
        def __init__(self):
            super(nn.Module, self).__init__()

    y = nn.MultiHeadAttention(3, 4, seed=1)(INPUTS)
    for kind in kinds:
        layer = kind(3, 4, seed=1)
        np.testing.assert_array_equal(layer(INPUTS), 2 * y)
        np.testing.assert_array_equal(layer(query=INPUTS, causal=False), 2 * y)
    np.testing.assert_array_equal(Called(3, 4, seed=1)(INPUTS), -2 * y)
    with pytest.raises(RuntimeError, match="__init__"):
        Unmade()(INPUTS)
    weight = layer.parameters()["W_query.weight"]
    with pytest.raises(RuntimeError, match="twice"):
        layer._make(**layer._arguments)
    assert weight.shape == (4, 3) and np.isfinite(weight).all()


def test_short_calls_are_like_the_others():
    """A few tokens in a NumPy array take a way of their own."""
    random = np.random.default_rng(0)
    layers = [nn.SelfAttention(3, 4, seed=1, weight_layout="in_out"), nn.CausalAttention(3, 4, 7, 0.5, seed=1)]
    layers += [
        nn.MultiHeadAttentionWrapper(3, 2, num_heads=2, seed=1),
        nn.MultiHeadAttention(3, 4, num_heads=2, seed=1),
    ]
    layers += [nn.MultiHeadAttention(3, 4, add_bias_kv=True, batch_first=False, seed=1)]
    for layer in layers:
        for shape in ((6, 3), (2, 5, 3), (0, 3), (2, 0, 3), (0, 5, 3)):
            x = random.standard_normal(shape, dtype=np.float32)
            np.testing.assert_array_equal(layer.eval()(x), layer.forward(x))
            np.testing.assert_array_equal(layer(x[..., ::-1]), layer.forward(x[..., ::-1].copy()))
            layer.train().seed_dropout(1)
            y = layer(x)
            dx = layer.backward(y)
            layer.seed_dropout(1)
            np.testing.assert_array_equal(y, layer.forward(x))
            np.testing.assert_array_equal(dx, layer.backward(y))
        for shape, dtype in (((6, 2), "f4"), ((3,), "f4"), ((2, 2, 2, 3), "f4"), ((), "f4"), ((6, 3), "f8")):
            x = np.zeros(shape, dtype)
            with pytest.raises(ValueError) as wanted:
                layer.forward(x)
            with pytest.raises(ValueError) as got:
                layer(x)
            assert str(got.value) == str(wanted.value)
    with pytest.raises(ValueError, match="x has 8 tokens, more than context_length 7"):
        layers[1](np.zeros((8, 3), np.float32))


def test_lists_become_float32():
    layer = nn.MultiHeadAttention(3, 4, num_heads=2, seed=4)
    x = INPUTS.tolist()
    y = layer(INPUTS)
    dx = layer.backward(y)
    np.testing.assert_array_equal(layer(x), y)
    np.testing.assert_array_equal(layer(INPUTS, x, x), y)
    np.testing.assert_array_equal(layer.steps(x)["output"], y)
    assert layer([[1, 2, 3]]).dtype == np.float32
    layer(x)
    np.testing.assert_array_equal(layer.backward(y.tolist()), dx)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda m: nn.SelfAttention(0, 2), "d_in"),
        (lambda m: nn.SelfAttention(2, 2, weight_layout="rows"), "weight_layout"),
        (lambda m: nn.MultiHeadAttention(4, 4, num_heads=3), "num_heads"),
        (lambda m: nn.MultiHeadAttention(4, 4, dropout=1.5), "dropout"),
        (lambda m: m(None), "None"),
        (lambda m: m(INPUTS.astype(np.float64)), "f32"),
        (lambda m: m(INPUTS[:, :2]), "seqlen, 3"),
        (lambda m: m(INPUTS, INPUTS), "value"),
        (lambda m: m(INPUTS, mask=np.ones(4, bool)), "mask"),
        (lambda m: m(INPUTS, return_weights="some"), "^return_weights: expected True, False, 'per_head'.*got 'some'"),
        (lambda m: m([["a", "b", "c"]]), "^query: "),
        (lambda m: m.load_state_dict({}), "missing W_query.weight"),
        (lambda m: m.load_state_dict({**m.state_dict(), "W_key.weight": np.zeros(3)}), "W_key.weight"),
        (lambda m: (m(INPUTS), m.backward(INPUTS)), "dout"),
    ],
)
def test_refusals_name_the_argument(call, text):
    with pytest.raises(ValueError, match=text):
        call(nn.SelfAttention(3, 2, seed=0))
