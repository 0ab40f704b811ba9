"""Random arguments: arrays of every layout, and objects that are nearly or not at all arrays."""

from __future__ import annotations

import random
from typing import Any, Callable

import numpy as np

try:
    from ml_dtypes import bfloat16
except ImportError:
    bfloat16 = None

LENGTHS = (0, 1, 1, 2, 3, 5, 7, 17, 33, 64, 70)
NUMBERS = ("c8", "i1", "i4", "i8", "u2", "u8", "?", ">f4", "<f2", "<f4", "<f8", "g")
OTHERS = ("O", "S3", "U2", "M8[s]", "f4,i4", "V3")
FLOATS = (np.float32, np.float32, np.float32, np.float64, np.float16, bfloat16 or np.float32)
METHODS = (
    "__index__",
    "__float__",
    "__bool__",
    "__len__",
    "__iter__",
    "__getitem__",
    "__call__",
    "__str__",
    "__repr__",
)
PROPERTIES = ("shape", "dtype", "items", "requires_grad")


class Harm(Exception):
    """The exception of the callbacks."""


def harm(*_: Any, **__: Any) -> Any:
    raise Harm("raised by the caller's own code")


class Exported:
    """An array of another library, which has __dlpack__ only."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self.__array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.__array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Subclass(np.ndarray):
    """A subclass of ndarray, like np.matrix."""


class Values:
    """The random draws of one case, determined by its number."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.numbers = np.random.default_rng(number)
        self.is_huge = False  # an argument is larger than memory: MemoryError is allowed
        self.is_harmful = False  # code of the caller raises Harm
        self.kept: list[Any] = []  # what callbacks were given

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def length(self, longest: int = 70) -> int:
        return self.pick(*(length for length in LENGTHS if length <= longest))

    def normal(self, *shape: int, dtype: Any = np.float32) -> np.ndarray:
        return self.numbers.standard_normal(shape).astype(dtype)

    # ---- Valid arrays ------------------------------------------------------------------------------------------

    def laid_out(self, array: np.ndarray) -> Any:
        """The same numbers in another memory layout."""
        if array.ndim == 0 or self.chance(0.5):
            return array
        other = Exported if array.dtype.kind in "fiub" else _reversed
        return self.pick(_reversed, _spread, _transposed, _cut_out, _read_only, _subclassed, other)(array)

    def guarded(self, shape: tuple[int, ...], dtype: Any) -> Guarded:
        """An array for results, in any layout, surrounded by memory that must not be written to."""
        return Guarded(self, shape, np.dtype(dtype))

    # ---- Invalid values ----------------------------------------------------------------------------------------

    def odd(self, value: Any) -> Any:
        """Something near the value, or far from it."""
        if self.chance(0.25):
            return self.anything()
        if isinstance(value, np.ndarray):
            changes = (self.reshaped, self.retyped, self.renumbered, self.rehoused)
            return self.pick(*changes)(value) if value.size < 1 << 22 else value[None]
        if isinstance(value, (bool, int, float)):
            return self.number(value)
        if isinstance(value, str):
            near = ("", value.upper(), value + "x", "none", "\ud800", "a\0b")
            return self.pick(*near, value.encode("utf-8", "replace"), [value], 1)
        if isinstance(value, (list, tuple)) and len(value) > 0:
            changed = list(value)
            changed[self.random.randrange(len(changed))] = self.odd(self.pick(*value))
            others = (changed[:-1], [*changed, changed[0]], [changed], changed[0])
            objects = np.empty(len(value), object)
            objects[:] = [None] * len(value)
            return self.pick(changed, *others, objects)
        return self.anything()

    def reshaped(self, array: np.ndarray) -> Any:
        """The same numbers, or most of them, along other axes."""
        if array.ndim == 0 or self.chance(0.2):
            return array[(None,) * self.random.randint(1, 7 - min(6, array.ndim))]
        if self.chance(0.1):
            return self.repeated(array)
        axis = self.random.randrange(array.ndim)
        index = (slice(None),) * axis
        if self.chance(0.2):
            shape = [*array.shape[:axis], self.pick(0, 1, 2, 3, 8), *array.shape[axis + 1 :]]
            if array.size == 0 and max(shape) > 1 << 40:  # made by repeated()
                return array[None]
            return np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
        return self.pick(
            array[(*index, slice(1, None))],
            array[(*index, slice(0, 0))],
            array[(*index, 0)] if array.shape[axis] else array[..., None],
            np.concatenate([array, array], axis),
            array.T,
            array.ravel(),
        )

    def repeated(self, array: np.ndarray) -> np.ndarray:
        """One number, repeated in an array of nearly the largest possible size."""
        self.is_huge = True
        shape = list(array.shape)
        shape[self.random.randrange(len(shape))] = self.pick(2**45, 2**56)
        try:
            return np.broadcast_to(np.zeros((), array.dtype), shape)
        except ValueError:
            return array[None]

    def retyped(self, array: np.ndarray) -> Any:
        dtype = self.pick(*NUMBERS, *OTHERS, bfloat16 or "<f4")
        try:
            with np.errstate(all="ignore"):
                return array.astype(dtype)
        except Exception:  # NumPy has several for numbers that a type cannot represent
            return np.zeros(array.shape, dtype)

    def renumbered(self, array: np.ndarray) -> np.ndarray:
        """The array with some numbers changed."""
        changed = np.array(array)
        flat = changed.reshape(-1)
        for _ in range(min(flat.size, 3)):
            numbers = (np.nan, np.inf, -np.inf, -1, 0, 1e30, 2**31 - 1, 2**62, -(2**63), 1 << 40)
            with np.errstate(all="ignore"):
                flat[self.random.randrange(flat.size)] = np.float64(self.pick(*numbers)).astype(changed.dtype)
        return changed

    def rehoused(self, array: np.ndarray) -> Any:
        """The same numbers in another container."""
        library = (np.ndarray.tolist, np.ma.masked_array)
        return self.pick(_unaligned, _overlapping, _in_memoryview, _as_objects, *library)(array)

    def number(self, value: Any) -> Any:
        if not abs(value) < 2**63:
            return self.anything()
        near = (value + 1, value - 1, -value, 0, value + 0.5, float(value), bool(value), str(value), [value])
        scalars = (np.float32(value), np.bool_(value), complex(value), None)
        arrays = (np.array(value), np.array([value]), np.array([value, value]))
        return self.pick(*near, *scalars, *arrays, self.large(), self.large())

    def large(self) -> Any:
        self.is_huge = True
        integers = (2**31, 2**40, 2**45, 2**61, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, -(2**70), 10**5000)
        return self.pick(*integers, 1e300, float("nan"), float("inf"), -float("inf"))

    def anything(self) -> Any:
        if self.chance(0.2):
            return self.hostile()
        kinds = (
            (None, True, False, -1, 0, 1, 2, 0.5, 3 + 4j, np.int64(3)),
            ("", "text", "\ud800", b"bytes", bytearray(b"abc"), memoryview(b"ab")),
            ([], [[]], (), (1, 2), (1, 2, 3), [[1.0], [1.0, 2.0]], [None], {1, 2}, range(3), iter([1, 2])),
            (object(), object, len, slice(1), Ellipsis, np.float32, {}, {"q": 1}),
            (np.array(None), np.array("x"), np.array(3), np.zeros(3), np.zeros((2, 0)), np.matrix([[1.0, 2.0]])),
            (self.large(),),
        )
        return self.pick(*self.pick(*kinds))

    def hostile(self) -> Any:
        """An object whose methods raise or return wrong values."""
        self.is_harmful = True
        members: dict[str, Any] = {}
        for name in self.random.sample((*METHODS, "__array__", "__dlpack__", *PROPERTIES), self.random.randint(1, 4)):
            answer = self.pick(None, -1, 2**70, "text", 5, (2, 3), Ellipsis, True, np.zeros((2, 3)))
            member = self.pick(harm, lambda *_, answer=answer, **__: answer)
            members[name] = property(member) if name in PROPERTIES else member
        if "__getitem__" in members:  # iteration must end
            members["__getitem__"] = lambda _, index: [1, 2, 3][index]
        return type("Hostile", (), {**members, "members": list(members)})()

    # ---- Callbacks ---------------------------------------------------------------------------------------------

    def bad_modifier(self, disturb: Callable[[], Any]) -> Any:
        """A score_mod that misbehaves. `disturb` calls back into the library."""

        def keep(scores: Any, *rest: Any) -> Any:
            self.kept.append((scores, *rest))
            return scores

        def reenter(scores: Any, *_: Any) -> Any:
            disturb()
            return scores

        arrays = (np.zeros((2, 3, 4)), np.zeros(1000), np.array(["a"]), np.float32(1))
        answer = self.pick(None, "text", b"ab", 1j, object(), [], [[1], [1, 2]], {}, 0.5, np.nan, -np.inf, *arrays)
        if self.chance(0.3):
            self.is_harmful = True
            return self.pick(harm, lambda *_: self.hostile())
        return self.pick(keep, reenter, lambda *_: answer, lambda scores: scores, lambda scores, *_: scores.T)


class Guarded:
    """Memory with an array in it: `array` may be written to, the bytes around and between its elements may not."""

    def __init__(self, values: Values, shape: tuple[int, ...], dtype: np.dtype) -> None:
        order = list(range(len(shape)))
        if values.chance(0.3):
            values.random.shuffle(order)
        steps = [values.pick(1, 1, 1, 2, -1) for _ in shape]
        stored = [shape[axis] * abs(steps[axis]) + values.pick(0, 0, 1) for axis in order]
        size = int(np.prod(stored)) if stored else 1
        margin = 64
        self._memory = values.numbers.integers(0, 256, (size + 2 * margin) * dtype.itemsize, np.uint8)
        self._may_change = np.zeros(self._memory.size, bool)

        def view(memory: np.ndarray, dtype: Any) -> np.ndarray:
            whole = memory[margin * dtype.itemsize : -margin * dtype.itemsize].view(dtype).reshape(stored)
            whole = whole.transpose([order.index(axis) for axis in range(len(shape))])
            ends = (slice(0, n * abs(step), abs(step)) for n, step in zip(shape, steps))
            whole = whole[(*ends, ...)]
            return whole[(*(slice(None, None, -1 if step < 0 else 1) for step in steps), ...)]

        self.array = view(self._memory, dtype)
        view(self._may_change, np.dtype((np.void, dtype.itemsize)))[...] = b"\1" * dtype.itemsize
        self._before = self._memory.copy()

    def is_intact(self) -> bool:
        return bool((self._memory == self._before)[~self._may_change].all())


def _reversed(array: np.ndarray) -> np.ndarray:
    back = (slice(None, None, -1),) * array.ndim
    return array[back].copy()[back]


def _spread(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 3, axis=-1)[..., ::3] if array.ndim else array


def _transposed(array: np.ndarray) -> np.ndarray:
    return np.asfortranarray(array)


def _cut_out(array: np.ndarray) -> np.ndarray:
    whole = np.zeros([n + 2 for n in array.shape], array.dtype)
    inside = whole[(slice(1, -1),) * array.ndim]
    inside[...] = array
    return inside


def _read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def _subclassed(array: np.ndarray) -> np.ndarray:
    return array.view(Subclass)


def _unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    copy = memory.view(array.dtype).reshape(array.shape) if array.dtype != object else array.copy()
    copy[...] = array
    return copy


def _overlapping(array: np.ndarray) -> np.ndarray:
    """Rows that share elements, as sliding windows do."""
    if array.ndim < 2 or array.size == 0:
        return array
    memory = np.resize(array.ravel(), array.shape[0] + array[0].size)
    return np.lib.stride_tricks.sliding_window_view(memory, array[0].size)[: array.shape[0]].reshape(array.shape)


def _in_memoryview(array: np.ndarray) -> Any:
    try:
        return memoryview(array)
    except (ValueError, BufferError):
        return array


def _as_objects(array: np.ndarray) -> np.ndarray:
    return array.astype(object)
