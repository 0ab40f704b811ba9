"""Calls one operation of the package with each of its first allocations failing, then one in eight of the later ones.

Usage: LD_PRELOAD=FAULT_LIBRARY failing_allocations.py FAULT_LIBRARY OPERATION

The call must raise MemoryError and leave its object as it was; called again, it must have the results of a call that
nothing disturbed. Prints how many allocations failed. (Pages are left out: nlohmann-json ends the program there.)"""

import ctypes
import errno
import os
import pathlib
import sys
import tempfile

import numpy as np
import saccade
from saccade import nn

EACH = 40
RANDOM = np.random.default_rng(0)
Q, K, V = (RANDOM.standard_normal((1, 4, 40, 16), np.float32) for _ in range(3))
X = RANDOM.standard_normal((20, 16), np.float32)
_folder = tempfile.TemporaryDirectory()  # removed when the program ends
FOLDER = pathlib.Path(_folder.name)


def nothing():
    return None


def attention():
    return lambda: saccade.attention(Q, K, V, causal="top_left", return_weights=True, return_lse=True), nothing


def gradients():
    o, lse = saccade.attention(Q, K, V, return_lse=True)

    def call():
        found = saccade.attention_backward(Q, K, V, o, lse, Q)
        return found.dq, found.dk, found.dv

    return call, nothing


def inspect():
    def call():
        found = saccade.inspect(Q, K, top_k=3, entropy=True, rows=[1, 2])
        return found.top_weights, found.entropy, found.rows

    return call, nothing


def filled(dtype="float32", page_size=0):
    cache = saccade.KvCache(num_kv_heads=4, head_dim=16, dtype=dtype, page_size=page_size)
    cache.append(K[:, :, :30], V[:, :, :30])
    return cache


def numbers_of(cache):
    return lambda: (np.array(cache.lengths), cache.dequantize_k(), cache.dequantize_v())


def append():
    cache = filled(page_size=16)
    return lambda: cache.append(K, V), numbers_of(cache)


def append_quantized():
    cache = filled("int4")
    return lambda: cache.append(K, V), numbers_of(cache)


def decode():
    cache = filled("int8")
    return lambda: cache.decode(Q[:, :, :1]), numbers_of(cache)


def save():
    cache = filled()
    path = FOLDER / "cache.safetensors"
    path.write_bytes(b"old")
    return lambda: cache.save(path), lambda: (np.frombuffer(path.read_bytes(), np.uint8), np.array(os.listdir(FOLDER)))


def load():
    path = FOLDER / "cache.safetensors"
    filled().save(path)
    return lambda: numbers_of(saccade.KvCache.load(path))(), nothing


def module():
    self_attention = nn.MultiHeadAttention(16, 16, context_length=20, num_heads=2, dropout=0.0, seed=1)
    return lambda: self_attention.forward(X[None]), lambda: tuple(self_attention.state_dict().values())


def picture():
    weights = np.full((2, 6, 6), 1 / 6, np.float32)
    return lambda: np.frombuffer(saccade.heatmap(weights, list("abcdef"), title="t").svg.encode(), np.uint8), nothing


OPERATIONS = {
    f.__name__: f
    for f in (attention, gradients, inspect, append, append_quantized, decode, save, load, module, picture)
}


def same(found, wanted):
    if found is None or wanted is None:
        return found is wanted
    found, wanted = (x if isinstance(x, tuple) else (x,) for x in (found, wanted))
    return len(found) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(found, wanted))


def fails(call):
    """Calls; returns the result, and whether memory was short instead."""
    try:
        return call(), False
    except MemoryError:
        return None, True
    except RuntimeError as error:  # of a reader
        assert str(error).endswith("does not fit in memory"), error
        return None, True


def main():
    library, operation = ctypes.CDLL(sys.argv[1]), OPERATIONS[sys.argv[2]]
    library.fault_calls.restype = ctypes.c_long
    os.environ.update(FAULT_REPORT=os.devnull, FAULT_ERROR=str(errno.ENOMEM))
    call, state = operation()
    wanted = call(), state()
    number = failures = 0
    is_reached = True
    while is_reached:
        number += 1 if number < EACH else 8
        call, state = operation()
        before = state()
        os.environ["FAULT_NUMBER"] = str(number)
        library.fault_begin()
        os.environ["FAULT_CALL"] = "allocation"
        result, failed = fails(call)
        del os.environ["FAULT_CALL"]
        is_reached = library.fault_calls() >= number
        assert is_reached or not failed
        if failed:
            failures += 1
            assert same(state(), before), f"allocation {number}: the object has changed"
            result = call()
        assert same(result, wanted[0]) and same(state(), wanted[1]), f"allocation {number}: other results"
    print(f"{sys.argv[2]}: {failures} allocations failed")
    assert failures > 0


if __name__ == "__main__":
    main()
