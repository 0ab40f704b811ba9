"""saccade_onnxruntime: sessions, graphs with other operators, and what is refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", minversion="1.23")
pytest.importorskip("onnxruntime")

import onnxruntime  # noqa: E402
import saccade_onnxruntime  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx_models import OUTPUTS, model_of, model_with, operands  # noqa: E402
from sessions import session  # noqa: E402


def past(batch=2, heads=3, seqlen=2, dim=4, dtype=np.float32) -> dict[str, Any]:
    return {name: np.zeros((batch, heads, seqlen, dim), dtype) for name in ("past_key", "past_value")}


def is_ours(prepared: onnxruntime.InferenceSession, inputs: dict[str, Any]) -> bool:
    """A row that sees no key gives 0 here; what is in hidden keys has no influence."""
    hidden = {**inputs, "attn_mask": np.zeros((1, 1, 5, 7), bool), "V": np.full_like(inputs["V"], np.nan)}
    return not prepared.run(None, hidden)[0].any()


def with_mask() -> dict[str, Any]:
    return {**operands(), "attn_mask": np.ones((1, 1, 5, 7), bool)}


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_the_operator_takes_the_place_of_the_runtimes_own(opset):
    model = model_of(with_mask(), opset=opset)
    assert is_ours(session(model), with_mask())


def test_other_domains_leave_the_standards_nodes_alone():
    model = model_of(with_mask(), opset=24)
    assert not is_ours(session(model, domain="saccade"), with_mask())
    model.graph.node[0].domain = "saccade"
    model.opset_import.append(helper.make_opsetid("saccade", 1))
    assert is_ours(session(model, domain="saccade"), with_mask())


def test_a_session_without_it_is_as_before():
    model = model_of(with_mask(), opset=24)
    wanted = session(model, own=False).run(None, with_mask())[0]
    assert is_ours(session(model), with_mask())
    assert np.array_equal(session(model, own=False).run(None, with_mask())[0], wanted)


def block_model() -> tuple[Any, dict[str, Any]]:
    """Projections, attention of rank 3, a projection, LayerNormalization: most nodes are ONNX Runtime's."""
    rng = np.random.default_rng(0)
    width = 32
    weights = {name: (rng.standard_normal((width, width)) / 6).astype(np.float32) for name in ("wq", "wk", "wv", "wo")}
    nodes = [helper.make_node("MatMul", ["X", f"w{name}"], [name]) for name in "qkv"]
    nodes += [
        helper.make_node("Attention", ["q", "k", "v"], ["a"], q_num_heads=4, kv_num_heads=4, is_causal=1),
        helper.make_node("MatMul", ["a", "wo"], ["b"]),
        helper.make_node("Add", ["X", "b"], ["c"]),
        helper.make_node("LayerNormalization", ["c", "ones"], ["Y"]),
    ]
    weights["ones"] = np.ones(width, np.float32)
    x = rng.standard_normal((2, 50, width)).astype(np.float32)
    return model_with(nodes, {"X": x}, ["Y"], 23, [numpy_helper.from_array(a, n) for n, a in weights.items()]), {"X": x}


def test_other_operators_of_a_model_are_the_runtimes():
    model, inputs = block_model()
    ours, theirs = session(model).run(None, inputs)[0], session(model, own=False).run(None, inputs)[0]
    assert np.abs(ours - theirs).max() < 1e-5 and np.isfinite(ours).all()


def test_results_do_not_depend_on_threads():
    inputs = operands(lead=(2, 6), seqlen_q=300, seqlen_k=300, dim=32)
    model = model_of(inputs, is_causal=1)
    wanted = session(model, num_threads=1).run(None, inputs)[0]
    for num_threads in (0, 2, 5):
        assert np.array_equal(session(model, num_threads=num_threads).run(None, inputs)[0], wanted)


def test_one_session_in_several_threads():
    inputs = operands(seqlen_q=40, seqlen_k=40)
    prepared = session(model_of(inputs))
    wanted = prepared.run(None, inputs)[0]
    start = threading.Barrier(4)

    def repeat(_):
        start.wait()
        return all(np.array_equal(prepared.run(None, inputs)[0], wanted) for _ in range(25))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(repeat, range(4)))


@pytest.mark.parametrize("lead, seqlen_q, seqlen_k", [((0, 3), 5, 7), ((2, 3), 0, 7), ((2, 3), 5, 0)])
def test_empty_inputs(lead, seqlen_q, seqlen_k):
    inputs = operands(lead, seqlen_q, seqlen_k)
    y, scores = session(model_of(inputs, ("Y", "qk_matmul_output"))).run(None, inputs)
    assert y.shape == (*lead, seqlen_q, 4) and not y.any()
    assert scores.shape == (*lead, seqlen_q, seqlen_k)


def test_the_cache_grows_from_run_to_run():
    """Token by token with past and present is the same as all at once."""
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 1, 2, 6, 8)).astype(np.float32)
    whole = session(model_of({"Q": q, "K": k, "V": v}, is_causal=1)).run(None, {"Q": q, "K": k, "V": v})[0]
    cache = {name: np.zeros((1, 2, 0, 8), np.float32) for name in ("past_key", "past_value")}
    given = {"Q": q[:, :, :1], "K": k[:, :, :1], "V": v[:, :, :1], **cache}
    model = model_of(given, OUTPUTS[:3], is_causal=1)
    for value in model.graph.input[3:]:
        value.type.tensor_type.shape.dim[2].dim_param = "past"
    prepared = session(model)
    for i in range(6):
        step = {name: array[:, :, i : i + 1] for name, array in (("Q", q), ("K", k), ("V", v))}
        y, cache["past_key"], cache["past_value"] = prepared.run(None, {**step, **cache})
        assert np.abs(y[:, :, 0] - whole[:, :, i]).max() < 1e-6
    assert np.array_equal(cache["past_key"], k)


REFUSED_SESSIONS = {
    "is_causal": (model_of(operands(), is_causal=2), "node 'node_0': is_causal: expected 0 or 1, got 2"),
    "mode": (model_of(operands(), qk_matmul_output_mode=4), "qk_matmul_output_mode: expected 0, 1, 2 or 3, got 4"),
    "window": (model_of(operands(), left_window_size=-2), r"left_window_size: expected -1 \(open\) or more, got -2"),
    "heads": (model_of(operands(), q_num_heads=0), "q_num_heads: expected 1 or more, got 0"),
    "precision": (model_of(operands(), softmax_precision=7), "softmax_precision: expected one of 1 .*, got 7"),
    "softcap": (model_of(operands(), softcap=-1.0), "softcap: expected 0 .* or a positive number, got -1"),
    "past without present": (
        model_of({**operands(), **past()}),
        "present_key: past and present keys and values must all be given",
    ),
    "present without past": (
        model_of(operands(), OUTPUTS[:3]),
        "past_key: past and present keys and values must all be given",
    ),
    "two caches": (
        model_of({**operands(), **past(), "nonpad_kv_seqlen": np.array([1, 2])}, OUTPUTS[:3]),
        "nonpad_kv_seqlen: expected without past and present keys and values",
    ),
    "a mask of integers": (
        model_of({**operands(), "attn_mask": np.zeros((5, 7), np.int64)}),
        r"attn_mask: expected bool \(True = attend\) or floating \(added\), got int64",
    ),
}


@pytest.mark.parametrize("what", REFUSED_SESSIONS)
def test_refused_when_the_session_is_made(what):
    model, message = REFUSED_SESSIONS[what]
    with pytest.raises(Exception, match=message):
        session(model)


REFUSED_RUNS = {
    "heads of rank 4": (operands(), {"q_num_heads": 5}, "q_num_heads: expected the 3 heads that Q has, got 5"),
    "rank 3 without heads": (operands((2,)), {}, "q_num_heads: expected, for Q has rank 3"),
    "width": (operands((2,)), {"q_num_heads": 3, "kv_num_heads": 1}, "q_num_heads: Q is 4 wide, .* no multiple of 3"),
    "ranks": ({**operands(), "V": np.zeros((2, 7, 4), np.float32)}, {}, "Q, K and V: expected all of rank 4 or all of"),
    "sizes": ({**operands(), "K": np.zeros((2, 3, 7, 5), np.float32)}, {}, "k has head_dim 5 but q has 4"),
    "mask": ({**operands(), "attn_mask": np.ones((4, 7), bool)}, {}, "mask must broadcast to"),
    "a long mask": ({**operands(), "attn_mask": np.ones((5, 8), bool)}, {}, "mask must broadcast to"),
    "lengths": ({**operands(), "nonpad_kv_seqlen": np.array([1, 8])}, {}, "kv_lengths must lie between 0 and"),
    "batch of lengths": (
        {**operands(), "nonpad_kv_seqlen": np.array([1])},
        {},
        r"nonpad_kv_seqlen: expected int64 \[2\]",
    ),
}


@pytest.mark.parametrize("what", REFUSED_RUNS)
def test_refused_when_it_runs(what):
    inputs, attributes, message = REFUSED_RUNS[what]
    with pytest.raises(Exception, match=message):
        session(model_of(inputs, **attributes)).run(None, inputs)


def test_a_past_that_does_not_fit_is_refused():
    inputs = {**operands(), **past(heads=2)}
    with pytest.raises(Exception, match=r"past_key: expected \[batch, kv_num_heads, past_sequence_length, size\]"):
        session(model_of(inputs, OUTPUTS[:3])).run(None, inputs)


def test_settings():
    with pytest.raises(ValueError, match="num_threads: expected 0 to 9999, got -1"):
        saccade_onnxruntime.register(num_threads=-1)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("saccade.num_threads", "many")
    with pytest.raises(Exception, match="saccade.num_threads: expected 0 or a positive number, got 'many'"):
        options.register_custom_ops_library(saccade_onnxruntime.library_path())


def test_softmax_precision_double():
    """It is not ignored: the result is computed in f64 and rounded once."""
    inputs = operands(seqlen_q=20, seqlen_k=300, dim=16)
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    wanted = session(model_of(wide)).run(None, wide)[0].astype(np.float32)
    precise = session(model_of(inputs, softmax_precision=TensorProto.DOUBLE)).run(None, inputs)[0]
    assert np.array_equal(precise, wanted)
    assert not np.array_equal(session(model_of(inputs)).run(None, inputs)[0], wanted)
