"""saccade.torch.attention under torch.func: random calls of vmap, gradients of each sample, Jacobians."""

import os
import random

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

from saccade.torch import MultiheadAttention, _transforms, attention, attention_varlen  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

COUNT = int(os.environ.get("SACCADE_TEST_CASES", "150"))
assert COUNT > 0, "SACCADE_TEST_CASES=0 would compare nothing"


class RandomCalls:
    """Arguments of many calls at once, some the same in all of them, and the options of each."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        pick, chance = self.random.choice, self.chance
        self.count, self.rank = pick((1, 2, 3)), pick((2, 3, 4))
        bshd = self.rank > 2 and chance(0.4)
        heads, kv_heads = (1, 1) if self.rank == 2 else (4, pick((1, 2, 4)))
        batch, rows, keys = pick((1, 2)) if self.rank == 4 else 1, pick((1, 3, 6)), pick((1, 5, 9))
        self.names, self.tensors, self.dims = [], [], []

        def shape(heads, length, width):
            full = (batch, length, heads, width) if bshd else (batch, heads, length, width)
            return full[1:] if self.rank == 3 else (length, width) if self.rank == 2 else full

        width = pick((2, 8))
        self.add("q", shape(heads, rows, width), floating)
        self.add("k", shape(kv_heads, keys, width), floating)
        self.add("v", shape(kv_heads, keys, pick((2, 5))), floating)
        if chance(0.4):
            full = [n if chance(0.7) else 1 for n in (batch, heads, rows, keys)][-self.rank :]
            self.add("mask", full[self.random.randrange(len(full)) :], pick((floating, boolean)))
        if chance(0.3):
            self.add("alibi_slopes", (heads,) if self.rank < 4 or chance(0.5) else (batch, heads), torch.rand)
        if chance(0.3):
            self.add("sinks", (heads,), torch.randn)
        for name, low, high in (("kv_lengths", 0, keys + 1), ("kv_starts", 0, keys + 1), ("query_offset", -2, 5)):
            if chance(0.3):
                self.add(name, (batch,), lambda shape, low=low, high=high: torch.randint(low, high, shape))
        if all(dim is None for dim in self.dims):  # vmap wants one at least
            self.tensors[0] = torch.stack([self.tensors[0]] * self.count)
            self.dims[0] = 0
        self.options = {"layout": "bshd" if bshd else "bhsd", "softcap": pick((0.0, 2.0))}
        if chance(0.5):
            self.options["causal"] = "top_left" if "query_offset" in self.names else pick(("top_left", "bottom_right"))
        if chance(0.3):
            self.options["window"] = (pick((-1, 0, 2)), pick((-1, 1)))

    def chance(self, p):
        return self.random.random() < p

    def add(self, name, shape, draw):
        dim = self.random.randrange(len(shape) + 1) if self.chance(0.6) else None
        tensor = draw(tuple(shape)) if dim is None else draw((self.count, *shape)).movedim(0, dim)
        self.names.append(name)
        self.tensors.append(tensor)
        self.dims.append(dim)

    def one(self, i):
        return [x if dim is None else x.select(dim, i) for x, dim in zip(self.tensors, self.dims)]

    def call(self, q, k, v, *others):
        return attention(q, k, v, return_lse=True, **dict(zip(self.names[3:], others)), **self.options)

    def loss(self, *tensors):
        return self.call(*tensors)[0].square().sum()


def floating(shape):
    return torch.randn(shape, dtype=torch.float64)


def boolean(shape):
    return torch.rand(shape) < 0.8


def test_vmap_is_each_call_alone(monkeypatch):
    merged = []
    as_one = _transforms._Many.merged
    monkeypatch.setattr(_transforms._Many, "merged", lambda *a, **k: merged.append(as_one(*a, **k)) or merged[-1])
    for seed in range(COUNT):
        calls = RandomCalls(seed)
        got = torch.func.vmap(calls.call, tuple(calls.dims))(*calls.tensors)
        wanted = zip(*(calls.call(*calls.one(i)) for i in range(calls.count)))
        for a, b in zip(got, map(torch.stack, map(list, wanted))):
            torch.testing.assert_close(a, b, msg=lambda text, seed=seed: f"seed {seed}: {text}")
        each = torch.func.grad(calls.loss, argnums=(0, 1, 2))
        gradients = torch.func.vmap(each, tuple(calls.dims))(*calls.tensors)
        for i in range(calls.count):
            tensors = [x.clone() for x in calls.one(i)]
            leaves = [x.requires_grad_() for x in tensors[:3]]
            for a, b in zip(gradients, torch.autograd.grad(calls.loss(*tensors), leaves)):
                torch.testing.assert_close(a[i], b, msg=lambda text, seed=seed: f"seed {seed}: {text}")
    assert sum(x is not None for x in merged) > len(merged) / 2  # most are one call for all


def test_documents_and_dropout_are_called_one_by_one():
    q, k, v = (torch.randn(3, 12, heads, 8) for heads in (4, 2, 2))
    starts = torch.tensor([[0, 5, 12], [0, 12, 12], [0, 1, 12]])
    got = torch.func.vmap(attention_varlen)(q, k, v, starts)
    torch.testing.assert_close(got, torch.stack([attention_varlen(*one) for one in zip(q, k, v, starts)]))

    def dropped(q, k, v):
        return attention(q, k, v, layout="bshd", dropout_p=0.5, seed=3)

    torch.testing.assert_close(torch.func.vmap(dropped)(q, k, v), torch.stack([dropped(*x) for x in zip(q, k, v)]))


def test_jacobians_and_gradients_of_masks():
    q, k, v = (floating((2, 5, 4)) for _ in range(3))
    mask = floating((2, 1, 5))

    def function(q, mask):
        return attention(q, k, v, mask=mask, causal="top_left").sum((0, 2))

    for i in (0, 1):
        got = torch.func.jacrev(function, i)(q, mask)
        wanted = torch.autograd.functional.jacobian(function, (q, mask))[i]
        torch.testing.assert_close(got, wanted)


MASKS = {
    "none": {},
    "causal": {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1), "is_causal": True},
    "padding": {"key_padding_mask": torch.arange(5) >= torch.tensor([[5], [3]])},
    "numbers": {"attn_mask": floating((5, 5))},
}


def pair_of_modules(**options):
    """PyTorch's module and ours, with the same parameters, and an input."""
    torch.manual_seed(3)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64, **options)
    ours = MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours, floating((2, 5, 8))


def loss_of(module, options):
    """A loss of the output and, where they are returned, the weights, by the parameters and the input."""

    def loss(parameters, x):
        output, weights = torch.func.functional_call(module, parameters, (x, x, x), options)
        loss = (output * torch.arange(output.numel()).view_as(output).cos()).sum().tanh()
        if weights is not None:
            loss = loss + (weights * torch.arange(weights.numel()).view_as(weights).sin()).sum()
        return loss

    return loss


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("appends", [False, True])
@sdpa_kernel(SDPBackend.MATH)  # PyTorch's fused kernel has no tangents
def test_modules_are_transformed_as_those_of_pytorch(appends, mask, need_weights):
    """Gradients, tangents and second derivatives by the parameters, gradients of each sample."""
    theirs, ours, x = pair_of_modules(add_bias_kv=appends, add_zero_attn=appends)
    options = {**MASKS[mask], "need_weights": need_weights}
    if mask == "causal" and appends and not need_weights:
        options.pop("is_causal")  # PyTorch hides what is appended, and saccade does not
    parameters = dict(theirs.named_parameters())
    moves = {name: floating(p.shape) for name, p in parameters.items()}
    found = []
    for module in (theirs, ours):
        loss = loss_of(module, options)
        results = [torch.func.grad(loss, (0, 1))(parameters, x)]
        results.append(torch.func.jvp(loss, (parameters, x), (moves, x.cos())))
        results.append(torch.func.jvp(torch.func.grad(loss), (parameters, x), (moves, x.cos())))
        if mask != "padding":
            each = torch.func.vmap(torch.func.grad(loss), (None, 0))
            results.append(each(parameters, torch.stack((x, 2 * x, x.sin()))))
        found.append(results)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("need_weights", [True, False])
@sdpa_kernel(SDPBackend.MATH)
def test_hessians_of_modules(need_weights):
    theirs, ours, x = pair_of_modules()
    parameters = {name: p.detach() for name, p in theirs.named_parameters()}
    bias = parameters.pop("in_proj_bias")
    found = []
    for module in (theirs, ours):
        loss = loss_of(module, {"need_weights": need_weights})
        found.append(torch.func.hessian(lambda b, loss=loss: loss({**parameters, "in_proj_bias": b}, x))(bias))
    torch.testing.assert_close(found[1], found[0])
    assert found[0].any()


def test_dropped_weights_of_a_transformed_module_are_those_of_its_output():
    _, ours, x = pair_of_modules(dropout=0.5)
    value = torch.eye(5, 8, dtype=torch.float64).expand(2, 5, 8)
    with torch.no_grad():
        for weight in (ours.in_proj_weight[16:], ours.out_proj.weight):
            weight.copy_(torch.eye(8))

    def output(query):
        torch.manual_seed(5)
        output, weights = ours(query, x, value, average_attn_weights=False)
        return output.sum(), (output, weights)

    gradient, (found, weights) = torch.func.grad(output, has_aux=True)(x)
    assert gradient.any() and (weights == 0).any()
    by_head = torch.cat((weights[:, 0] @ value[..., :4], weights[:, 1] @ value[..., 4:]), -1)
    torch.testing.assert_close(found, by_head)
