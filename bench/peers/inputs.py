"""The inputs of a problem: the same for every peer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from .problem import Problem, visible_range

NUMPY_DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}
LOOP_SHAPE, LOOP_WIDTH = (6, 3), 4  # of the published walk-through: six words of three numbers


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a peer: arrays aligned to 64 bytes. ``problem`` describes the computation."""

    problem: Problem
    q: np.ndarray  # [batch, num_heads, seqlen_q, head_dim]; packed documents: one after the other, batch 1
    k: np.ndarray  # [batch, num_kv_heads, seqlen_k, head_dim]
    v: np.ndarray  # the same
    dout: np.ndarray | None  # like q, where gradients are wanted
    mask: np.ndarray | None  # [seqlen_q, seqlen_k], bool (True = attend) or f32 (added)
    lengths: np.ndarray | None  # int32 [batch]: how many keys count
    cu_seqlens: np.ndarray | None  # int32 [documents + 1]: where documents begin

    def hidden_rule(self) -> np.ndarray | None:
        """causal, window, documents and lengths as a mask, for peers without such arguments: bool (True = attend),
        [seqlen_q, seqlen_k] or, with lengths, [batch, 1, 1 or seqlen_q, seqlen_k]; None if they hide nothing."""
        p = self.problem
        rule = None
        if p.causal or p.has_window:
            first, end = visible_range(p)
            key = np.arange(p.seqlen_k)
            rule = (key >= first[:, None]) & (key < end[:, None])
        if self.cu_seqlens is not None:
            document = np.repeat(np.arange(p.documents), np.diff(self.cu_seqlens))
            same = document[:, None] == document
            rule = same if rule is None else rule & same
        if self.lengths is not None:
            counts = (np.arange(p.seqlen_k) < self.lengths[:, None])[:, None, None]
            rule = counts if rule is None else rule & counts
        return rule

    def whole_mask(self) -> np.ndarray | None:
        """:meth:`hidden_rule` and ``mask`` as one mask."""
        rule = self.hidden_rule()
        if rule is None or self.mask is None:
            return self.mask if rule is None else rule
        return rule & self.mask if self.mask.dtype == bool else np.where(rule, self.mask, np.float32(-np.inf))

    def documents(self) -> list[slice]:
        """The rows of each document."""
        return [slice(begin, end) for begin, end in zip(self.cu_seqlens[:-1], self.cu_seqlens[1:])]


@dataclasses.dataclass(frozen=True)
class ModuleInputs:
    """Inputs of torch.nn.MultiheadAttention. Queries, keys and values are parts of x @ in_weight.T + in_bias."""

    problem: Problem
    x: np.ndarray  # [batch, seqlen, width]
    dout: np.ndarray  # the same
    in_weight: np.ndarray  # [3 * width, width]
    in_bias: np.ndarray  # [3 * width]
    out_weight: np.ndarray  # [width, width]
    out_bias: np.ndarray  # [width]


@dataclasses.dataclass(frozen=True)
class LoopInputs:
    """Inputs of the published walk-through: x @ W_query and so on, one head, no mask."""

    problem: Problem
    x: np.ndarray  # [6, 3]
    W_query: np.ndarray  # [3, 4]
    W_key: np.ndarray
    W_value: np.ndarray


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes, as every library's own tensors do."""
    memory = np.empty(array.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def draw(problem: Problem, seed: int = 0) -> Inputs | ModuleInputs | LoopInputs:
    """The inputs of a problem: normally distributed numbers, rounded to its dtype."""
    random = np.random.default_rng(seed)

    def normal(shape: Sequence[int], dtype: str = "f32", scale: float = 1.0) -> np.ndarray:
        return aligned((random.standard_normal(shape, np.float32) * np.float32(scale)).astype(NUMPY_DTYPES[dtype]))

    if problem.kind == "loop":
        weights = (normal((LOOP_SHAPE[1], LOOP_WIDTH)) for _ in range(3))
        return LoopInputs(problem, normal(LOOP_SHAPE), *weights)
    if problem.module:
        return _draw_module(problem, normal)
    kv_shape = (problem.batch, problem.num_kv_heads, problem.seqlen_k, problem.head_dim)
    q_shape = (problem.batch, problem.num_heads, problem.seqlen_q, problem.head_dim)
    q, k, v = normal(q_shape, problem.dtype), normal(kv_shape, problem.dtype), normal(kv_shape, problem.dtype)
    dout = normal(q_shape, problem.dtype) if problem.needs_gradients else None
    lengths = problem.key_counts() if problem.lengths else None
    cu_seqlens = problem.document_begins() if problem.documents else None
    return Inputs(problem, q, k, v, dout, _draw_mask(problem, random), lengths, cu_seqlens)


def _draw_mask(problem: Problem, random: np.random.Generator) -> np.ndarray | None:
    if not problem.mask:
        return None
    shape = (problem.seqlen_q, problem.seqlen_k)
    attend = random.random(shape, np.float32) < 0.5
    if problem.mask == "bool":
        return aligned(attend)
    return aligned(np.where(attend, random.standard_normal(shape, np.float32), np.float32(-np.inf)))


def _draw_module(problem: Problem, normal) -> ModuleInputs:
    width = problem.width
    shape, scale = (problem.batch, problem.seqlen_q, width), width**-0.5
    return ModuleInputs(
        problem,
        x=normal(shape),
        dout=normal(shape),
        in_weight=normal((3 * width, width), scale=scale),
        in_bias=normal((3 * width,)),
        out_weight=normal((width, width), scale=scale),
        out_bias=normal((width,)),
    )
