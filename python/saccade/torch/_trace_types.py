"""The element types of a trace's registers, as PyTorch promotes them, and the ranges of its integers."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

LARGEST = 2**52  # integers up to here are computed exactly in doubles, quotients too
_LIMITS = {torch.bool: (0, 1), torch.int64: (-LARGEST, LARGEST)}
_COMPARISONS = {"lt", "le", "eq", "ne"}
_LOGIC = {"and", "or", "xor", "not", "bool"}
_OF_FLOATS = {"div", "exp", "exp2", "log", "sqrt", "sin", "cos", "tanh", "sigmoid"}


class NotTraceable(Exception):
    """What a function does that cannot be recorded."""


class Kind(NamedTuple):
    """What is known of a register."""

    dtype: torch.dtype
    least: int = 0  # of integers and booleans
    most: int = 0
    is_number: bool = False  # a number of Python, which does not widen a tensor's type


def kind_of_number(number: Any) -> Kind:
    if isinstance(number, float):
        return Kind(torch.get_default_dtype(), is_number=True)
    dtype = torch.bool if isinstance(number, bool) else torch.int64
    return _within(Kind(dtype, int(number), int(number), is_number=True))


def kind_of_tensor(tensor: Tensor) -> Kind:
    """:raises NotTraceable: for numbers that a program cannot hold."""
    if tensor.is_floating_point() or tensor.dtype is torch.bool or not tensor.numel():
        return Kind(tensor.dtype, 0, int(tensor.dtype is torch.bool))
    if tensor.is_complex():
        raise NotTraceable("computes with complex numbers")
    least, most = (int(x) for x in tensor.aminmax())
    return _within(Kind(tensor.dtype, least, most))


def promoted(kinds: Any) -> torch.dtype:
    """The type in which PyTorch computes with operands without dimensions."""
    return _promoted(tuple((x.dtype, x.is_number) for x in kinds), torch.get_default_dtype())


@functools.lru_cache
def _promoted(kinds: Any, default: torch.dtype) -> torch.dtype:
    samples = [torch.zeros((), dtype=dtype) for dtype, _ in kinds]
    operands = [x.item() if is_number else x for x, (_, is_number) in zip(samples, kinds)]
    operands.sort(key=lambda x: not isinstance(x, Tensor))
    result = operands[0]
    for other in operands[1:]:
        result = torch.zeros((), dtype=torch.result_type(result, other))
    return result.dtype if isinstance(result, Tensor) else samples[0].dtype


def operand_type(name: str, kinds: Any) -> torch.dtype:
    """The type to which an operation converts its operands (those after the condition, of "where")."""
    if name in _LOGIC:
        return torch.bool
    dtype = promoted(kinds[1:] if name == "where" else kinds)
    return torch.get_default_dtype() if name in _OF_FLOATS and not dtype.is_floating_point else dtype


def kind_of_result(name: str, kinds: Any) -> Kind:
    """:raises NotTraceable: where integers might wrap around or lose digits."""
    if name in _LOGIC or name in _COMPARISONS:
        return Kind(torch.bool, 0, 1)
    dtype = operand_type(name, kinds)
    is_number = all(x.is_number for x in (kinds[1:] if name == "where" else kinds))
    if dtype.is_floating_point:
        return Kind(dtype, is_number=is_number)
    return _within(Kind(dtype, *_range(name, [(x.least, x.most) for x in kinds]), is_number=is_number))


def cast(kind: Kind, dtype: torch.dtype) -> Kind:
    if dtype is torch.bool:
        return Kind(dtype, 0, 1)
    if dtype.is_floating_point:
        return Kind(dtype)
    if kind.dtype.is_floating_point:
        raise NotTraceable("rounds a number to an integer")
    return _within(Kind(dtype, kind.least, kind.most))


def _within(kind: Kind) -> Kind:
    if kind.dtype in _LIMITS:
        least, most = _LIMITS[kind.dtype]
    else:
        least, most = torch.iinfo(kind.dtype).min, torch.iinfo(kind.dtype).max
    if kind.least < least or kind.most > most:
        name = str(kind.dtype).rpartition(".")[2]
        raise NotTraceable(f"computes with {name} numbers beyond {least} to {most}")
    return kind


def _range(name: str, ranges: Any) -> tuple[int, int]:
    """The least and the largest result of integers."""
    (a, b), *others = ranges
    c, d = others[0] if others else (0, 0)
    if name == "neg":
        return -b, -a
    if name == "abs":
        return (0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
    if name == "add":
        return a + c, b + d
    if name == "sub":
        return a - d, b - c
    if name == "mul":
        return _extremes(x * y for x, y in itertools.product((a, b), (c, d)))
    if name in ("minimum", "clamp_max"):
        return min(a, c), min(b, d)
    if name in ("maximum", "clamp_min"):
        return max(a, c), max(b, d)
    if name == "where":
        return _extremes(x for pair in others for x in pair)
    if name in ("floordiv", "mod"):
        if c <= 0 <= d:
            raise NotTraceable("may divide integers by 0")
        if name == "floordiv":
            return _extremes(x // y for x, y in itertools.product((a, b), (c, d)))
        return (0, d - 1) if c > 0 else (c + 1, 0)
    if name == "pow":
        if c < 0:
            raise NotTraceable("raises integers to negative powers")
        largest = max(abs(a), abs(b), 1)
        if d * math.log2(largest) > 64:
            raise NotTraceable("raises integers to large powers")
        return -(largest**d), largest**d
    assert name in ("floor", "detach"), name
    return a, b


def _extremes(numbers: Any) -> tuple[int, int]:
    numbers = list(numbers)
    return min(numbers), max(numbers)
