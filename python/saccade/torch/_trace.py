"""Functions of flex_attention, score_mod and mask_mod, as instructions, from which _lower.py makes programs.

The function is called once, with tensors of no dimensions for the score and its indices. What it does with them is
recorded, operation by operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode, resolve_name

from ._trace_types import Kind, NotTraceable, cast, kind_of_number, kind_of_result, kind_of_tensor

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
_OTHERS = {"relu", "square", "reciprocal", "rsqrt", "masked_fill", "detach"}
_CASTS = {"float", "double", "to", "type", "type_as", "half", "bfloat16", "clone", "contiguous"}
_INTEGER_CASTS = {"int", "long"}
_NEW = {"new_ones", "new_zeros", "new_full", "new_tensor", "ones_like", "zeros_like", "full_like"}
_INDICES = (torch.int8, torch.int16, torch.int32, torch.int64)
_HARMLESS = {"__get__", "dim", "size", "is_floating_point", "__repr__"}


def _share_at_bound(bound: Any) -> float:
    """The gradient of clamp at a bound, which differs between versions of PyTorch: 0, 1/2 or 1."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros((), requires_grad=True)
        return float(torch.autograd.grad(x.clamp(min=bound), x)[0])


_SHARES = (_share_at_bound(0.0), _share_at_bound(torch.zeros(())))  # numbers, tensors


class Trace:
    """Instructions and the tensors that they read, for scores of some type and for some lengths: batch, heads,
    seqlen_q, seqlen_k."""

    def __init__(self, score: torch.dtype, lengths: tuple[int, int, int, int]) -> None:
        self.instructions: list[tuple[Any, ...]] = []
        self.kinds = [Kind(score), *(Kind(torch.int64, 0, max(length - 1, 0)) for length in lengths)]
        self.tensors: list[Tensor] = []
        self.affine: dict[int, Any] = {}  # of registers: see _flex_options
        self._places: dict[int, int] = {}
        self._known: dict[tuple[Any, ...], int] = {}

    def empty_copy(self) -> Trace:
        """A trace without instructions for the same scores."""
        return Trace(self.kinds[0].dtype, tuple(x.most + 1 for x in self.kinds[1:INPUTS]))  # type: ignore[arg-type]

    def add(self, name: str, *operands: Any) -> int:
        """The register with the result of an operation."""
        return self._add((name, *operands), lambda: kind_of_result(name, [self.kinds[i] for i in operands]))

    def _add(self, instruction: tuple[Any, ...], kind: Callable[[], Kind]) -> int:
        if instruction not in self._known:
            self.kinds.append(kind())
            self.instructions.append(instruction)
            self._known[instruction] = INPUTS + len(self.instructions) - 1
        return self._known[instruction]

    def constant(self, number: Any, kind: Kind | None = None) -> int:
        kind = kind or kind_of_number(number)
        return self._add(("constant", float(number), kind), lambda: kind)

    def cast(self, register: int, dtype: torch.dtype) -> int:
        if self.kinds[register].dtype is dtype and not self.kinds[register].is_number:
            return register
        return self._add(("cast", register, dtype), lambda: cast(self.kinds[register], dtype))

    def load(self, tensor: Tensor, indices: Any) -> int:
        indices = indices or [self.constant(0)]  # a number is loaded from a tensor of one
        place = self._places.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)
        return self._add(("load", place, *indices), lambda: kind_of_tensor(tensor))

    def operands(self, register: int) -> list[int]:
        """The registers that an instruction reads."""
        name, *operands = self.instructions[register - INPUTS]
        return {"constant": [], "load": operands[1:], "cast": operands[:1]}.get(name, operands)

    def record(self, name: str, function: Callable[..., Any], inputs: tuple[int, ...]) -> int:
        """Calls the function with tensors for some of the inputs; the register of its result.

        :raises NotTraceable: says what the function did.
        """
        samples = [torch.zeros((), dtype=self.kinds[i].dtype) for i in inputs]
        with torch.enable_grad(), _Recorder(self, dict(zip(map(id, samples), inputs))) as recorder:
            result = function(*samples)
        if not isinstance(result, (Tensor, bool, int, float)) or (isinstance(result, Tensor) and result.dim()):
            got = f"one of shape {list(result.shape)}" if isinstance(result, Tensor) else f"a {type(result).__name__}"
            raise ValueError(f"{name}: expected a function that returns a tensor without dimensions, got {got}")
        register = recorder.register_of(result)
        del samples
        return register


def tensors_in(arguments: Any) -> Iterator[Tensor]:
    for x in arguments:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, (tuple, list)):
            yield from tensors_in(x)


def _learns(tensor: Tensor) -> bool:
    return tensor.requires_grad or has_tangent(tensor)


def has_tangent(tensor: Tensor) -> bool:
    """Of forward-mode differentiation."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def evaluate(trace: Trace, register: int, inputs: tuple[Any, ...]) -> Any:
    """What a register holds for given inputs, which are broadcast: tensors, or None where it does not depend on one."""
    if register < INPUTS:
        return inputs[register]
    name, *operands = trace.instructions[register - INPUTS]
    if name == "constant":
        return torch.tensor(operands[0], dtype=torch.float64)
    if name == "load" and trace.tensors[operands[0]].dim() == 0:
        return trace.tensors[operands[0]]
    if name == "cast":
        return evaluate(trace, operands[0], inputs).to(operands[1])
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
    "clamp_min": torch.maximum,
    "clamp_max": torch.minimum,
    "detach": lambda a: a.detach(),
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
        records = torch.is_grad_enabled()  # else what comes out is a constant for gradients
        tensors = list(tensors_in((*args, *kwargs.values())))
        if not any(id(x) in self.registers or (records and _learns(x)) for x in tensors):
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
            kind = self.trace.kinds[register]
            if kind.dtype is not result.dtype and not kind.is_number:
                raise NotTraceable(f"computes {result.dtype} with {name}")
            if not records and result.is_floating_point():
                register = self.trace.add("detach", register)
            self.registers[id(result)] = register
        self.alive.append(result)
        return result

    def _computed(self, function: Any, name: str, args: Any, kwargs: Any) -> tuple[Any, int | None]:
        """A sample of the result, and its register; None for a constant."""
        if name == "__getitem__":
            return self._loaded(*args)
        if name in _NEW:
            if any(id(x) in self.registers for x in tensors_in((*args[1:], *kwargs.values()))):
                raise NotTraceable(f"calls {name} with computed numbers")
            return function(*args, **kwargs), None
        if name in _CASTS or name in _INTEGER_CASTS:
            result = function(*args, **kwargs)
            register = self.register_of(args[0])
            if not isinstance(result, Tensor):  # x.type() is a text
                raise NotTraceable(f"makes a {type(result).__name__} with {name}")
            if result.dtype is torch.bool:
                return result, self.trace.add("bool", register)
            return result.clone() if result is args[0] else result, self.trace.cast(register, result.dtype)
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
            for bound, is_low in ((low, True), (high, False)):
                if bound is not None:
                    register = self._clamped(register, bound, is_low)
            return register
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
            return self.trace.add("where", self.trace.add("le", *registers, zero), zero, *registers)
        if name == "square" or (_SAME.get(name) == "pow" and isinstance(args[1], (int, float)) and args[1] == 2):
            return self.trace.add("mul", registers[0], registers[0])
        if name in ("reciprocal", "rsqrt"):
            root = registers if name == "reciprocal" else [self.trace.add("sqrt", *registers)]
            return self.trace.add("div", self.trace.constant(1), *root)
        if name == "masked_fill":
            x, condition, value = registers
            return self.trace.add("where", condition, value, x)
        if name == "detach":
            return self.trace.add("detach", *registers)
        if name in _SAME:
            return self.trace.add(_SAME[name] or name, *registers)
        if name in _BITWISE:
            return self.trace.add(_BITWISE[name], *registers)
        return self.trace.add(_REVERSED[name], *reversed(registers))

    def _clamped(self, x: int, bound: Any, is_low: bool) -> int:
        limit, share = self.register_of(bound), _SHARES[isinstance(bound, Tensor)]
        if share == 1:
            return self.trace.add("clamp_min" if is_low else "clamp_max", x, limit)
        if share == 0:
            is_beyond = self.trace.add("le", x, limit) if is_low else self.trace.add("le", limit, x)
            return self.trace.add("where", is_beyond, limit, x)
        return self.trace.add("maximum" if is_low else "minimum", x, limit)

    def _loaded(self, tensor: Any, index: Any) -> tuple[Tensor, int]:
        indices = index if isinstance(index, tuple) else (index,)
        if id(tensor) in self.registers:
            raise NotTraceable("indexes a computed tensor")
        if len(indices) != tensor.dim() or not all(isinstance(i, (int, Tensor)) for i in indices):
            raise NotTraceable(f"indexes a tensor of {tensor.dim()} dimensions with {len(indices)} indices")
        if any(isinstance(i, bool) or (isinstance(i, Tensor) and i.dtype not in _INDICES) for i in indices):
            raise NotTraceable("indexes with numbers that are no integers")
        register = self.trace.load(tensor, [self.register_of(i) for i in indices])
        return torch.ones((), dtype=tensor.dtype), register  # not 0, which may be a divisor
