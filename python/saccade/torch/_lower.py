"""A trace as instructions for saccade._core.ScoreProgram: with the types in which they compute, without what no result
needs, and with differences of row and key as functions of the distance, which has fewer values than there are pairs."""

from __future__ import annotations

from typing import Any

import torch

from ._flex_options import Functions, affine_of
from ._trace import INPUTS, Trace
from ._trace_types import Kind, operand_type

_INT32 = (-(2**31), 2**31 - 1)
_COMPARISONS = {"lt", "le", "eq", "ne"}
_LOGIC = {"and", "or", "xor", "not"}
_FUNCTIONS = {"exp", "exp2", "log", "sin", "cos", "tanh", "sigmoid"}


def lowered(functions: Functions) -> tuple[list[tuple[Any, ...]], int, int]:
    """Instructions and the registers of the score and the mask (-1: none)."""
    lowering = _Lowering(functions.trace)
    score = lowering.converted(lowering.place(functions.score), lowering.lanes[0])
    mask = -1 if functions.mask < 0 else lowering.place(functions.mask)
    return lowering.instructions, score, mask


def _lane(kind: Kind) -> str:
    """The type in which a program holds such numbers. f64 also holds integers up to 2^52."""
    if kind.dtype.is_floating_point:
        return "f64" if kind.dtype is torch.float64 else "f32"
    return "i32" if _INT32[0] <= kind.least and kind.most <= _INT32[1] else "f64"


class _Lowering:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.instructions: list[tuple[Any, ...]] = []
        self.lanes = [_lane(kind) for kind in trace.kinds[:INPUTS]]
        self._places = {i: i for i in range(INPUTS)}
        self._known: dict[tuple[Any, ...], int] = {}

    def place(self, register: int) -> int:
        """The register of the program that holds what a register of the trace holds."""
        pending = [register]
        while pending:  # not recursive: functions may be long
            needed = (
                [x for x in self.trace.operands(pending[-1]) if x not in self._places]
                if (pending[-1] not in self._places and not self._distance(pending[-1]))
                else []
            )
            if needed:
                pending += needed
            else:
                last = pending.pop()
                if last not in self._places:
                    self._places[last] = self._lowered(last)
        return self._places[register]

    def converted(self, place: int, lane: str) -> int:
        if self.lanes[place] == lane:
            return place
        instruction = self.instructions[place - INPUTS] if place >= INPUTS else ("input",)
        if instruction[0] == "constant":
            return self._add("constant", lane, instruction[2])
        return self._add("cast", lane, place)

    def _add(self, name: str, lane: str, *operands: Any) -> int:
        instruction = (name, lane, *operands)
        if instruction not in self._known:
            self.instructions.append(instruction)
            self.lanes.append(lane)
            self._known[instruction] = INPUTS + len(self.instructions) - 1
        return self._known[instruction]

    def _distance(self, register: int) -> tuple[float, float] | None:
        """(a, c) if an integer register holds a (row - key) + c."""
        if register < INPUTS or self.trace.kinds[register].dtype.is_floating_point:
            return None
        found = affine_of(self.trace, register)
        return (found[0], found[2]) if found and found[0] == -found[1] != 0 else None

    def _lowered(self, register: int) -> int:
        name, *operands = self.trace.instructions[register - INPUTS]
        kind = self.trace.kinds[register]
        lane = _lane(kind)
        distance = self._distance(register)
        if distance and kind.dtype is not torch.bool:
            return self._add("distance", lane, *distance)
        if name == "constant":
            return self._add("constant", lane, operands[0])
        places = [self._places[x] for x in self.trace.operands(register)]
        if name == "load":
            return self._add("load", lane, operands[0], *places)
        if name == "cast":
            return self.converted(places[0], lane)
        if name in _LOGIC or name == "bool":
            truths = [self._truth(x, place) for x, place in zip(operands, places)]
            return truths[0] if name == "bool" else self._add(name, "i32", *truths)
        if name in _COMPARISONS:
            return self._compared(name, operands, places)
        return self._computed(name, operands, places, register)

    def _truth(self, register: int, place: int) -> int:
        return place if self.trace.kinds[register].dtype is torch.bool else self._add("bool", "i32", place)

    def _compared(self, name: str, operands: Any, places: Any) -> int:
        kinds = [self.trace.kinds[x] for x in operands]
        dtype = operand_type(name, kinds)
        parts = [affine_of(self.trace, x) for x in operands]
        if not dtype.is_floating_point and parts[0] and parts[1]:
            a, b, c = (x - y for x, y in zip(*parts))
            if a == -b != 0 and max(abs(a), abs(c)) * max(1, *(x.most for x in self.trace.kinds[3:5])) < 2**29:
                return self._add(name, "i32", self._add("distance", "i32", a, c), self._add("constant", "i32", 0.0))
        lane = self._common(dtype, kinds)
        return self._add(name, "i32", *(self.converted(x, lane) for x in places))

    def _computed(self, name: str, operands: Any, places: Any, register: int) -> int:
        kinds = [self.trace.kinds[x] for x in operands]
        dtype = operand_type(name, kinds)
        if name == "floor" and not dtype.is_floating_point:
            return places[0]
        lane = self._common(dtype, [*kinds[1 if name == "where" else 0 :], self.trace.kinds[register]])
        if name in _FUNCTIONS and self.lanes[0] == "f64":  # as exact as can be where results are
            exact = self._add(name, "f64", *(self.converted(x, "f64") for x in places))
            return self.converted(self.converted(exact, lane), _lane(self.trace.kinds[register]))
        condition = [self._truth(operands[0], places[0])] if name == "where" else []
        given = [self.converted(x, lane) for x in places[len(condition) :]]
        result = self._add(name, lane, *condition, *given)
        return self.converted(result, _lane(self.trace.kinds[register]))

    def _common(self, dtype: torch.dtype, kinds: Any) -> str:
        """The type in which an operation of PyTorch's type computes."""
        if dtype.is_floating_point:
            return _lane(Kind(dtype))
        return "f64" if any(_lane(x) == "f64" for x in kinds) else "i32"
