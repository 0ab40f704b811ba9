"""Functions of flex_attention, score_mod and mask_mod, as instructions for saccade._core.ScoreProgram.

The function is called once, with tensors of no dimensions for the score and its indices. What it does with them is
recorded, operation by operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

INPUTS = 5  # registers: score, batch entry, head, row, key

# Names of PyTorch's functions and what computes them; "r" before an operator of Python: operands in reverse.
_SAME = {
    **dict.fromkeys(("neg", "negative", "__neg__"), "neg"),
    **dict.fromkeys(("abs", "absolute", "__abs__"), "abs"),
    **dict.fromkeys(("add", "__add__", "__radd__", "__iadd__"), "add"),
    **dict.fromkeys(("sub", "subtract", "__sub__", "__isub__"), "sub"),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__", "__imul__"), "mul"),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__", "__itruediv__"), "div"),
    **dict.fromkeys(("floor_divide", "__floordiv__"), "floordiv"),
    **dict.fromkeys(("remainder", "__mod__"), "mod"),
    **dict.fromkeys(("pow", "__pow__"), "pow"),
    **dict.fromkeys(("lt", "less", "__lt__"), "lt"),
    **dict.fromkeys(("le", "less_equal", "__le__"), "le"),
    **dict.fromkeys(("eq", "__eq__"), "eq"),
    **dict.fromkeys(("ne", "not_equal", "__ne__"), "ne"),
    **dict.fromkeys(("logical_and", "__and__", "__rand__", "__iand__"), "and"),
    **dict.fromkeys(("logical_or", "__or__", "__ror__", "__ior__"), "or"),
    **dict.fromkeys(("logical_xor", "__xor__", "__rxor__"), "xor"),
    **dict.fromkeys(("logical_not", "__invert__"), "not"),
    **dict.fromkeys(("exp", "exp2", "log", "sqrt", "sin", "cos", "tanh", "sigmoid", "floor", "where"), None),
    **dict.fromkeys(("minimum", "maximum"), None),
}
_REVERSED = {
    **dict.fromkeys(("__rsub__", "rsub"), "sub"),
    **dict.fromkeys(("__rtruediv__", "__rdiv__"), "div"),
    "__rfloordiv__": "floordiv",
    **dict.fromkeys(("__rmod__",), "mod"),
    "__rpow__": "pow",
    **dict.fromkeys(("gt", "greater", "__gt__"), "lt"),
    **dict.fromkeys(("ge", "greater_equal", "__ge__"), "le"),
}
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "bitwise_not": "not"}
_OF_BOOLS = {"__and__", "__rand__", "__iand__", "__or__", "__ror__", "__ior__", "__xor__", "__rxor__", "__invert__"}
_OTHERS = {"relu", "square", "reciprocal", "rsqrt", "masked_fill"}
_CASTS = {"float", "double", "to", "type", "type_as", "half", "bfloat16", "clone", "contiguous"}
_INTEGER_CASTS = {"int", "long"}
_NEW = {"new_ones", "new_zeros", "new_full", "new_tensor", "ones_like", "zeros_like", "full_like"}
_HARMLESS = {"__get__", "dim", "size", "is_floating_point", "__repr__"}


class NotTraceable(Exception):
    """What a function does that cannot be recorded."""


class Trace:
    """Instructions and the tensors that they read."""

    def __init__(self) -> None:
        self.instructions: list[tuple[Any, ...]] = []
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}
        self._known: dict[tuple[Any, ...], int] = {}

    def add(self, *instruction: Any) -> int:
        """The register with the result."""
        if instruction not in self._known:
            self.instructions.append(instruction)
            self._known[instruction] = INPUTS + len(self.instructions) - 1
        return self._known[instruction]

    def constant(self, number: Any) -> int:
        return self.add("constant", float(number))

    def load(self, tensor: Tensor, indices: Any) -> int:
        indices = indices or [self.constant(0)]  # a number is loaded from a tensor of one
        place = self._places.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)
        return self.add("load", place, *indices)

    def record(self, function: Callable[..., Any], inputs: tuple[int, ...]) -> int:
        """Calls the function with tensors for some of the inputs; the register of its result.

        :raises NotTraceable: says what the function did.
        """
        samples = [torch.zeros((), dtype=torch.float32 if i == 0 else torch.int64) for i in inputs]
        with torch.no_grad(), _Recorder(self, dict(zip(map(id, samples), inputs))) as recorder:
            result = function(*samples)
        register = recorder.register_of(result)
        del samples
        return register


def _tensors_in(arguments: Any) -> Iterator[Tensor]:
    for x in arguments:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from _tensors_in(x)


def evaluate(trace: Trace, register: int, inputs: tuple[Any, ...]) -> Any:
    """What a register holds for given inputs, which are broadcast: tensors, or None where it does not depend on one."""
    if register < INPUTS:
        return inputs[register]
    name, *operands = trace.instructions[register - INPUTS]
    if name == "constant":
        return torch.tensor(operands[0], dtype=torch.float64)
    if name == "load" and trace.tensors[operands[0]].dim() == 0:
        return trace.tensors[operands[0]]
    if name == "load":
        return trace.tensors[operands[0]][tuple(evaluate(trace, i, inputs).long() for i in operands[1:])]
    values = [evaluate(trace, operand, inputs) for operand in operands]
    return (_COMPUTE[name] if name in _COMPUTE else getattr(torch, name))(*values)


_COMPUTE: dict[str, Callable[..., Any]] = {
    "floordiv": torch.floor_divide,
    "mod": torch.remainder,
    "and": lambda a, b: a.bool() & b.bool(),
    "or": lambda a, b: a.bool() | b.bool(),
    "xor": lambda a, b: a.bool() ^ b.bool(),
    "not": lambda a: ~a.bool(),
    "bool": lambda a: a.bool(),
    "where": lambda a, b, c: torch.where(a.bool(), b, c),
}


class _Recorder(TorchFunctionMode):
    def __init__(self, trace: Trace, registers: dict[int, int]) -> None:
        super().__init__()
        self.trace, self.registers = trace, registers
        self.alive: list[Any] = []  # so that no id is used twice

    def register_of(self, x: Any) -> int:
        if isinstance(x, Tensor):
            if id(x) in self.registers:
                return self.registers[id(x)]
            if x.dim() == 0:
                return self.trace.load(x, ())
            raise NotTraceable(f"uses a tensor of shape {list(x.shape)} as a number")
        if isinstance(x, (bool, int, float)):
            return self.trace.constant(x)
        raise NotTraceable(f"uses a {type(x).__name__} as a number")

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not any(id(x) in self.registers or x.requires_grad for x in _tensors_in((*args, *kwargs.values()))):
            return function(*args, **kwargs)
        name = getattr(function, "__name__", str(function))
        if name in _HARMLESS:
            result = function(*args, **kwargs)
            if isinstance(result, Tensor):
                raise NotTraceable("reads an attribute that is a tensor")
            return result
        result, register = self._computed(function, name, args, kwargs)
        if not isinstance(result, Tensor) or result.dim():
            raise NotTraceable(f"makes something else than a number with {resolve_name(function) or name}")
        if register is not None:
            if any(result is x for x in args):
                raise NotTraceable(f"changes a tensor in place with {name}")
            self.registers[id(result)] = register
        self.alive.append(result)
        return result

    def _computed(self, function: Any, name: str, args: Any, kwargs: Any) -> tuple[Any, int | None]:
        """A sample of the result, and its register; None for a constant."""
        if name == "__getitem__":
            return self._loaded(*args)
        if name in _NEW:
            if any(id(x) in self.registers for x in _tensors_in((*args[1:], *kwargs.values()))):
                raise NotTraceable(f"calls {name} with computed numbers")
            return function(*args, **kwargs), None
        if name in _CASTS or name in _INTEGER_CASTS:
            result = function(*args, **kwargs)
            register = self.register_of(args[0])
            if result is args[0]:
                return result.clone(), register
            if result.dtype in (torch.int8, torch.uint8, torch.int16):
                raise NotTraceable(f"wraps numbers around with {name}")
            if args[0].is_floating_point() and not result.is_floating_point():
                raise NotTraceable(f"rounds a number to an integer with {name}")
            return result, self.trace.add("bool", register) if result.dtype is torch.bool else register
        result = function(*args, **kwargs)
        if kwargs.get("rounding_mode") == "floor" and name in ("div", "divide"):
            name = "floor_divide"
        elif kwargs and not (name in ("clamp", "clip") and kwargs.keys() <= {"min", "max"}):
            raise NotTraceable(f"calls {name} with {', '.join(kwargs)}")
        return result, self._operation(name, args, kwargs)

    def _operation(self, name: str, args: Any, kwargs: Any) -> int:
        bools = all(isinstance(x, bool) or (isinstance(x, Tensor) and x.dtype is torch.bool) for x in args)
        if (name in _BITWISE or name in _OF_BOOLS) and not bools:
            raise NotTraceable(f"computes with the bits of integers in {name}")
        if name in ("clamp", "clip"):
            x, low, high = (list(args) + [None, None])[:3]
            low, high = kwargs.get("min", low), kwargs.get("max", high)
            register = self.register_of(x)
            if low is not None:
                register = self.trace.add("maximum", register, self.register_of(low))
            return register if high is None else self.trace.add("minimum", register, self.register_of(high))
        if not (name in _SAME or name in _REVERSED or name in _BITWISE or name in _OTHERS):
            raise NotTraceable(f"calls {name}")
        if len(args) > (3 if name in ("where", "masked_fill") else 2):
            raise NotTraceable(f"calls {name} with {len(args)} arguments")
        if name == "where" and isinstance(args[0], Tensor) and args[0].dtype is not torch.bool:
            args = (args[1], args[0], args[2])  # x.where(condition, other)
        registers = [self.register_of(x) for x in args]
        if _SAME.get(name) == "add" and all(isinstance(x, Tensor) and x.dtype is torch.bool for x in args):
            return self.trace.add("or", *registers)
        if name == "relu":
            zero = self.trace.constant(0)
            return self.trace.add("where", self.trace.add("lt", zero, *registers), *registers, zero)
        if name == "square" or (_SAME.get(name) == "pow" and isinstance(args[1], (int, float)) and args[1] == 2):
            return self.trace.add("mul", registers[0], registers[0])
        if name in ("reciprocal", "rsqrt"):
            root = registers if name == "reciprocal" else [self.trace.add("sqrt", *registers)]
            return self.trace.add("div", self.trace.constant(1), *root)
        if name == "masked_fill":
            x, condition, value = registers
            return self.trace.add("where", condition, value, x)
        if name in _SAME:
            return self.trace.add(_SAME[name] or name, *registers)
        if name in _BITWISE:
            return self.trace.add(_BITWISE[name], *registers)
        return self.trace.add(_REVERSED[name], *reversed(registers))

    def _loaded(self, tensor: Any, index: Any) -> tuple[Tensor, int]:
        indices = index if isinstance(index, tuple) else (index,)
        if id(tensor) in self.registers:
            raise NotTraceable("indexes a computed tensor")
        if len(indices) != tensor.dim() or not all(isinstance(i, (int, Tensor)) for i in indices):
            raise NotTraceable(f"indexes a tensor of {tensor.dim()} dimensions with {len(indices)} indices")
        register = self.trace.load(tensor, [self.register_of(i) for i in indices])
        return torch.ones((), dtype=tensor.dtype), register  # not 0, which may be a divisor
