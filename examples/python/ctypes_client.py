"""Attention from Python through the C interface alone: what any language that calls C does.

    python ctypes_client.py libsaccade.so

Only ctypes is needed; NumPy appears here because it holds the numbers.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np

ATTENTION, KV_CACHE, INSPECT, ROPE = range(4)  # kinds of options
DTYPES = {"float32": 0, "float64": 1, "float16": 2, "bool": 4, "int32": 7, "int64": 8}


class Tensor(ctypes.Structure):
    """saccade_tensor: a view of an array, which it keeps alive."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]

    def __init__(self, array: np.ndarray) -> None:
        numbers = ctypes.c_int64 * array.ndim
        strides = numbers(*(step // array.itemsize for step in array.strides))
        super().__init__(array.ctypes.data, DTYPES[array.dtype.name], array.ndim, numbers(*array.shape), strides)
        self.array = array


class Saccade:
    """The functions of libsaccade.so; a status that is not 0 becomes a ValueError with the library's message."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.saccade_last_error.restype = ctypes.c_char_p
        self.library.saccade_version.restype = ctypes.c_char_p

    def call(self, name: str, *arguments) -> None:
        passed = [ctypes.byref(a) if isinstance(a, Tensor) else a for a in arguments]
        if getattr(self.library, "saccade_" + name)(*passed) != 0:
            raise ValueError(self.library.saccade_last_error().decode())

    def options(self, kind: int = ATTENTION, **values) -> Options:
        return Options(self, kind, values)


class Options:
    """saccade_options, which are set by name."""

    def __init__(self, saccade: Saccade, kind: int, values: dict) -> None:
        self.saccade, self.handle, self.kept = saccade, ctypes.c_void_p(), list(values.values())
        saccade.call("options_create", kind, ctypes.byref(self.handle))
        self._as_parameter_ = self.handle  # what ctypes passes for this object
        for name, value in values.items():
            self.set(name.encode(), value)

    def set(self, name: bytes, value) -> None:
        if isinstance(value, np.ndarray):
            self.saccade.call("options_set_tensor", self.handle, name, Tensor(value))
        elif isinstance(value, str):
            self.saccade.call("options_set_text", self.handle, name, value.encode())
        elif isinstance(value, float):
            self.saccade.call("options_set_f64", self.handle, name, ctypes.c_double(value))
        else:
            self.saccade.call("options_set_i64", self.handle, name, ctypes.c_int64(value))

    def __del__(self) -> None:
        self.saccade.library.saccade_options_destroy(self.handle)


def main() -> None:
    saccade = Saccade(sys.argv[1])
    x = np.array([[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64]], np.float32)
    o = np.empty_like(x)
    options = saccade.options(scale=1.0, causal="top_left")
    saccade.call("attention", Tensor(x), Tensor(x), Tensor(x), Tensor(o), options)
    print(f"saccade {saccade.library.saccade_version().decode()}")
    print(o.round(4))


if __name__ == "__main__":
    main()
