"""Which options of attention a score_mod and a mask_mod amount to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._trace import INPUTS, Trace, evaluate, has_tangent

_BATCH, _HEAD, _ROW, _KEY = 1, 2, 3, 4


class Blocks(NamedTuple):
    """What the mask does to each block: skip, full or partial, as numbers of BlockEffect in saccade/attention.h."""

    effects: Tensor  # uint8 [batch or 1, heads or 1, blocks of rows, blocks of keys]
    block_q: int
    block_k: int


@dataclass(frozen=True)
class Functions:
    """A score_mod and a mask_mod as registers of a trace, and the options that do the rest."""

    trace: Trace
    score: int
    mask: int  # -1: every key is visible
    blocks: Blocks | None
    options: dict[str, Any] = field(default_factory=dict)
    documents: Tensor | None = None  # [batch or 1, seqlen]: rising numbers; a row sees the keys of its own one

    @property
    def is_options_only(self) -> bool:
        return self.score == 0 and self.mask < 0


class _Distances(NamedTuple):
    """The distances row - key that are visible."""

    least: float = -math.inf
    most: float = math.inf


def recognised(functions: Functions, q: Tensor, k: Tensor) -> Functions:
    """The same with as much as possible in options."""
    return _biases(_softcap(_masks(functions, q, k)), q, k)


# ---- masks ----


def _masks(functions: Functions, q: Tensor, k: Tensor) -> Functions:
    trace, score = functions.trace, functions.score
    parts = [] if functions.mask < 0 else _conjunction(trace, functions.mask)
    hides = _instruction(trace, score)
    if hides[0] == "where" and _instruction(trace, hides[3])[:2] == ("constant", -math.inf):
        parts, score = parts + _conjunction(trace, hides[1]), hides[2]
    distances = _Distances()
    of_documents: list[tuple[int, Tensor]] = []
    rest: list[int] = []
    for part in parts:
        of_distance = _distances(trace, part)
        if of_distance:
            distances = _Distances(max(distances.least, of_distance.least), min(distances.most, of_distance.most))
        elif affine_of(trace, part) != (0, 0, 1):  # else a constant True
            numbers = _documents(trace, part, q, k)
            if numbers is None:
                rest.append(part)
            else:
                of_documents.append((part, numbers))
    if rest or score or len(of_documents) > 1:  # in a packed batch a program would count from a document's beginning
        rest, of_documents = rest + [part for part, _ in of_documents], []
    documents = of_documents[0][1] if of_documents else None
    options = _options(distances)
    if options is None:
        return functions
    found = replace(functions, score=score, mask=-1, options=options, documents=documents)
    for part in rest:
        found = replace(found, mask=part if found.mask < 0 else trace.add("and", found.mask, part))
    if functions.blocks is None or (not rest and _agree(functions.blocks, functions, distances, documents, q, k)):
        return replace(found, blocks=None)
    return functions  # in full blocks nothing but score_mod counts, and options hide keys everywhere


def _instruction(trace: Trace, register: int) -> tuple[Any, ...]:
    return ("input",) if register < INPUTS else trace.instructions[register - INPUTS]


def _conjunction(trace: Trace, register: int) -> list[int]:
    name, *operands = _instruction(trace, register)
    if name in ("and", "bool"):
        return [part for operand in operands for part in _conjunction(trace, operand)]
    return [register]


def affine_of(trace: Trace, register: int) -> tuple[float, float, float] | None:
    """(a, b, c) if the register holds a row + b key + c."""
    if register not in trace.affine:
        trace.affine[register] = _affine(trace, register)
    return trace.affine[register]


def _affine(trace: Trace, register: int) -> tuple[float, float, float] | None:
    if register in (_ROW, _KEY):
        return (1, 0, 0) if register == _ROW else (0, 1, 0)
    name, *operands = _instruction(trace, register)
    if name == "constant":
        return (0, 0, operands[0])
    if name == "load":
        tensor = trace.tensors[operands[0]]
        return None if tensor.numel() != 1 or tensor.requires_grad or has_tangent(tensor) else (0, 0, float(tensor))
    if name == "cast":
        return affine_of(trace, operands[0])
    if name not in ("add", "sub", "neg", "mul"):
        return None
    parts = [affine_of(trace, operand) for operand in operands]
    if None in parts:
        return None
    first, *others = (part for part in parts if part is not None)
    if name == "neg":
        return (-first[0], -first[1], -first[2])
    (second,) = others
    if name == "mul":
        factor, other = (first, second) if first[:2] == (0, 0) else (second, first)
        times = factor[2]
        return (times * other[0], times * other[1], times * other[2]) if factor[:2] == (0, 0) else None
    sign = 1 if name == "add" else -1
    return (first[0] + sign * second[0], first[1] + sign * second[1], first[2] + sign * second[2])


def _distances(trace: Trace, register: int) -> _Distances | None:
    name, *operands = _instruction(trace, register)
    if name not in ("lt", "le"):
        return None
    beyond = 1 if name == "lt" else 0
    size, limit = _instruction(trace, operands[0]), _number(trace, operands[1])
    if (
        size[0] == "abs"
        and limit is not None
        and math.isfinite(limit)
        and affine_of(trace, size[1]) in ((1, -1, 0), (-1, 1, 0))
    ):
        most = math.ceil(limit) - 1 if beyond else math.floor(limit)
        return _Distances(-most, most)
    parts = [affine_of(trace, operand) for operand in operands]
    if parts[0] is None or parts[1] is None:
        return None
    a, b, c = (y - x for x, y in zip(*parts))  # a row + b key + c > 0, or >= 0
    if not math.isfinite(c):
        return None
    if (a, b) == (1, -1):
        return _Distances(least=math.floor(-c) + 1 if beyond else math.ceil(-c))
    if (a, b) == (-1, 1):
        return _Distances(most=math.ceil(c) - 1 if beyond else math.floor(c))
    return None


def _options(distances: _Distances) -> dict[str, Any] | None:
    least, most = distances
    if least > 0 or most < 0 or least > most:
        return None
    window = (-1 if most == math.inf else int(most), -1 if least == -math.inf else -int(least))
    if window[1] == 0:
        return {"causal": "top_left", "window": (window[0], -1)}
    return {} if window == (-1, -1) else {"window": window}


def _documents(trace: Trace, register: int, q: Tensor, k: Tensor) -> Tensor | None:
    """The number of each row's document if the register says whether row and key have the same, and numbers rise."""
    name, *operands = _instruction(trace, register)
    loads = [_instruction(trace, operand) for operand in operands]
    if name != "eq" or [x[0] for x in loads] != ["load"] * 2 or loads[0][1] != loads[1][1]:
        return None
    places = sorted((x[2:] for x in loads), key=str)
    numbers = trace.tensors[loads[0][1]]
    numbers = numbers.long() if numbers.dtype in (torch.bool, torch.uint8) else numbers
    known = [(_ROW,), (_KEY,)], [(_BATCH, _ROW), (_BATCH, _KEY)]
    seqlen = q.shape[2]
    if places not in known or seqlen != k.shape[2] or numbers.shape[-1] < seqlen or numbers.is_floating_point():
        return None
    numbers = numbers[..., :seqlen].reshape(-1, seqlen)
    rises = bool((numbers.diff(dim=-1) >= 0).all())
    return numbers if rises and numbers.shape[0] in (1, q.shape[0]) else None


def _agree(
    blocks: Blocks, given: Functions, distances: _Distances, documents: Tensor | None, q: Tensor, k: Tensor
) -> bool:
    """Whether the blocks hide what the functions hide and nothing else. A BlockMask may hide more."""
    rows, keys = (torch.arange(0, x.shape[2], size) for x, size in ((q, blocks.block_q), (k, blocks.block_k)))
    last_row, last_key = (
        (rows + blocks.block_q).clamp(max=q.shape[2]) - 1,
        (keys + blocks.block_k).clamp(max=k.shape[2]) - 1,
    )
    least, most = rows[:, None] - last_key, last_row[:, None] - keys
    any_seen = ((most >= distances.least) & (least <= distances.most))[None, None]
    all_seen = ((least >= distances.least) & (most <= distances.most))[None, None]
    if documents is not None:
        of_rows = [documents[:, x][:, None, :, None] for x in (rows, last_row)]
        of_keys = [documents[:, x][:, None, None] for x in (keys, last_key)]
        any_seen = any_seen & (of_rows[0] <= of_keys[1]) & (of_keys[0] <= of_rows[1])
        same = (of_rows[0] == of_rows[1]) & (of_keys[0] == of_keys[1]) & (of_rows[0] == of_keys[0])
        all_seen = all_seen & same
    effects = blocks.effects[:, :, : len(rows), : len(keys)]
    wrong = ((effects == 1) & ~all_seen) | ((effects > 0) & ~any_seen)
    if wrong.any():
        return False
    doubtful = ((effects == 0) & any_seen).nonzero()  # of documents and distances together, none may be visible
    return len(doubtful) <= len(rows) + len(keys) and all(
        not _sees(given, blocks, entry, q, k) for entry in doubtful.tolist()
    )


def _sees(functions: Functions, blocks: Blocks, entry: list[int], q: Tensor, k: Tensor) -> bool:
    """Whether a row of a block sees a key of it."""
    batch, head, i, j = entry
    row = torch.arange(i * blocks.block_q, min((i + 1) * blocks.block_q, q.shape[2]))[:, None]
    key = torch.arange(j * blocks.block_k, min((j + 1) * blocks.block_k, k.shape[2]))
    inputs = (None, torch.tensor(batch), torch.tensor(head), row, key)
    return functions.mask < 0 or bool(evaluate(functions.trace, functions.mask, inputs).any())


# ---- scores ----


def _softcap(functions: Functions) -> Functions:
    """c * tanh(score / c)."""
    trace = functions.trace
    for register, (name, *operands) in enumerate(trace.instructions, INPUTS):
        constants = [_number(trace, operand) for operand in operands] if name == "mul" else [None, None]
        if (constants[0] is None) == (constants[1] is None):
            continue
        cap, tanh = (constants[0], operands[1]) if constants[0] is not None else (constants[1], operands[0])
        inner = _instruction(trace, tanh)
        of_score = _instruction(trace, inner[1]) if inner[0] == "tanh" else ("",)
        divisor = _number(trace, of_score[2]) if of_score[0] == "div" and of_score[1] == 0 else None
        chain = [(inner[1], tanh), (tanh, register)] if divisor else []
        is_alone = all(_readers(trace, x, functions.score) == {reader} for x, reader in chain)
        if cap and cap == divisor and cap > 0 and is_alone and _readers(trace, 0, functions.score) == {inner[1]}:
            trace, score, mask = _substituted(trace, register, functions)
            return replace(
                functions, trace=trace, score=score, mask=mask, options={**functions.options, "softcap": cap}
            )
    return functions


def _number(trace: Trace, register: int) -> float | None:
    affine = affine_of(trace, register)
    return affine[2] if affine and affine[:2] == (0, 0) else None


def _needed(trace: Trace, register: int) -> set[int]:
    if register < INPUTS:
        return set()
    return {register}.union(*(_needed(trace, operand) for operand in trace.operands(register)))


def _readers(trace: Trace, register: int, result: int) -> set[int]:
    """The registers that read one, of those that a result needs."""
    return {reader for reader in _needed(trace, result) if register in trace.operands(reader)}


def _substituted(trace: Trace, register: int, functions: Functions) -> tuple[Trace, int, int]:
    """The functions with the score in the place of a register."""
    result = trace.empty_copy()
    places = {**{i: i for i in range(INPUTS)}, register: 0, -1: -1}

    def copied(old: int) -> int:
        if old not in places:
            name, *operands = trace.instructions[old - INPUTS]
            if name == "load":
                places[old] = result.load(trace.tensors[operands[0]], [copied(x) for x in operands[1:]])
            elif name == "constant":
                places[old] = result.constant(*operands)
            elif name == "cast":
                places[old] = result.cast(copied(operands[0]), operands[1])
            else:
                places[old] = result.add(name, *map(copied, operands))
        return places[old]

    return result, copied(functions.score), copied(functions.mask)


def _biases(functions: Functions, q: Tensor, k: Tensor) -> Functions:
    """score + a tensor of biases, or + a slope for each head times a distance."""
    trace = functions.trace
    name, *operands = _instruction(trace, functions.score)
    if functions.documents is not None or name not in ("add", "sub") or 0 not in operands[: 2 if name == "add" else 1]:
        return functions
    bias = operands[1] if operands[0] == 0 else operands[0]
    if bias == 0:
        return functions
    sign = 1 if name == "add" else -1
    mask = _bias_of_pairs(trace, bias, q, k) if sign == 1 and functions.mask < 0 else None
    if mask is not None:
        return replace(functions, score=0, options={**functions.options, "mask": mask})
    slopes = _slopes(trace, bias, functions.options, q)
    if slopes is None:
        return functions
    return replace(functions, score=0, options={**functions.options, "alibi_slopes": -sign * slopes})


def _bias_of_pairs(trace: Trace, register: int, q: Tensor, k: Tensor) -> Tensor | None:
    """A tensor [batch, heads, seqlen_q, seqlen_k], or without the first dimensions."""
    name, *operands = _instruction(trace, register)
    if name != "load" or tuple(operands[1:]) not in ((_ROW, _KEY), (_HEAD, _ROW, _KEY), (_BATCH, _HEAD, _ROW, _KEY)):
        return None
    tensor = trace.tensors[operands[0]]
    lengths = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])[-tensor.dim() :]
    if not tensor.is_floating_point() or any(a < b for a, b in zip(tensor.shape, lengths)):
        return None
    return tensor[tuple(slice(0, length) for length in lengths)]


def _slopes(trace: Trace, register: int, options: dict[str, Any], q: Tensor) -> Tensor | None:
    """m [heads] if the register holds m[head] * |row - key|, for visible keys."""
    name, *operands = _instruction(trace, register)
    if name != "mul":
        operands = [register, trace.constant(1)]
    for distance, slope in (operands, operands[::-1]):
        of = _instruction(trace, distance)
        affine = affine_of(trace, of[1] if of[0] == "abs" else distance)
        inputs = {x for r in _needed(trace, slope) | {slope} for x in _inputs(trace, r)}
        sign = affine[0] if affine and affine in ((1, -1, 0), (-1, 1, 0)) else 0
        is_known = of[0] == "abs" or options.get("causal") == "top_left"
        if sign and is_known and inputs <= {_HEAD} and not any(x.requires_grad for x in trace.tensors):
            heads = torch.arange(q.shape[1])
            values = evaluate(trace, slope, (None, None, heads, None, None)).to(torch.float64)
            return (1 if of[0] == "abs" else sign) * values.expand(len(heads))
    return None


def _inputs(trace: Trace, register: int) -> set[int]:
    if register < INPUTS:
        return {register}
    return {x for x in trace.operands(register) if x < INPUTS}
