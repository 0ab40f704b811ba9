"""saccade.torch.flex_attention: the gallery against dense attention, gradients, blocks, what cannot be traced."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

from flex_gallery import gallery  # noqa: E402
from saccade.torch import _flex, flex_attention  # noqa: E402
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention as of_pytorch  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

BATCH, HEADS, KV_HEADS, SEQLEN = 2, 4, 2, 150
GALLERY = gallery(SEQLEN, HEADS, BATCH)


def operands(seqlen=SEQLEN, kv_heads=KV_HEADS, dtype=torch.float64):
    torch.manual_seed(0)
    shapes = ((BATCH, HEADS, seqlen, 8), (BATCH, kv_heads, seqlen, 8), (BATCH, kv_heads, seqlen, 6))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def block_mask_of(mask_mod, seqlen=SEQLEN, size=32):
    if mask_mod is None:
        return None
    return create_block_mask(mask_mod, BATCH, HEADS, seqlen, seqlen, device="cpu", BLOCK_SIZE=size)


def mask_of_whole_blocks(mask_mod):
    """A mask whose mask_mod has not been called."""
    counts, indices = torch.ones(1, 1, 1, dtype=torch.int32), torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    return BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=SEQLEN, mask_mod=mask_mod)


def dense(q, k, v, score_mod, mask_mod):
    """Output and lse, with a matrix of all scores."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    axes = [torch.arange(n).view([-1 if i == axis else 1 for i in range(4)]) for axis, n in enumerate(q.shape[:3])]
    places = (*axes, torch.arange(k.shape[2]).view(1, 1, 1, -1))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if mask_mod is not None:
        scores = torch.where(mask_mod(*places), scores, -torch.inf)
    lse = scores.logsumexp(-1)
    return (scores - lse.where(lse.isfinite(), 0)[..., None]).exp() @ v, lse


def finite_sum(o, lse):
    torch.manual_seed(1)
    return (o * torch.randn(o.shape, dtype=o.dtype)).sum() + torch.where(lse.isfinite(), lse, 0).square().sum()


@pytest.mark.parametrize("name", GALLERY)
def test_gallery(name):
    score_mod, mask_mod, is_options = GALLERY[name]
    q, k, v = operands()
    mask = block_mask_of(mask_mod)
    got = flex_attention(q, k, v, score_mod, mask, enable_gqa=True, return_lse=True)
    wanted = dense(q, k, v, score_mod, mask_mod)
    torch.testing.assert_close(got, wanted)
    gradients = (torch.autograd.grad(finite_sum(*x), (q, k, v)) for x in (got, wanted))
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b)
    blocks = None if mask is None else _flex._blocks_of(mask, q, k)
    found = _flex._traced(score_mod, mask_mod, blocks, q, k)
    assert found.is_options_only and found.blocks is None if is_options else not found.is_options_only


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["sliding_window", "documents", "neighbourhood", "distance_decay"])
def test_is_pytorchs(name, dtype):
    score_mod, mask_mod, _ = GALLERY[name]
    q, k, v = (x.detach() for x in operands(kv_heads=HEADS, dtype=dtype))
    v = torch.cat((v, v[..., :2]), -1)
    got = flex_attention(q, k, v, score_mod, block_mask_of(mask_mod))
    wanted = of_pytorch(q, k, v, score_mod, block_mask_of(mask_mod))
    assert got.dtype is dtype
    tolerance = 16 * torch.finfo(dtype).eps
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


THIRD, FLAGS = torch.arange(SEQLEN) % 3, (torch.arange(SEQLEN) // 14) % 2 == 0
BYTES = torch.tensor([5, 4, 5, 2, 5, 0], dtype=torch.uint8).repeat_interleave(25)
STEPS, SLOPE, FACTOR = torch.tensor([2, 1, 3, 4]), torch.tensor(0.1, dtype=torch.float64), torch.tensor(2.0)


def seen_by_causal(b, h, q, k):
    return q >= k


TRAPS = {
    "hides_in_full_blocks": (lambda s, b, h, q, k: torch.where(THIRD[k] != 0, s, -float("inf")), seen_by_causal),
    "exponent_of_head": (lambda s, b, h, q, k: s + ((q - k).abs().double() / 90.0) ** (h + 2), None),
    "where_of_tensor": (lambda s, b, h, q, k: s.where(q >= k, -100.0), None),
    "tanh_used_twice": (lambda s, b, h, q, k: 3 * torch.tanh(s / 3) + torch.tanh(s / 3), None),
    "other_cap": (lambda s, b, h, q, k: 5 * torch.tanh(s / 3), None),
    "square_of_inside": (lambda s, b, h, q, k: 3 * torch.tanh(s / 3) + (s / 3) ** 2, None),
    "sum_of_bools": (lambda s, b, h, q, k: s + ((q >= k) + (q % 2 == 0)) * 1.5, None),
    "documents_of_bool": (None, lambda b, h, q, k: FLAGS[q] == FLAGS[k]),
    "documents_of_bytes": (None, lambda b, h, q, k: BYTES[q] == BYTES[k]),
    "detached": (lambda s, b, h, q, k: s * 2 - s.detach(), None),
    "new_tensor": (lambda s, b, h, q, k: s + torch.full_like(s, 2.0) * h, None),
    "steps_of_heads": (None, lambda b, h, q, k: (q - k) % STEPS[h] == 0),
    "number_as_slope": (lambda s, b, h, q, k: s + (k - q) * SLOPE, seen_by_causal),
    "infinite_window": (None, lambda b, h, q, k: (q - k <= float("inf")) & (q >= k)),
    "in_place": (lambda s, b, h, q, k: s.add_(k * 0.01), None),
}


@pytest.mark.parametrize("name", TRAPS)
@pytest.mark.parametrize("size", [16, 256])
def test_what_is_easy_to_get_wrong(name, size):
    score_mod, mask_mod = TRAPS[name]
    q, k, v = operands()
    got = flex_attention(q, k, v, score_mod, block_mask_of(mask_mod, size=size), enable_gqa=True, return_lse=True)
    wanted = dense(q, k, v, None if score_mod is None else lambda s, *places: score_mod(s * 1, *places), mask_mod)
    torch.testing.assert_close(got, wanted)
    for a, b in zip(*(torch.autograd.grad(finite_sum(*x), (q, k, v)) for x in (got, wanted))):
        torch.testing.assert_close(a, b)


def test_no_gradient_is_lost():
    """Where a function cannot be traced, and where gradients would have to be differentiated again."""
    module = torch.nn.Linear(3, 3)
    q, k, v = operands(40)
    with pytest.raises(ValueError, match="have gradients only if it can be traced"):
        flex_attention(q, k, v, lambda s, b, h, q, k: s * torch.stack((module.weight[0, 0], s)).sum(), enable_gqa=True)
    o = flex_attention(q, k, v, lambda s, b, h, q, k: s * 1.5, enable_gqa=True)
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(o.sum(), q, create_graph=True)


def test_tensors_of_functions_learn():
    torch.manual_seed(0)
    table, factors = (torch.randn(n, HEADS, dtype=torch.float64, requires_grad=True) for n in (2 * SEQLEN, BATCH))
    bias = torch.randn(HEADS, 1, dtype=torch.float32, requires_grad=True)

    def score_mod(score, b, h, q, k):
        return score * factors[b, h].exp() + table[q - k + SEQLEN, h] * bias[h, 0] + table[0, 0] ** 2

    q, k, v = operands()
    mask_mod = GALLERY["prefix"][1]
    inputs = (q, k, v, table, factors, bias)
    results = (
        flex_attention(q, k, v, score_mod, block_mask_of(mask_mod), enable_gqa=True, return_lse=True),
        dense(q, k, v, score_mod, mask_mod),
    )
    for a, b in zip(*(torch.autograd.grad(finite_sum(*x), inputs) for x in results)):
        torch.testing.assert_close(a, b)


def test_dispatch_modes_see_gradients_of_what_cannot_be_traced():
    q, k, v = operands(40)
    o = flex_attention(q, k, v, lambda s, b, h, q, k: torch.stack((s, s * q)).mean(), enable_gqa=True)
    wanted = torch.autograd.grad(o.sum(), (q, k, v), retain_graph=True)
    with FlopCounterMode(display=False):
        torch.testing.assert_close(torch.autograd.grad(o.sum(), (q, k, v)), wanted)


@pytest.mark.parametrize("traceable", [True, False])
def test_batches_of_gradients(traceable):
    table, bias = (torch.randn(n, HEADS, dtype=dtype) for n, dtype in ((80, torch.float64), (1, torch.float32)))
    table, bias = (x.requires_grad_(traceable) for x in (table, bias))

    def score_mod(score, b, h, q, k):
        score = score if traceable else torch.stack((score, score)).mean()
        return score * table[q - k + 40, h].exp() + bias[0, h]

    q, k, v = operands(40)
    inputs = (q, k, v, table, bias) if traceable else (q, k, v)
    o, lse = flex_attention(q, k, v, score_mod, enable_gqa=True, return_lse=True)
    douts, dlses = torch.randn(3, *o.shape, dtype=o.dtype), torch.randn(3, *lse.shape, dtype=o.dtype)
    got = torch.autograd.grad((o, lse), inputs, (douts, dlses), is_grads_batched=True, retain_graph=True)
    for i in range(3):
        one = torch.autograd.grad((o, lse), inputs, (douts[i], dlses[i]), retain_graph=True)
        for a, b in zip(got, one):
            torch.testing.assert_close(a[i], b)


def test_a_tensor_of_biases_learns():
    bias = torch.randn(HEADS, SEQLEN + 3, SEQLEN, dtype=torch.float64, requires_grad=True)
    q, k, v = operands()

    def score_mod(score, b, h, q, k):
        return score + bias[h, q, k]

    results = (flex_attention(q, k, v, score_mod, enable_gqa=True, return_lse=True), dense(q, k, v, score_mod, None))
    torch.testing.assert_close(*(torch.autograd.grad(finite_sum(*x), bias)[0] for x in results))


def test_what_cannot_be_traced():
    def score_mod(score, b, h, q, k):
        two = torch.stack((score, score * 2))
        return torch.where(q % 3 == k % 3, two.sum(), score)

    def mask_mod(b, h, q, k):
        return torch.stack((q >= k, q == 0)).any()

    q, k, v = operands(40)
    got = flex_attention(q, k, v, score_mod, block_mask_of(mask_mod, 40), enable_gqa=True, return_lse=True)
    wanted = dense(
        q, k, v, lambda s, b, h, q, k: torch.where(q % 3 == k % 3, 3 * s, s), lambda b, h, q, k: (q >= k) | (q == 0)
    )
    torch.testing.assert_close(got, wanted)
    for a, b in zip(*(torch.autograd.grad(finite_sum(*x), (q, k, v)) for x in (got, wanted))):
        torch.testing.assert_close(a, b)
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="have gradients only if it can be traced, but it calls stack"):
        flex_attention(q, k, v, lambda s, b, h, q, k: torch.stack((s, factor)).sum(), enable_gqa=True)


@pytest.mark.parametrize("full", [False, True])
def test_blocks_hide_what_the_mask_would_show(full):
    """A BlockMask may list fewer blocks than its mask_mod shows, and call blocks full where mask_mod hides keys."""

    def causal(b, h, q, k):
        return q >= k

    blocks = torch.tensor([[True, False, False], [False, True, False], [True, False, True]])
    counts = blocks.sum(-1, dtype=torch.int32)[None, None]
    indices = blocks.int().argsort(dim=-1, descending=True, stable=True).int()[None, None]
    none = torch.zeros_like(counts)
    lists = (none, indices, counts, indices) if full else (counts, indices)
    mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=50, mask_mod=causal)
    q, k, v = operands()
    got = flex_attention(q, k, v, None, mask, enable_gqa=True, return_lse=True)
    wanted = dense(q, k, v, None, lambda b, h, q, k: blocks[q // 50, k // 50] & ((q >= k) | full))
    torch.testing.assert_close(got, wanted)


def test_other_lengths_and_a_batch_of_keys_for_all():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 70, 8), torch.randn(1, 2, 200, 8), torch.randn(1, 2, 200, 8)
    mask = create_block_mask(lambda b, h, q, k: k <= q + 130, None, None, 70, 200, device="cpu", BLOCK_SIZE=(16, 32))
    got = flex_attention(q, k, v, None, mask)
    wanted = dense(q, k.expand(3, -1, -1, -1), v.expand(3, -1, -1, -1), None, lambda b, h, q, k: k <= q + 130)[0]
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"query": torch.randn(4, 150, 8)}, "query: expected 4 dimensions"),
        ({"enable_gqa": False}, "key: expected 4 heads as query has, got 2; or enable_gqa=True"),
        ({"block_mask": torch.ones(150, 150)}, "block_mask: expected a BlockMask, got a Tensor"),
        (
            {"block_mask": create_block_mask(lambda b, h, q, k: q >= k, None, None, 64, 64, device="cpu")},
            "one for at least 150 rows and 150 keys, got one for 64 and 64",
        ),
        ({"score_mod": 3}, "score_mod: expected a function, got a int"),
        (
            {"score_mod": lambda s, b, h, q, k: None},
            "score_mod: expected a function that returns a tensor .* a NoneType",
        ),
        (
            {"score_mod": lambda s, b, h, q, k: torch.zeros(2)},
            "returns a tensor without dimensions, got one of shape .2",
        ),
        ({"block_mask": False}, "block_mask: expected a BlockMask, got a bool"),
        (
            {"block_mask": mask_of_whole_blocks(lambda b, h, q, k: q - k)},
            "mask_mod: expected a function that returns bool",
        ),
        ({"return_aux": 3}, "return_aux: expected an AuxRequest, got a int"),
        ({"return_aux": AuxRequest(lse=True), "return_lse": True}, "return_aux: expected return_aux=.* alone"),
        ({"score_mod": lambda s, b, h, q, k: s + torch.zeros(3)[k]}, "index .* is beyond dimension 0 of .* length 3"),
        ({"value": torch.randn(2, 2, 149, 6)}, "v has seqlen 149"),
    ],
)
def test_wrong_arguments_are_named(change, text):
    q, k, v = (x.detach().float() for x in operands())
    arguments = {"query": q, "key": k, "value": v, "enable_gqa": True, **change}
    with pytest.raises(ValueError, match=text):
        flex_attention(**arguments)


def test_memory_is_linear():
    """Two matrices of all scores, forward and backward, would have 1 GiB."""
    program = """
import resource, torch
from saccade.torch import flex_attention
torch.set_num_threads(1)
q, k, v = (torch.randn(1, 2, 8192, 8, requires_grad=True) for _ in range(3))
def both(rows):
    parts = [x[:, :, :rows] for x in (q, k, v)]
    o = flex_attention(*parts, lambda s, b, h, q, k: s * torch.exp(-(q - k).abs() / 100))
    torch.autograd.grad(o.square().sum(), (q, k, v))
both(256)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
both(8192)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = int(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
    assert grown < 128 * 1024
