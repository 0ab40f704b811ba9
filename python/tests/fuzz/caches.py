"""Rotary embeddings, and caches with sequences of calls."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any, Callable

import numpy as np
import saccade

import reference

from .call import Call, Case, assert_shape, sound, spoiled
from .problem import assert_close
from .values import FLOATS, Values


def rope(values: Values) -> Case:
    dim = values.pick(1, 2, 3, 8, 64)
    rotary_dim = values.pick(0, 2) if dim > 1 and dim % 2 == 0 else 0
    given = {"dim": dim, "rotary_dim": rotary_dim, "pairs": values.pick("half", "interleaved")}
    given.update(theta=values.pick(10000.0, 500), scaling_factor=values.pick(1, 4.0))
    if values.chance(0.2):
        given["frequencies"] = values.numbers.random((rotary_dim or dim) // 2).tolist()
    call = spoiled(values, Call("saccade.Rope", saccade.Rope, given, fits=dim % 2 == 0))
    made = yield call
    if not call.fits or not isinstance(made, saccade.Rope):
        return
    shape = tuple(values.length(17) for _ in range(values.pick(0, 1, 2))) + (values.length(), dim)
    x = values.normal(*shape, dtype=values.pick(*FLOATS))
    arguments: dict[str, Any] = {"x": x, "layout": values.pick("bhsd", "bshd")}
    seqlen = shape[-3] if arguments["layout"] == "bshd" and len(shape) > 2 else shape[-2]
    guards = ()
    if values.chance(0.3):
        arguments["start"] = values.pick(0, -5, 1000, 2**39)
    elif values.chance(0.3):
        arguments["positions"] = values.numbers.integers(-5, 100, seqlen)
    if values.chance(0.4):
        guards = (values.guarded(shape, x.dtype),)
        arguments["out"] = guards[0].array
    elif values.chance(0.2):
        arguments["out"] = x
    call = Call("Rope.rotate", made.rotate, arguments, check=lambda y: assert_shape(y, shape), guards=guards)
    yield spoiled(values, call)


class CacheModel:
    """The expected contents of a KvCache without a window."""

    def __init__(self, batch: int, kv_heads: int, dim: int, dim_v: int) -> None:
        self.k = [np.zeros((kv_heads, 0, dim), np.float32) for _ in range(batch)]
        self.v = [np.zeros((kv_heads, 0, dim_v), np.float32) for _ in range(batch)]

    @property
    def lengths(self) -> list[int]:
        return [k.shape[1] for k in self.k]

    def append(self, b: int, k: np.ndarray, v: np.ndarray) -> None:
        self.k[b], self.v[b] = np.concatenate([self.k[b], k], 1), np.concatenate([self.v[b], v], 1)

    def truncate(self, b: int, length: int, of: int | None = None) -> None:
        source = b if of is None else of
        self.k[b], self.v[b] = self.k[source][:, :length], self.v[source][:, :length]


_FOLDER = tempfile.TemporaryDirectory()
_FILE = os.path.join(_FOLDER.name, "cache.safetensors")


def _loaded(path: Any) -> None:
    """Loads a cache, which some call may have saved."""
    if not isinstance(path, str) or path != _FILE or os.path.exists(_FILE):
        saccade.KvCache.load(path)


def kv_cache(values: Values) -> Case:
    batch, kv_heads, dim, dim_v = values.pick(1, 2, 3), values.pick(1, 2), values.pick(1, 8, 33), values.pick(1, 8)
    given = {
        "num_kv_heads": kv_heads,
        "head_dim": dim,
        "batch": batch,
        "head_dim_v": dim_v,
        "dtype": values.pick("float32", np.float32, np.dtype("float32")),
        "page_size": values.pick(0, 0, 1, 4, 16),
        "capacity": values.pick(0, 0, 1, 100),
    }
    call = spoiled(values, Call("saccade.KvCache", saccade.KvCache, given))
    cache = yield call
    if not isinstance(cache, saccade.KvCache) or (cache.lengths, cache._head_dim_v) != ([0] * batch, dim_v):
        return
    model = CacheModel(batch, kv_heads, dim, dim_v)
    is_plain = call.fits and values.chance(0.7)  # else the model may be wrong
    for _ in range(values.random.randint(1, 12)):
        call, follow = values.pick(_append, _append, _decode, _decode, _truncate, _share, _look)(values, cache, model)
        result = yield call if is_plain else spoiled(values, call._replace(fits=False, check=sound))
        if is_plain:
            follow()
            assert cache.lengths == model.lengths, f"lengths are {cache.lengths}, not {model.lengths}"
        elif isinstance(result, Exception):
            continue
        else:
            assert len(cache.lengths) == batch and min(cache.lengths) >= 0
            if cache.lengths != model.lengths:
                return


Step = tuple[Call, Callable[[], None]]  # a call, and its effect on the model


def _append(values: Values, cache: saccade.KvCache, model: CacheModel) -> Step:
    count, b = values.length(33), values.random.randrange(len(model.k))
    kv_heads, dim, dim_v = model.k[0].shape[0], model.k[0].shape[2], model.v[0].shape[2]
    bshd = values.chance(0.3)
    arguments: dict[str, Any] = {"layout": "bshd"} if bshd else {}
    if values.chance(0.5):
        k, v = values.normal(kv_heads, count, dim), values.normal(kv_heads, count, dim_v)
        arguments.update(k=k, v=v, sequence=b)
    else:
        k, v = (values.normal(len(model.k), kv_heads, count, n) for n in (dim, dim_v))
        arguments.update(k=k, v=v)

    def follow() -> None:
        for i in [b] if k.ndim == 3 else range(len(model.k)):
            model.append(i, k if k.ndim == 3 else k[i], v if v.ndim == 3 else v[i])

    if bshd:
        arguments.update(k=np.ascontiguousarray(k.swapaxes(-2, -3)), v=v.swapaxes(-2, -3))
    arguments.update({name: values.laid_out(arguments[name]) for name in "kv"})
    return Call("KvCache.append", cache.append, arguments), follow


def _decode(values: Values, cache: saccade.KvCache, model: CacheModel) -> Step:
    function = values.pick(cache.decode, cache.attention)
    kv_heads, dim = model.k[0].shape[0], model.k[0].shape[2]
    q = values.normal(len(model.k), kv_heads * values.pick(1, 2), values.pick(1, 1, 3), dim)

    def check(o: np.ndarray) -> None:
        assert o.shape == (*q.shape[:-1], model.v[0].shape[2])
        for b, (k, v) in enumerate(zip(model.k, model.v)):
            seen = reference.visible(q.shape[2], k.shape[1], causal="bottom_right")
            assert_close(o[b], q[b], k, v, seen=seen)

    arguments: dict[str, Any] = {"q": values.laid_out(q)}
    guards = ()
    if values.chance(0.3):
        guards = (values.guarded((*q.shape[:-1], model.v[0].shape[2]), np.float32),)
        arguments["out"] = guards[0].array
    if values.chance(0.1):
        k, v = model.k[0][None], model.v[0][None]
        disturb = values.pick(lambda: cache.clear(0), lambda: cache.truncate(0, 0), lambda: cache.append(k, v))

        def score_mod(scores: Any, *_: Any) -> Any:
            assert cache.lengths == model.lengths
            with contextlib.suppress(RuntimeError, ValueError):
                disturb()
            return scores

        arguments["score_mod"] = score_mod
    return Call(f"KvCache.{function.__name__}", function, arguments, check=check, guards=guards), lambda: None


def _truncate(values: Values, cache: saccade.KvCache, model: CacheModel) -> Step:
    b = values.random.randrange(len(model.k))
    if values.chance(0.3):
        return Call("KvCache.clear", cache.clear, {"sequence": b}), lambda: model.truncate(b, 0)
    length = values.random.randint(0, model.lengths[b])
    call = Call("KvCache.truncate", cache.truncate, {"sequence": b, "length": length})
    return call, lambda: model.truncate(b, length)


def _share(values: Values, cache: saccade.KvCache, model: CacheModel) -> Step:
    a, b = (values.random.randrange(len(model.k)) for _ in range(2))
    length = values.random.randint(0, model.lengths[a])
    arguments = {"from_sequence": a, "to_sequence": b, "length": length}
    return Call("KvCache.share_prefix", cache.share_prefix, arguments), lambda: model.truncate(b, length, of=a)


def _look(values: Values, cache: saccade.KvCache, model: CacheModel) -> Step:
    count, b = values.length(), values.random.randrange(len(model.k))
    shape = (len(model.k), count)
    calls = (
        Call("KvCache.positions", cache.positions, {"count": count}, check=lambda p: assert_shape(p, shape)),
        Call("KvCache.first_kept", cache.first_kept, {"sequence": b}),
        Call("KvCache.nbytes", lambda: (cache.nbytes, cache.pages_in_use, cache.starts), {}),
        Call("KvCache.set_start", cache.set_start, {"sequence": b, "start": 0}),
        Call("KvCache.dequantize_k", cache.dequantize_k, {}),
        Call("KvCache.dequantize_v", cache.dequantize_v, {}),
        Call("KvCache.save", cache.save, {"path": _FILE}, may_raise=(OSError, RuntimeError, TypeError)),
        Call("KvCache.load", _loaded, {"path": _FILE}, may_raise=(OSError, RuntimeError, TypeError)),
    )
    return values.pick(*calls), lambda: None
