"""saccade.onnx: onnx's own cases, what the operator's text says beyond them, and graphs of several nodes."""

from __future__ import annotations

import importlib
import sys
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import saccade

onnx = pytest.importorskip("onnx", minversion="1.23")
pytest.importorskip("ml_dtypes")

import saccade.onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.backend.test import BackendTest  # noqa: E402
from onnx_models import OUTPUTS, model_of, model_with, operands, run  # noqa: E402

# onnx's own cases


def official_cases() -> type:
    """The cases of Attention in the installed onnx. Those called _expanded are left out: they are the same problems
    with the operator spelled out as MatMul, Softmax and so on, and have no node Attention. They and the cases of all
    other operators are deleted: onnx would report thousands of tests as skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cases of some operators overflow while they are made
        suite = BackendTest(saccade.onnx, __name__).include("^test_attention_").exclude("_expanded")
    cases = suite.test_cases["OnnxBackendNodeModelTest"]
    for name in [name for name in vars(cases) if name.startswith("test_")]:
        if not name.startswith("test_attention_") or "_expanded" in name or name.endswith("_cuda"):
            delattr(cases, name)
    return cases


OnnxBackendNodeModelTest = official_cases()


def test_no_official_case_is_missing():
    cases = {name: case for name, case in vars(OnnxBackendNodeModelTest).items() if name.startswith("test_")}
    print(f"onnx {onnx.__version__}: {len(cases)} cases of Attention")
    assert len(cases) >= 93  # as of onnx 1.23.2
    assert not any(getattr(case, "__unittest_skip__", False) for case in cases.values())


# What the operator's text says beyond the official cases


def test_the_kernels_of_the_package_compute():
    inputs = operands(seqlen_q=20, seqlen_k=30)
    y, scores = run(
        inputs, ("Y", "qk_matmul_output"), is_causal=1, left_window_size=4, softcap=3.0, qk_matmul_output_mode=3
    )
    q, k, v = inputs.values()
    wanted, weights = saccade.attention(q, k, v, causal="top_left", window=(4, -1), softcap=3.0, return_weights=True)
    assert np.array_equal(y, wanted) and np.array_equal(scores, weights)


@pytest.mark.parametrize("nonpad, first", [(4, 0), (8, 4), (2, -2)])
def test_causal_counts_from_the_end_of_the_cache(nonpad, first):
    """The two pictures in the operator's text, and a negative offset, which leaves rows without keys."""
    inputs = {**operands((1, 1), 4, 8), "nonpad_kv_seqlen": np.array([nonpad])}
    y, weights = run(inputs, ("Y", "qk_matmul_output"), is_causal=1, qk_matmul_output_mode=3)
    seen = np.arange(8) <= np.arange(4)[:, None] + first
    assert np.array_equal(weights[0, 0] > 0, seen)
    assert np.array_equal((y != 0).any(-1)[0, 0], seen.any(-1))


def test_windows_as_in_the_picture():
    """S_q=4, S_k=6, left_window_size=2, right_window_size=1: the picture in the operator's text."""
    y, weights = run(
        operands((1, 1), 4, 6),
        ("Y", "qk_matmul_output"),
        left_window_size=2,
        right_window_size=1,
        qk_matmul_output_mode=3,
    )
    wanted = [[1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]]
    assert np.array_equal(weights[0, 0] > 0, np.array(wanted, bool))


def test_score_stages():
    inputs = {**operands((1, 1)), "attn_mask": np.where(np.eye(5, 7, dtype=bool), -np.inf, np.float32(0.5))}
    inputs["attn_mask"] = inputs["attn_mask"].astype(np.float32)
    q, k = inputs["Q"][0, 0].astype(np.float64), inputs["K"][0, 0].astype(np.float64)
    raw = q @ k.T * 0.5
    capped = 2 * np.tanh(raw / 2)
    biased = capped + inputs["attn_mask"]
    exponentials = np.exp(biased)
    for mode, wanted in enumerate([raw, capped, biased, exponentials / exponentials.sum(-1, keepdims=True)]):
        _, scores = run(inputs, ("Y", "qk_matmul_output"), softcap=2.0, qk_matmul_output_mode=mode)
        hidden = np.isneginf(wanted)
        assert np.array_equal(np.isneginf(scores[0, 0]), hidden)
        bound = np.abs(q) @ np.abs(k).T * 0.5 + 0.5
        error = np.abs(scores[0, 0][~hidden] - wanted[~hidden])
        assert np.all(error <= 8 * np.finfo(np.float32).eps * np.maximum(bound, 1)[~hidden]), mode


def test_hidden_keys_have_no_influence():
    inputs = {**operands(seqlen_q=9, seqlen_k=12), "nonpad_kv_seqlen": np.array([12, 8])}
    inputs["attn_mask"] = np.arange(10) != 3
    wanted = run(inputs, is_causal=1).Y
    for name in "KV":
        inputs[name][0, :, [3, 10, 11]] = np.nan
        inputs[name][1, :, [3, 8, 9]] = np.inf
    assert np.array_equal(run(inputs, is_causal=1).Y, wanted) and np.isfinite(wanted).all()
    inputs["V"][0, :, 2] = np.nan
    seen = np.isnan(run(inputs, is_causal=1).Y).all(-1)
    assert seen[0].all() and not seen[1].any()  # with an offset of 3 every row sees key 2


def test_softmax_precision_double():
    """It is not ignored: the result is computed in f64 and rounded once."""
    inputs = operands(seqlen_q=20, seqlen_k=300, dim=16)
    wide = [array.astype(np.float64) for array in inputs.values()]
    wanted = saccade.attention(*wide).astype(np.float32)
    assert np.array_equal(run(inputs, softmax_precision=TensorProto.DOUBLE).Y, wanted)
    assert not np.array_equal(run(inputs).Y, wanted)


def test_scores_beyond_f16_are_infinite():
    inputs = operands(dtype=np.float16)
    inputs["Q"][:] = inputs["K"][:] = 300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y, scores = run(inputs, ("Y", "qk_matmul_output"))
    assert scores.dtype == np.float16 and np.isposinf(scores).all() and np.isfinite(y).all()


@pytest.mark.parametrize("lead, seqlen_q, seqlen_k", [((0, 3), 5, 7), ((2, 3), 0, 7), ((2, 3), 5, 0)])
def test_empty_inputs(lead, seqlen_q, seqlen_k):
    y, scores = run(operands(lead, seqlen_q, seqlen_k), ("Y", "qk_matmul_output"))
    assert y.shape == (*lead, seqlen_q, 4) and not y.any()
    assert scores.shape == (*lead, seqlen_q, seqlen_k)


def test_memory_is_linear():
    length = 4096
    inputs = {**operands((1, length), 2, 2), "attn_mask": np.ones(100, bool)}
    inputs.update({name: inputs[name].reshape(1, length, -1) for name in "QKV"})
    tracemalloc.start()
    run(inputs, is_causal=1, left_window_size=16, q_num_heads=2, kv_num_heads=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < length * length / 4  # a matrix of bool or of f32 would be 4 or 16 times that


# Graphs


def chain_of_two() -> tuple[Any, dict[str, Any]]:
    """Rank 3: self-attention, then attention to initializers; the mask is an input with an initializer."""
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    x = operands((2,), 6, 6, 8)["Q"]
    memory = operands((2,), 1, 9, 8, seed=1)
    nodes = [
        helper.make_node("Attention", ["X", "X", "X"], ["hidden"], is_causal=1, **heads),
        helper.make_node("Attention", ["hidden", "memory_k", "memory_v", "mask"], ["Y", "", "", "weights"], "cross",
                         qk_matmul_output_mode=3, **heads),
    ]  # fmt: skip
    mask = np.arange(9) < 7
    initializers = [
        numpy_helper.from_array(array, name)
        for name, array in (("memory_k", memory["K"]), ("memory_v", memory["V"]), ("mask", mask))
    ]
    model = model_with(nodes, {"X": x, "mask": mask}, ["weights", "Y"], 24, initializers)
    return model, {"x": x, "mask": mask, "k": memory["K"], "v": memory["V"]}


def test_nodes_feed_nodes():
    model, given = chain_of_two()
    prepared = saccade.onnx.prepare(model)
    outputs = prepared.run([given["x"]])
    assert outputs._fields == ("weights", "Y")

    def heads(x):
        return x.reshape(2, -1, 2, 4).transpose(0, 2, 1, 3)

    x = heads(given["x"])
    hidden = saccade.attention(x, x, x, causal="top_left")

    def second(mask):
        y = saccade.attention(hidden, heads(given["k"]), heads(given["v"]), mask=mask)
        return y.transpose(0, 2, 1, 3).reshape(2, 6, 8)

    # Few rows may be computed by decode(), whose last bits differ.
    eps = 16 * np.finfo(np.float32).eps * np.abs(given["v"]).max()
    assert np.abs(outputs["Y"] - second(given["mask"])).max() <= eps
    assert np.array_equal(outputs["weights"].any((0, 1, 2)), given["mask"])
    for inputs in ({"X": given["x"]}, given["x"], [given["x"], given["mask"]]):
        assert np.array_equal(prepared.run(inputs)["Y"], outputs["Y"])
    other = np.arange(9) > 4
    assert np.abs(prepared.run({"X": given["x"], "mask": other})["Y"] - second(other)).max() <= eps
    assert np.array_equal(prepared.run([given["x"]])["Y"], outputs["Y"])  # the initializer is as before


def test_one_model_in_several_threads():
    model, given = chain_of_two()
    prepared = saccade.onnx.prepare(model, num_threads=1)
    wanted = prepared.run([given["x"]]).Y
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda _: prepared.run([given["x"]]).Y, range(40)):
            assert np.array_equal(y, wanted)


def test_run_node():
    inputs = {**operands(), "nonpad_kv_seqlen": np.array([7, 3])}
    node = model_of(inputs).graph.node[0]
    wanted = run(inputs).Y
    q, k, v, lengths = inputs.values()
    for listed in ([q, k, v, lengths], [q, k, v, None, None, None, lengths]):
        outputs = saccade.onnx.run_node(node, listed)
        assert np.array_equal(outputs.Y, wanted) and len(outputs) == 1
    with pytest.raises(ValueError, match="nonpad_kv_seqlen: came in opset 24, but the model is of opset 23"):
        saccade.onnx.run_node(node, [q, k, v, lengths], opset_version=23)
    with pytest.raises(ValueError, match=r"inputs: the node names 4 \(Q, K, V, nonpad_kv_seqlen\), got 3"):
        saccade.onnx.run_node(node, [q, k, v])
    past = {name: np.zeros((2, 3, 2, 4), np.float32) for name in ("past_key", "past_value")}
    node = model_of({**operands(), **past}, OUTPUTS).graph.node[0]
    outputs = saccade.onnx.run_node(node, [q, k, v, *past.values()], opset_version=23, num_threads=1)
    assert outputs._fields == OUTPUTS and outputs["present_key"].shape == (2, 3, 9, 4)


def test_num_threads():
    inputs = operands()
    model = model_of(inputs)
    for attempt in (
        lambda count: saccade.onnx.prepare(model, num_threads=count).run(inputs),
        lambda count: saccade.onnx.run_node(model.graph.node[0], list(inputs.values()), num_threads=count),
    ):
        assert np.array_equal(attempt(1).Y, attempt(2).Y)
        with pytest.raises(ValueError, match="num_threads must be 0 or more, got -1"):
            attempt(-1)


def test_devices():
    assert saccade.onnx.supports_device("CPU") and saccade.onnx.supports_device("CPU:0")
    assert not saccade.onnx.supports_device("CUDA") and not saccade.onnx.supports_device("CPUX")
    model = model_of(operands())
    assert saccade.onnx.is_compatible(model) and not saccade.onnx.is_compatible(model, "CUDA")
    with pytest.raises(ValueError, match="device: expected 'CPU', got 'CUDA'"):
        saccade.onnx.prepare(model, "CUDA")
    with pytest.raises(ValueError, match="device: expected a str, got a NoneType"):
        saccade.onnx.supports_device(None)


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "saccade.onnx")
    with pytest.raises(ImportError, match="saccade.onnx needs the package onnx, 1.19 or newer: pip install onnx"):
        importlib.import_module("saccade.onnx")
