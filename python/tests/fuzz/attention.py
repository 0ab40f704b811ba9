"""The functions of attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import saccade

import reference

from .call import Call, Case, sound, spoiled
from .problem import Problem, assert_close
from .values import Guarded, Values

ARRAYS = (
    *("q", "k", "v", "mask", "block_mask", "block_table"),
    *("kv_lengths", "kv_starts", "query_offset", "alibi_slopes", "sinks"),
)


def of_its_shape(call: Call) -> Call:
    """The call, also checked for the output shape and dtype that follow from q and v, for any arguments."""

    def check(result: Any) -> None:
        call.check(result)
        o, q, v = result[0] if isinstance(result, tuple) else result, call.arguments["q"], call.arguments["v"]
        if call.arguments.get("out") is None and all(isinstance(x, np.ndarray) for x in (q, v)):
            assert o.shape == (*q.shape[:-1], v.shape[-1]), f"the output has shape {o.shape}"
            assert o.dtype == q.dtype, f"the output is {o.dtype}"

    return call._replace(check=check)


def attention(values: Values) -> Case:
    function = values.pick(saccade.attention, saccade.decode)
    problem = Problem(values, paged=values.chance(0.2))
    arguments = problem.arguments()
    asked = {name: values.chance(0.2) for name in ("return_lse", "return_weights")}
    guards: list[Guarded] = []
    if values.chance(0.4):
        dtype = problem.dtype if problem.dtype == np.float64 else values.pick(problem.dtype, np.float32, np.float16)
        guards.append(values.guarded((*problem.shaped(problem.q).shape[:-1], problem.dim_v), dtype))
        arguments["out"] = guards[-1].array

    def check(result: Any) -> None:
        o, *others = result if isinstance(result, tuple) else (result,)
        assert "out" not in arguments or o is arguments["out"], "the output is another than out"
        problem.check_output(o)
        shapes = {"return_lse": problem.per_row(), "return_weights": problem.per_row(problem.seqlen_k)}
        assert [x.shape for x in others] == [shape for name, shape in shapes.items() if asked[name]]
        assert all(x.dtype == problem.precision for x in others)

    call = Call(f"saccade.{function.__name__}", function, {**arguments, **asked}, check=check, guards=tuple(guards))
    call = spoiled(values, call)
    if values.chance(0.1):
        call = overlapping(values, call, problem)
    elif values.chance(0.1):
        call = with_bad_modifier(values, call)
    yield of_its_shape(call)


def overlapping(values: Values, call: Call, problem: Problem) -> Call:
    """The call with an output that shares memory with an input."""
    inputs = [name for name in ARRAYS if type(call.arguments.get(name)) is np.ndarray]
    shape = (*problem.shaped(problem.q).shape[:-1], problem.dim_v)
    if not inputs:
        return call
    name = values.pick(*inputs)
    given = call.arguments[name]
    out_bytes = int(np.prod(shape)) * np.dtype(problem.dtype).itemsize
    if given.dtype == object or given.size > 2**30 or given.nbytes == 0:
        return call
    memory = np.zeros(given.nbytes + out_bytes + 64, np.uint8)
    shift = values.pick(0, 8, given.nbytes // 8 * 8)
    moved = memory[: given.nbytes].view(given.dtype).reshape(given.shape)
    out = memory[shift : shift + out_bytes].view(problem.dtype).reshape(shape)
    moved[...] = given
    return call._replace(arguments={**call.arguments, name: moved, "out": out}, fits=False, guards=(), check=sound)


def with_bad_modifier(values: Values, call: Call) -> Call:
    """The call with a score_mod, or its derivative, that misbehaves."""

    def disturb() -> None:
        x = np.ones((1, 2, 40, 8), np.float32)
        saccade.set_num_threads(values.pick(1, 2, 3))
        saccade.release_workspaces()
        np.testing.assert_allclose(saccade.attention(x, x, x, causal="top_left"), 1, rtol=1e-5)
        table = call.arguments.get("block_table")
        if isinstance(table, np.ndarray) and table.dtype == np.int32 and table.flags.writeable:
            table[...] = 2**30  # the call must still read the pages that it was given

    options = {"score_mod": values.bad_modifier(disturb)}
    if "lse" in call.arguments and values.chance(0.5):
        options = {"score_mod": lambda scores, *_: scores, "score_mod_backward": values.bad_modifier(disturb)}
    return call._replace(arguments={**call.arguments, **options}, fits=False, check=sound)


def attention_varlen(values: Values) -> Case:
    documents = values.pick(0, 1, 2, 4)
    lengths_q = np.array([values.length(33) for _ in range(documents)], np.int64)
    lengths_k = lengths_q if values.chance(0.5) else np.array([values.length(33) for _ in range(documents)], np.int64)
    kv_heads = values.pick(1, 2)
    heads, dim, dim_v = kv_heads * values.pick(1, 2), values.pick(1, 8, 33), values.pick(1, 8, 64)
    q = values.normal(lengths_q.sum(), heads, dim)
    k, v = values.normal(lengths_k.sum(), kv_heads, dim), values.normal(lengths_k.sum(), kv_heads, dim_v)
    causal = values.pick(None, "top_left", "bottom_right")
    window = values.pick((-1, -1), (4, 2))
    starts_q, starts_k = (np.concatenate([[0], np.cumsum(x)]) for x in (lengths_q, lengths_k))
    starts_q = starts_q.astype(values.pick(np.int32, np.int64))
    arguments = {"q": values.laid_out(q), "k": values.laid_out(k), "v": values.laid_out(v), "cu_seqlens_q": starts_q}
    if lengths_k is not lengths_q or values.chance(0.3):
        arguments["cu_seqlens_k"] = values.pick(starts_k, starts_k.tolist())
    arguments.update(causal=causal, window=window, return_lse=values.chance(0.2), return_weights=values.chance(0.2))

    def check(result: Any) -> None:
        o = result[0] if isinstance(result, tuple) else result
        assert o.shape == (len(q), heads, dim_v)
        for i in range(documents):
            rows, keys = slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1])
            seen = reference.visible(lengths_q[i], lengths_k[i], causal=causal, window=window)
            operands = (x.swapaxes(0, 1) for x in (q[rows], k[keys], v[keys]))
            assert_close(o[rows].swapaxes(0, 1), *operands, seen=seen)

    call = Call("saccade.attention_varlen", saccade.attention_varlen, arguments, check=check)
    yield of_its_shape(spoiled(values, call))


def attention_backward(values: Values) -> Case:
    problem = Problem(values)
    arguments = problem.arguments()
    o, lse = saccade.attention(**arguments, return_lse=True)
    dout = values.normal(*o.shape, dtype=o.dtype)
    arguments.update(o=values.laid_out(o), lse=values.laid_out(lse), dout=values.laid_out(dout))
    given = [name for name in ("sinks", "alibi_slopes") if name in problem.options]
    if "mask" in problem.options and problem.options["mask"].dtype in (np.float32, np.float64):
        given.append("mask")
    asked = [name for name in given if values.chance(0.5)]
    arguments.update({f"return_d{name}": True for name in asked})
    missing = "" if values.chance(0.5) else "q" if values.chance(0.5) else "kv"
    if missing:
        arguments["return_dq" if missing == "q" else "return_dk_dv"] = False

    def check(result: saccade.Gradients) -> None:
        for name in "qkv":
            gradient = getattr(result, f"d{name}")
            assert (gradient is None) == (name in missing), f"d{name} is {gradient}"
            if gradient is None:
                continue
            assert gradient.shape == arguments[name].shape and gradient.dtype == arguments[name].dtype
            assert np.isfinite(gradient.astype(np.float64)).all(), f"d{name} is not finite"
        for name in ("mask", "sinks", "alibi_slopes"):
            gradient = getattr(result, f"d{name}")
            assert (gradient is not None) == (name in asked), f"d{name} is {gradient}"
            if gradient is not None:
                assert gradient.shape == np.shape(problem.options[name]) and np.isfinite(gradient).all()

    call = Call("saccade.attention_backward", saccade.attention_backward, arguments, check=check)
    call = spoiled(values, call)
    yield with_bad_modifier(values, call) if values.chance(0.1) else call


def attention_flops(values: Values) -> Case:
    problem = Problem(values, ("kv_lengths", "kv_starts", "query_offset", "causal", "window"), paged=values.chance(0.2))

    def check(result: Any) -> None:
        assert result == 2.0 * problem.heads * problem.seen.sum() * (problem.dim + problem.dim_v), result

    call = Call("saccade.attention_flops", saccade.attention_flops, problem.arguments(), check=check)
    yield spoiled(values, call)


def merge_states(values: Values) -> Case:
    problem = Problem(values, options=())
    arguments = problem.arguments()
    both = [saccade.attention(**arguments, return_lse=True) for _ in range(2)]
    (o_a, lse_a), (o_b, lse_b) = both
    given = dict(zip(("o_a", "lse_a", "o_b", "lse_b"), map(values.laid_out, (o_a, lse_a, o_b, lse_b))))
    if problem.bshd:
        given["layout"] = "bshd"

    def check(result: tuple[np.ndarray, np.ndarray]) -> None:
        o, lse = result
        assert o.shape == o_a.shape and lse.shape == lse_a.shape and o.dtype == o_a.dtype and lse.dtype == lse_a.dtype
        error = np.abs(o.astype(np.float64) - o_a.astype(np.float64)).max(initial=0)
        assert error <= 2**-7 * np.abs(o_a.astype(np.float64)).max(initial=0), "two equal halves have another mean"

    yield spoiled(values, Call("saccade.merge_states", saccade.merge_states, given, check=check))


def scaled_dot_product_attention(values: Values) -> Case:
    lead = tuple(values.pick(0, 1, 2, 3) for _ in range(values.pick(0, 1, 2, 2, 3, 4)))
    seqlen_q, seqlen_k, dim, dim_v = values.length(), values.length(), values.pick(1, 8, 64), values.pick(1, 8, 64)
    group = values.pick(1, 1, 2) if lead else 1
    dtype = values.pick(np.float32, np.float64, np.float16)
    q_lead = (*lead[:-1], lead[-1] * group) if lead else lead
    query = values.normal(*q_lead, seqlen_q, dim, dtype=dtype)
    key, value = (values.normal(*lead, seqlen_k, n, dtype=dtype) for n in (dim, dim_v))
    arguments: dict[str, Any] = dict(zip(("query", "key", "value"), map(values.laid_out, (query, key, value))))
    meaning: dict[str, Any] = {"seen": np.ones((seqlen_q, seqlen_k), bool)}
    if group > 1:
        arguments["enable_gqa"] = True
    if values.chance(0.3):
        arguments["is_causal"] = True
        meaning["seen"] = reference.visible(seqlen_q, seqlen_k, causal="top_left")
    elif values.chance(0.3):
        arguments["attn_mask"] = meaning["seen"] = values.numbers.random((seqlen_q, seqlen_k)) < 0.7
    if values.chance(0.3):
        arguments["scale"] = meaning["scale"] = values.pick(0.3, 2)
    if values.chance(0.1):
        arguments["dropout_p"] = values.pick(0.3, 1.0, 0)

    def check(o: np.ndarray) -> None:
        assert o.shape == (*q_lead, seqlen_q, dim_v) and o.dtype == dtype
        if o.size and not arguments.get("dropout_p"):
            assert_close(o, query, key, value, **meaning)

    function = saccade.scaled_dot_product_attention
    call = Call("saccade.scaled_dot_product_attention", function, arguments, check=check)
    yield spoiled(values, call)


def inspect(values: Values) -> Case:
    problem = Problem(values, options=(*Problem.FIRST, "window", "mask", "softcap", "score_mod"))
    arguments = problem.arguments()
    del arguments["v"]
    rows = values.random.sample(range(problem.seqlen_q), min(problem.seqlen_q, 3))
    arguments.update(
        rows=rows,
        top_k=values.pick(0, 1, 5, 100),
        pool=values.pick(None, (1, 1), (3, 200)),
        pooling=values.pick("mean", "max"),
        **{name: values.chance(0.5) for name in ("entropy", "max_weight", "received", "distance")},
    )

    def check(found: saccade.Inspection) -> None:
        lead = (problem.batch, problem.heads)[4 - problem.rank :] if problem.rank > 2 else ()
        shapes = {
            "rows": (*lead, len(rows), problem.seqlen_k) if rows else None,
            "entropy": problem.per_row() if arguments["entropy"] else None,
            "max_weight": problem.per_row() if arguments["max_weight"] else None,
            "received": (*lead, problem.seqlen_k) if arguments["received"] else None,
            "distance": problem.per_row() if arguments["distance"] else None,
            "pooled": (*lead, *arguments["pool"]) if arguments["pool"] else None,
        }
        for name, shape in shapes.items():
            array = getattr(found, name)
            assert (None if array is None else array.shape) == shape, f"{name}: {shape}, {array}"
            assert array is None or np.isfinite(array).all(), f"{name} is not finite"

    call = spoiled(values, Call("saccade.inspect", saccade.inspect, arguments, check=check))
    yield with_bad_modifier(values, call) if values.chance(0.1) else call
