"""The C interface, called by ctypes alone, beside this package. SACCADE_LIBRARY names the shared library."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import random

import numpy as np
import pytest
import saccade

LIBRARY = os.environ.get("SACCADE_LIBRARY")
pytestmark = pytest.mark.skipif(not LIBRARY, reason="SACCADE_LIBRARY names no shared library")

CLIENT = pathlib.Path(__file__).parents[2] / "examples" / "python" / "ctypes_client.py"
specification = importlib.util.spec_from_file_location("ctypes_client", CLIENT)
client = importlib.util.module_from_spec(specification)
specification.loader.exec_module(client)
Tensor = client.Tensor


@pytest.fixture(scope="module")
def library():
    return client.Saccade(LIBRARY)


class Problem:
    """Random tensors and options: as keywords of Python, and as options of C."""

    def __init__(self, seed: int) -> None:
        self.draw, self.numbers = random.Random(seed), np.random.default_rng(seed)
        pick = self.draw.choice
        self.kv_heads, self.batch = pick([1, 2]), pick([1, 2, 3])
        self.heads = self.kv_heads * pick([1, 3])
        self.seqlen_q, self.seqlen_k = pick([1, 5, 17, 64]), pick([1, 7, 33, 130])
        self.dim, self.dim_v = pick([1, 8, 33, 64]), pick([3, 16, 64])
        self.is_bshd = pick([False, True])
        self.dtype = pick([np.float32, np.float32, np.float64, np.float16])
        self.q = self.tensor(self.heads, self.seqlen_q, self.dim)
        self.k = self.tensor(self.kv_heads, self.seqlen_k, self.dim)
        self.v = self.tensor(self.kv_heads, self.seqlen_k, self.dim_v)
        self.python, self.c = {}, {}
        self.both(layout="bshd" if self.is_bshd else "bhsd")
        for option in (self.positions, self.scores, self.masks, self.head_numbers, self.lengths, self.dropout):
            if pick([False, True]):
                option()

    def tensor(self, heads: int, seqlen: int, dim: int) -> np.ndarray:
        shape = (self.batch, seqlen, heads, 2 * dim) if self.is_bshd else (self.batch, heads, seqlen, 2 * dim)
        array = self.numbers.normal(size=shape).astype(self.dtype)
        return array[..., :dim] if self.draw.random() < 0.5 else np.ascontiguousarray(array[..., :dim])

    def both(self, **options) -> None:
        self.python |= options
        self.c |= options

    def positions(self) -> None:
        self.both(causal=self.draw.choice(["top_left", "bottom_right"]))
        left, right = self.draw.choice([-1, 4, 40]), self.draw.choice([-1, 2])
        self.python["window"] = (left, right)
        self.c |= {"window_left": left, "window_right": right}

    def scores(self) -> None:
        self.both(scale=self.draw.choice([0.3, -1.0]), softcap=self.draw.choice([0.0, 5.0]))

    def masks(self) -> None:
        shape = (self.heads, self.seqlen_q, self.seqlen_k)[self.draw.choice([0, 1]) :]
        mask = self.numbers.normal(size=shape).astype(np.float32)
        self.both(mask=mask if self.draw.random() < 0.5 else mask > -0.5)

    def head_numbers(self) -> None:
        self.both(sinks=self.numbers.normal(size=self.heads).astype(np.float32))
        self.both(alibi_slopes=self.numbers.random(self.heads).astype(np.float32))

    def lengths(self) -> None:
        self.both(kv_lengths=self.numbers.integers(0, self.seqlen_k + 1, self.batch))

    def dropout(self) -> None:
        seed = self.draw.choice([1, 2**62])
        self.python |= {"dropout_p": 0.3, "seed": seed}
        self.c |= {"dropout_p": 0.3, "dropout_seed": seed}

    @property
    def precision(self):
        return np.float64 if self.dtype == np.float64 else np.float32


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("seed", range(300))
def test_the_same_bits(library, seed):
    problem = Problem(seed)
    q, k, v = problem.q, problem.k, problem.v
    wanted, wanted_lse = saccade.attention(q, k, v, return_lse=True, **problem.python)
    o, lse = np.full_like(wanted, 7), np.full_like(wanted_lse, 7)
    options = library.options(**problem.c, lse=lse)
    library.call("attention", Tensor(q), Tensor(k), Tensor(v), Tensor(o), options)
    assert same_bits(o, wanted) and same_bits(lse, wanted_lse)
    library.call("decode", Tensor(q), Tensor(k), Tensor(v), Tensor(o), options)
    assert same_bits(o, saccade.decode(q, k, v, **problem.python))

    dout = np.ones_like(wanted)
    gradients = saccade.attention_backward(q, k, v, wanted, wanted_lse, dout, **problem.python)
    dq, dk, dv = (np.full_like(gradient, 7) for gradient in gradients[:3])
    library.call(
        "attention_backward",
        *(Tensor(x) for x in (q, k, v, wanted, wanted_lse, dout, dq, dk, dv)),
        library.options(**problem.c),
    )
    assert same_bits(dq, gradients.dq) and same_bits(dk, gradients.dk) and same_bits(dv, gradients.dv)


def test_a_score_modifier_of_the_client(library):
    class Tile(ctypes.Structure):
        _fields_ = [(f"place{i}", ctypes.c_int64) for i in range(2)]  # batch and head
        _fields_ += [(name, ctypes.c_int64) for name in ("first_row", "first_key", "rows", "keys", "offset")]
        _fields_ += [("scores", ctypes.POINTER(ctypes.c_float)), ("stride", ctypes.c_int64), ("dtype", ctypes.c_int32)]

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Tile))
    def add(_, pointer):
        tile = pointer.contents
        for i in range(tile.rows):
            for j in range(tile.keys):
                tile.scores[i * tile.stride + j] += 0.5 * (tile.first_key + j)

    q = np.random.default_rng(1).normal(size=(2, 5, 8)).astype(np.float32)
    o, options = np.empty_like(q), library.options()
    library.call("options_set_score_modifier", options, add, None, None, None)
    library.call("attention", Tensor(q), Tensor(q), Tensor(q), Tensor(o), options)
    wanted = saccade.attention(q, q, q, score_mod=lambda s, b, h, i, j: s + (0.5 * j).astype(s.dtype))
    assert same_bits(o, wanted)


def test_errors_have_a_message(library):
    q = np.zeros((2, 5, 8), np.float32)
    with pytest.raises(ValueError, match="attention has no option 'windw'"):
        library.options(windw=1)
    with pytest.raises(ValueError, match="head_dim"):
        library.call("attention", Tensor(q), Tensor(q[..., :4]), Tensor(q), Tensor(q), None)


def test_the_program(library, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["ctypes_client.py", LIBRARY])
    client.main()
    assert "[0.5302 0.6979 0.7049]" in capsys.readouterr().out
