"""saccade.torch.flex_attention keeps PyTorch's rules: integers, gradients, changes in place, blocks, modes, results."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

from saccade.torch import _flex, flex_attention  # noqa: E402
from test_torch_flex import BATCH, HEADS, SEQLEN, block_mask_of, dense, finite_sum, operands  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, BlockMask, create_block_mask  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention as of_pytorch  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

flex = functools.partial(flex_attention, enable_gqa=True)


def program_of(score_mod, mask_mod, q, k):
    return _flex._traced(score_mod, mask_mod, None, q, k)


def agree(score_mod, mask_mod=None, inputs=(), dtype=torch.float64, reference=None):
    """Results and gradients are those of dense attention."""
    q, k, v = operands(dtype=dtype)
    got = flex(q, k, v, score_mod, block_mask_of(mask_mod), return_lse=True)
    wanted = dense(q, k, v, reference or score_mod, mask_mod)
    torch.testing.assert_close(got, wanted)
    inputs = (q, k, v, *inputs)
    for a, b in zip(*(torch.autograd.grad(finite_sum(*x), inputs) for x in (got, wanted))):
        torch.testing.assert_close(a, b)


# ---- numbers ----

LARGE = 2**60 + torch.arange(SEQLEN)
INT32 = torch.arange(SEQLEN, dtype=torch.int32)
BYTES = torch.arange(SEQLEN, dtype=torch.uint8)

INTEGERS = {
    "beyond_2_to_53": (None, lambda b, h, q, k: LARGE[q] - LARGE[k] > 3),
    "equal_beyond_2_to_53": (None, lambda b, h, q, k: (LARGE[q] == LARGE[k]) | (k == 0)),
    "constant_beyond_2_to_53": (None, lambda b, h, q, k: (q + 2**60) - (k + 2**60) >= 1),
    "int32_wraps": (lambda s, b, h, q, k: s + (INT32[q] * 100_000_000) * 1e-10, None),
    "uint8_wraps": (lambda s, b, h, q, k: s + (BYTES[q] + BYTES[k]) * 0.01, None),
    "int64_wraps": (lambda s, b, h, q, k: s + torch.where((q + 1) * 2**62 < 0, 1.0, 2.0), None),
    "to_int32": (lambda s, b, h, q, k: s + (q * 2**30).to(torch.int32) * 1e-10, None),
    "quotients": (lambda s, b, h, q, k: s + ((q - k) // 7) * 0.1 + ((q - k) % -5) * 0.01, None),
    "quotient_of_floats": (lambda s, b, h, q, k: s + ((q * 6.0) // 0.1) * 0.001, None),
    "power_of_two": (None, lambda b, h, q, k: (q // 2 ** (k % 8)) % 2 == 0),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_those_of_pytorch(name):
    agree(*INTEGERS[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nan_goes_through(dtype):
    table = torch.zeros(SEQLEN, dtype=dtype)
    table[7] = torch.nan
    for function in (torch.relu, lambda x: x.clamp(min=-1), lambda x: torch.maximum(x, x * 0 + 1)):
        q, k, v = (x.detach() for x in operands(dtype=dtype))

        def score_mod(s, b, h, q, k, function=function):
            return function(s + torch.where(q == 3, table[k], 0.0))

        o = flex(q, k, v, score_mod)
        assert o[:, :, 3].isnan().all() and not o[:, :, 4:].isnan().any()


# ---- gradients ----


def test_no_grad_within_a_function():
    factors = torch.rand(HEADS, dtype=torch.float64, requires_grad=True)

    def score_mod(score, b, h, q, k):
        with torch.no_grad():
            constant = score * 0.5 + factors[h] + factors.mean()
        return score * factors[h] - constant

    q, k, v = operands()
    assert program_of(score_mod, None, q, k).trace.instructions  # no tiles: these would lose the gradient of factors
    agree(score_mod, None, (factors,))


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_gradients_at_bounds(low):
    """The gradient of a score on the bound of clamp is what this version of PyTorch makes of it."""
    q, k, v = operands()
    q = torch.zeros_like(q, requires_grad=True)
    for function in (
        lambda s, b, h, q, k: (s + (k % 3 - 1)).clamp(low, 1) * (1 + k % 7),
        lambda s, b, h, q, k: (s + (k % 3 - 1)).clamp(torch.tensor(low), torch.tensor(1.0)) * (1 + k % 7),
        lambda s, b, h, q, k: torch.relu(s + (k % 3 - 1)) * (1 + k % 7),
        lambda s, b, h, q, k: torch.maximum(s, s * 3) * (1 + k % 7),
    ):
        got, wanted = flex(q, k, v, function, return_lse=True), dense(q, k, v, function, None)
        torch.testing.assert_close(*(torch.autograd.grad(finite_sum(*x), q)[0] for x in (got, wanted)))


def test_powers_of_0():
    """PyTorch's gradient of an exponent is 0 where the base is 0, and that of a base where the exponent is 0."""
    exponent = torch.tensor([2.0, 0.5, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    base = torch.tensor([0.0, 0.5, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    agree(lambda s, b, h, q, k: s + ((q - k).abs() / 64.0).double() ** exponent[h], None, (exponent,))
    agree(lambda s, b, h, q, k: s + base[h] ** (k % 3) + base[h] ** 0, None, (base,))


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("traceable", [False, True])
def test_tensors_changed_in_place_are_noticed(traceable, learns):
    if learns and not traceable:
        return
    leaf = torch.rand(SEQLEN, dtype=torch.float64, requires_grad=learns)
    table = leaf * 1

    def score_mod(score, b, h, q, k):
        return score * table[k] if traceable else torch.stack((score, table[k])).prod()

    q, k, v = operands()
    o = flex(q, k, v, score_mod)
    with torch.no_grad():
        table.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


@pytest.mark.parametrize("traceable", [False, True])
def test_tangents(traceable):
    q, k, v = (x.detach() for x in operands())
    with forward_ad.dual_level():
        factor = forward_ad.make_dual(torch.ones(HEADS, dtype=torch.float64), torch.ones(HEADS, dtype=torch.float64))
        cap = forward_ad.make_dual(torch.tensor(3.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))

        def scaled(s, b, h, q, k):
            return s * factor[h] if traceable else torch.stack((s, factor[h])).prod()

        for score_mod in (scaled, lambda s, b, h, q, k: cap * torch.tanh(s / cap)):
            with pytest.raises(NotImplementedError, match="forward-mode tangents are supported only where"):
                flex(q, k, v, score_mod)
        moved = forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(NotImplementedError, match="forward-mode tangents are supported only where"):
            flex(moved, k, v, lambda s, b, h, q, k: s * s)
        learnt = q.clone().requires_grad_()
        o = flex(learnt, k, v, lambda s, b, h, i, j: s / (1 + (i - j).abs()))
        with pytest.raises(NotImplementedError, match="forward-mode tangents are supported only where"):
            torch.autograd.grad(o, learnt, forward_ad.make_dual(o.detach(), o.detach()))  # a gradient of a dual number
        slopes = forward_ad.make_dual(*torch.ones(2, HEADS, dtype=torch.float64).unbind())

        def alibi(s, b, h, q, k):
            return s - slopes[h] * (q - k).abs()

        got = forward_ad.unpack_dual(flex(moved, k, v, alibi)).tangent
        wanted = forward_ad.unpack_dual(dense(moved, k, v, alibi, None)[0]).tangent
        torch.testing.assert_close(got, wanted)


# ---- blocks ----


def untraceable(mask_mod):
    return lambda b, h, q, k: torch.stack((mask_mod(b, h, q, k), mask_mod(b, h, q, k))).any()


@pytest.mark.parametrize("traceable", [False, True])
def test_full_blocks_are_full(traceable):
    """Where a BlockMask calls a block full, its mask_mod is not asked."""

    def causal(b, h, q, k):
        return q >= k

    blocks = torch.tensor([[True, False, False], [False, True, False], [True, False, True]])
    counts = blocks.sum(-1, dtype=torch.int32)[None, None]
    indices = blocks.int().argsort(dim=-1, descending=True, stable=True).int()[None, None]
    mask_mod = causal if traceable else untraceable(causal)
    lists = (torch.zeros_like(counts), indices, counts, indices)
    mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=50, mask_mod=mask_mod)
    q, k, v = operands()
    wanted = dense(q, k, v, None, lambda b, h, q, k: blocks[q // 50, k // 50])
    torch.testing.assert_close(flex(q, k, v, None, mask, return_lse=True), wanted)


@pytest.mark.parametrize("traceable", [False, True])
@pytest.mark.parametrize("size", [16, 128])
def test_masks_for_longer_tensors(traceable, size):
    def mask_mod(b, h, q, k):
        return (q >= k) & ((q + k) % 3 != 1)

    mask = create_block_mask(
        mask_mod if traceable else untraceable(mask_mod), None, HEADS, 300, 420, device="cpu", BLOCK_SIZE=size
    )
    q, k, v = operands()
    torch.testing.assert_close(flex(q, k, v, None, mask, return_lse=True), dense(q, k, v, None, mask_mod))


NUMBERS = torch.arange(0)


@pytest.mark.parametrize("seqlen_q, seqlen_k", [(0, 0), (0, 5), (5, 0)])
def test_no_tokens(seqlen_q, seqlen_k):
    q, k, v = (torch.randn(2, 2, n, 8, requires_grad=True) for n in (seqlen_q, seqlen_k, seqlen_k))
    functions = (
        (None, lambda b, h, q, k: NUMBERS[q] == NUMBERS[k]),
        (lambda s, b, h, q, k: s + NUMBERS[q], None),
        (lambda s, b, h, q, k: torch.stack((s, s)).sum(), None),
    )
    for score_mod, mask_mod in functions:
        mask = None if mask_mod is None else mask_for_nothing(mask_mod)
        o, lse = flex(q, k, v, score_mod, mask, return_lse=True)
        assert o.shape == q.shape and not o.any() and bool((lse == -torch.inf).all())
        o.sum().backward()


def mask_for_nothing(mask_mod):
    counts = torch.zeros(1, 1, 1, dtype=torch.int32)
    return BlockMask.from_kv_blocks(counts, counts[..., None], mask_mod=mask_mod)


# ---- what a tracer meets ----

METHODS = {
    "type": lambda s: s * (2.0 if s.type() else 1.0),
    "format": lambda s: s * (2.0 if f"{s.dtype}" else 1.0),
    "is_complex": lambda s: s * (1.0 if s.is_complex() else 2.0),
    "dtype": lambda s: s * (2.0 if s.dtype.is_floating_point and s.ndim == 0 and s.shape == () else 1.0),
    "new_tensor": lambda s: s * s.new_tensor(2.0),
    "unsqueeze": lambda s: (s[None] * 2).squeeze(0),
    "expm1": lambda s: (s * 2).expm1().log1p(),
    "stack": lambda s: torch.stack((s, s)).sum(),
    "einsum": lambda s: torch.einsum(",->", s, torch.tensor(2.0, dtype=s.dtype)),
    "to_int": lambda s: s * 2 + s.new_zeros(()).long() + (s * 0).int(),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_tensors(name):
    agree(lambda s, *_: METHODS[name](s), reference=lambda s, *_: s * 2)


def test_data_dependent_functions_are_errors_of_pytorch():
    q, k, v = operands(20)
    with pytest.raises(RuntimeError):
        flex(q, k, v, lambda s, b, h, q, k: s if bool(q > k) else s * 2)


# ---- modes and results ----


@pytest.mark.parametrize("score_mod", [lambda s, *_: s * s, lambda s, *_: torch.stack((s, s)).sum(), None])
def test_operations_are_counted(score_mod):
    q, k, v = operands()
    with FlopCounterMode(display=False) as mode:
        o = flex(q, k, v, score_mod)
        forward = mode.get_total_flops()
        o.sum().backward()
    pairs = BATCH * HEADS * SEQLEN * SEQLEN
    assert forward == 2 * pairs * (8 + 6)
    assert mode.get_total_flops() - forward == 2 * pairs * (3 * 8 + 2 * 6)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled(fullgraph):
    table = torch.rand(SEQLEN, dtype=torch.float64, requires_grad=True)
    mask = block_mask_of(lambda b, h, q, k: q >= k)

    def layer(q, k, v):
        return flex_attention(q.sin(), k, v, lambda s, b, h, q, k: s * table[k], mask, enable_gqa=True).cos()

    q, k, v = operands()
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=fullgraph, backend="aot_eager")
    if fullgraph:
        with pytest.raises(Exception, match="compiler.disable"):
            compiled(q, k, v)
        return
    got, wanted = compiled(q, k, v), layer(q, k, v)
    torch.testing.assert_close(got, wanted)
    for a, b in zip(*(torch.autograd.grad(o.sum(), (q, k, v, table)) for o in (got, wanted))):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("traceable", [False, True])
def test_auxiliary_results(traceable, dtype):
    """As PyTorch's, which has no max_scores on the CPU."""
    q, k, v = operands(dtype=dtype)

    def softcap(s, b, h, q, k):
        s = 3 * torch.tanh(s / 3)
        return s if traceable else torch.stack((s, s)).amax()

    def mask_mod(b, h, q, k):
        return (q >= k) & (q != 3)

    def reference(s, b, h, q, k):
        return 3 * torch.tanh(s / 3)

    mask = block_mask_of(mask_mod)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k.repeat_interleave(2, 1)) * 8**-0.5
    for score_mod in (None, softcap):
        o, lse = dense(q, k, v, score_mod and reference, mask_mod)
        modified = scores if score_mod is None else 3 * torch.tanh(scores / 3)
        rows = torch.arange(SEQLEN)
        largest = modified.masked_fill((rows[:, None] < rows) | (rows == 3)[:, None], -torch.inf).amax(-1)
        for request in (AuxRequest(), AuxRequest(lse=True), AuxRequest(max_scores=True), AuxRequest(True, True)):
            got, aux = flex(q, k, v, score_mod, mask, return_aux=request)
            assert type(aux) is AuxOutput
            wanted = AuxOutput(lse if request.lse else None, largest if request.max_scores else None)
            torch.testing.assert_close((got, *aux), (o, *wanted))
    assert aux.lse.requires_grad and not aux.max_scores.requires_grad
    torch.testing.assert_close(*(torch.autograd.grad(finite_sum(*x), q)[0] for x in ((got, aux.lse), (o, lse))))


def test_lse_is_requested_as_from_pytorch():
    q, k, v = (x.detach() for x in operands(kv_heads=HEADS))
    v = torch.cat((v, v[..., :2]), -1)
    got, wanted = (f(q, k, v, return_aux=AuxRequest(lse=True)) for f in (flex_attention, of_pytorch))
    assert type(got[1]) is type(wanted[1])
    torch.testing.assert_close((got[0], *got[1]), (wanted[0], *wanted[1]))
