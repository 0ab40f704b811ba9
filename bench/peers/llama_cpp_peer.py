"""llama.cpp: flash attention of ggml, its tensor library, called with ctypes. Over caches only."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import pathlib
from typing import Any

import numpy as np

from .inputs import Inputs
from .peer import Call, Unsupported, Way, by_turns, cache_count
from .problem import Problem

TITLE = "llama.cpp"
DISTRIBUTIONS = ("llama_cpp_python",)

_F32 = 0
_TYPES = {"bf16": (1, "f16"), "int8": (8, "q8_0"), "int4": (2, "q4_0")}  # of ggml_type, for each format of a cache


class _InitParams(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class _Ggml:
    """The functions of ggml that are used here, with their types.

    :raises ImportError: without the package llama-cpp-python or its libraries.
    """

    def __init__(self) -> None:
        # Not imported: this would load more than ggml, which may be all that was built.
        package = importlib.util.find_spec("llama_cpp")
        if package is None or package.origin is None:
            raise ImportError("llama-cpp-python is not installed")
        folder = pathlib.Path(package.origin).parent / "lib"
        loaded = []
        for name in ("libggml-base.so", "libggml-cpu.so"):
            if not (folder / name).exists():
                raise ImportError(f"there is no {folder / name}")
            loaded.append(ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL))
        base, cpu = loaded
        pointer, whole, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

        def function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found

        self.init = function(base, "ggml_init", pointer, _InitParams)
        self.free = function(base, "ggml_free", None, pointer)
        self.new_tensor = function(base, "ggml_new_tensor_4d", pointer, pointer, ctypes.c_int, *[whole] * 4)
        self.data = function(base, "ggml_get_data", pointer, pointer)
        self.bytes = function(base, "ggml_nbytes", ctypes.c_size_t, pointer)
        self.row_bytes = function(base, "ggml_row_size", ctypes.c_size_t, ctypes.c_int, whole)
        self.quantize = function(
            base, "ggml_quantize_chunk", ctypes.c_size_t, ctypes.c_int, pointer, pointer, whole, whole, whole, pointer
        )
        self.flash_attention = function(base, "ggml_flash_attn_ext", pointer, *[pointer] * 5, *[number] * 3)
        self.new_graph = function(base, "ggml_new_graph", pointer, pointer)
        self.expand = function(base, "ggml_build_forward_expand", None, pointer, pointer)
        self.compute = function(base, "ggml_backend_graph_compute", ctypes.c_int, pointer, pointer)
        self.backend = function(cpu, "ggml_backend_cpu_init", pointer)()
        self.set_threads = function(cpu, "ggml_backend_cpu_set_n_threads", None, pointer, ctypes.c_int)


_ggml = _Ggml()


def start(threads: int) -> None:
    _ggml.set_threads(_ggml.backend, threads)


def ways(problem: Problem) -> list[Way]:
    if not problem.cache:
        raise Unsupported("called over caches only")
    return [Way(f"ggml_flash_attn_ext, {_TYPES[problem.cache][1]}", _cached)]


class _Layer:
    """A graph of one flash attention, with a cache of its own."""

    def __init__(self, inputs: Inputs, dtype: int) -> None:
        p = inputs.problem
        rows = p.batch * p.num_kv_heads * p.seqlen_k
        size = 2 * rows * _ggml.row_bytes(dtype, p.head_dim) + 2 * inputs.q.nbytes + 2**20
        self.context = _ggml.init(_InitParams(size, None, False))

        def tensor(dtype: int, array: np.ndarray) -> int:
            return _ggml.new_tensor(self.context, dtype, *reversed(array.shape))

        q, k, v = tensor(_F32, inputs.q), tensor(dtype, inputs.k), tensor(dtype, inputs.v)
        ctypes.memmove(_ggml.data(q), inputs.q.ctypes.data, inputs.q.nbytes)
        for stored, array in ((k, inputs.k), (v, inputs.v)):
            _ggml.quantize(dtype, array.ctypes.data, _ggml.data(stored), 0, rows, p.head_dim, None)
        self.o = _ggml.flash_attention(self.context, q, k, v, None, p.head_dim**-0.5, 0.0, 0.0)
        self.graph = _ggml.new_graph(self.context)
        _ggml.expand(self.graph, self.o)

    def run(self) -> np.ndarray:
        """Computes it: [batch, 1, num_heads, head_dim] in the layer's memory, without its shape."""
        status = _ggml.compute(_ggml.backend, self.graph)
        if status:
            raise RuntimeError(f"ggml_backend_graph_compute: status {status}")
        memory = (ctypes.c_float * (_ggml.bytes(self.o) // 4)).from_address(_ggml.data(self.o))
        return np.ctypeslib.as_array(memory)

    def __del__(self) -> None:
        if getattr(self, "context", None):
            _ggml.free(self.context)


def _cached(inputs: Inputs) -> Call:
    p = inputs.problem
    layers = [_Layer(inputs, _TYPES[p.cache][0]) for _ in range(cache_count(p))]

    def results(o: np.ndarray) -> dict[str, np.ndarray]:
        return {"o": o.reshape(p.batch, 1, p.num_heads, p.head_dim).swapaxes(1, 2)}

    return Call(by_turns([functools.partial(_Layer.run, layer) for layer in layers]), results)
