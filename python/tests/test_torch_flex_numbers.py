"""The programs of saccade.torch.flex_attention compute what PyTorch computes: each function and operation, in each
type, for tensors indexed in each way."""

import functools
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade  # noqa: E402
from saccade.torch import _flex, flex_attention  # noqa: E402
from test_torch_flex import HEADS, SEQLEN, block_mask_of, dense, finite_sum, operands  # noqa: E402
from torch.nn.attention.flex_attention import AuxRequest  # noqa: E402

flex = functools.partial(flex_attention, enable_gqa=True)


def values_of(function, numbers):
    """function(number) as a program computes it: the largest of equal scores."""
    q, k = numbers[None, None, :, None], torch.ones(1, 1, 40, 1, dtype=numbers.dtype)
    aux = flex_attention(q, k, k, lambda s, b, h, q, k: function(s), scale=1.0, return_aux=AuxRequest(max_scores=True))
    return aux[1].max_scores[0, 0]


FUNCTIONS = {
    **{name: getattr(torch, name) for name in ("exp", "exp2", "log", "tanh", "sigmoid", "sin", "cos", "sqrt", "floor")},
    **{name: getattr(torch, name) for name in ("neg", "abs", "relu", "square", "reciprocal", "rsqrt")},
    "remainder": lambda x: x % 0.7,
    "floor_divide": lambda x: x // -0.3,
    "cube": lambda x: x**3,
    "power_of_two": lambda x: 2**x,
    "clamp": lambda x: x.clamp(-3, 2.5),
    "compared": lambda x: torch.where((x < 1) & (x != -2) | (x >= 3), x, 7),
    "through_f32": lambda x: (x.float() / 3).to(x.dtype),
}
EDGES = [0.0, 1.0, -1.0, -2.0, 1e-45, 1e-40, 1e-30, 1e30, 88.0, 88.8, 89.5, -87.5, -103.5, -110.0, 127.5, 128.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, dtype):
    torch.manual_seed(0)
    edges = torch.tensor([*EDGES, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    numbers = torch.cat((torch.randn(300, dtype=dtype), torch.randn(300, dtype=dtype) * 30, edges))
    got, wanted = values_of(FUNCTIONS[name], numbers), FUNCTIONS[name](numbers)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got, wanted, rtol=4 * eps, atol=1e-44, equal_nan=True)


OPERATIONS = {
    "add": lambda s, x: s + x,
    "subtract": lambda s, x: x - s,
    "multiply": lambda s, x: s * x,
    "divide": lambda s, x: s / (x.abs() + 1),
    "power": lambda s, x: (s.abs() + 0.1) ** x,
    "exp": lambda s, x: s + x.exp() - s.exp() / 8,
    "exp2": lambda s, x: s + x.exp2() - s.exp2() / 8,
    "log": lambda s, x: (s.abs() + 1).log() + (x.abs() + 1).log(),
    "sqrt": lambda s, x: (s.abs() + 1).sqrt() * (x.abs() + 1).rsqrt(),
    "sin": lambda s, x: s.sin() + x.cos(),
    "tanh": lambda s, x: s.tanh() * x.sigmoid() + x.tanh() * s.sigmoid(),
    "remainder": lambda s, x: (s + 3) % (x.abs() + 2),
    "minimum": lambda s, x: torch.minimum(s, x) + torch.maximum(x, s / 2),
    "where": lambda s, x: torch.where(s < x, s * 2, x * 3),
    "clamp": lambda s, x: s.clamp(-1, 0.5) + x.clamp(min=-0.3) + torch.relu(x) + x.abs(),
    "unused": lambda s, x: s * 2 + x.detach() + (x > 0) * 0.5 + x.floor(),
}
TABLES = {
    "head": ((HEADS,), lambda b, h, q, k: (h,)),
    "row": ((HEADS, SEQLEN), lambda b, h, q, k: (h, q)),
    "key": ((SEQLEN,), lambda b, h, q, k: (k,)),
    "distance": ((2 * SEQLEN, HEADS), lambda b, h, q, k: (q - k + SEQLEN, h)),
    "negative": ((2 * SEQLEN,), lambda b, h, q, k: (k - q,)),
    "pair": ((HEADS, SEQLEN, SEQLEN), lambda b, h, q, k: (h, q, k)),
    "other_pair": ((SEQLEN, SEQLEN), lambda b, h, q, k: (k, (q * 3) % SEQLEN)),
    "bucket": ((32,), lambda b, h, q, k: ((q * k) % 31,)),
    "pair_and_distance": ((20, SEQLEN), lambda b, h, q, k: ((q - k).abs().clamp(max=19), k)),
}


def agree(function, tables, dtype=torch.float64, mask_mod=None):
    q, k, v = operands(dtype=dtype)
    mask = block_mask_of(mask_mod)
    assert not isinstance(_flex._traced(function, mask_mod, None, q, k), Exception)
    got = flex(q, k, v, function, mask, return_lse=True)
    wanted = dense(q, k, v, function, mask_mod)
    tolerance = {} if dtype is torch.float64 else {"rtol": 2e-5, "atol": 2e-5}
    torch.testing.assert_close(got, wanted, **tolerance)
    inputs = (q, k, v, *tables)
    for a, b in zip(*(torch.autograd.grad(finite_sum(*x), inputs, allow_unused=True) for x in (got, wanted))):
        tolerance = {} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-5 * float(b.abs().max())}
        torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_and_their_gradients(name, dtype):
    torch.manual_seed(2)
    table = torch.randn(HEADS, SEQLEN, dtype=dtype, requires_grad=True)
    agree(lambda s, b, h, q, k: OPERATIONS[name](s, table[h, k]) + table[h, q], (table,), dtype)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_indices(name, transposed):
    torch.manual_seed(2)
    shape, indices = TABLES[name]
    table = torch.randn(shape[::-1] if transposed else shape, dtype=torch.float64, requires_grad=True)
    view = table.permute(*range(table.dim())[::-1]) if transposed else table
    agree(lambda s, *places: s * view[indices(*places)] + view[indices(*places)], (table,))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bfloat16])
def test_types_of_tensors(dtype):
    torch.manual_seed(2)
    table = torch.randint(0, 2, (2 * SEQLEN,)).to(dtype)
    factor = torch.rand(2, dtype=torch.float32, requires_grad=True)

    def score_mod(s, b, h, q, k):
        x = table[q - k + SEQLEN] + (table[k] if dtype is not torch.bool else 0)
        return s * torch.where(table[q] != 0, factor[b].double(), 1.5) + x * 0.25

    agree(score_mod, (factor,), mask_mod=lambda b, h, q, k: (table[k] == 1) | (q == k))


def test_bits_do_not_depend_on_the_instruction_set():
    """Programs compute without fused multiply-adds."""
    program = """
import torch
from test_torch_flex_numbers import values_of
torch.manual_seed(0)
print(values_of(lambda x: x.exp().log() * x.tanh() - x.sigmoid() / 3 + x * x, torch.randn(200) * 5).tolist())
"""
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            cwd=pathlib.Path(__file__).parent,
            env={**os.environ, "SACCADE_ISA": isa},
        ).stdout
        for isa in saccade.info()["available_isas"]
    ]
    assert len(set(found)) == 1
