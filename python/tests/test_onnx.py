"""saccade.onnx: onnx's own cases, random models against onnx's reference, and what is refused."""

from __future__ import annotations

import importlib
import sys
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest
import saccade

onnx = pytest.importorskip("onnx", minversion="1.23")
ml_dtypes = pytest.importorskip("ml_dtypes")

import saccade.onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.backend.test import BackendTest  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


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


# Models


def model_of(inputs: dict[str, Any], outputs: Any = ("Y",), opset: int = 25, **attributes: Any) -> Any:
    """A model of one node. Inputs and outputs have the operator's names; None is left out."""
    given = {name: array for name, array in inputs.items() if array is not None}
    node = helper.make_node("Attention", _in_place(INPUTS, given), _in_place(OUTPUTS, outputs), "node_0", **attributes)
    return model_with([node], given, outputs, opset)


def _in_place(names: tuple[str, ...], present: Any) -> list[str]:
    """The names up to the last one present, with "" for missing ones."""
    last = max((i for i, name in enumerate(names) if name in present), default=-1)
    return [name if name in present else "" for name in names[: last + 1]]


def model_with(nodes: Any, inputs: dict[str, Any], outputs: Any, opset: int = 25, initializers: Any = ()) -> Any:
    """A model that takes arrays like the inputs. Outputs are of the type of the first input, and Y... of its rank."""
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    dtype, rank = values[0].type.tensor_type.elem_type, next(iter(inputs.values())).ndim
    ranks = {name: rank if name.startswith("Y") else 4 for name in outputs}
    results = [helper.make_tensor_value_info(name, dtype, [None] * ranks[name]) for name in outputs]
    graph = helper.make_graph(nodes, "graph", values, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(inputs: dict[str, Any], outputs: Any = ("Y",), opset: int = 25, **attributes: Any) -> Any:
    given = {name: array for name, array in inputs.items() if array is not None}
    return saccade.onnx.run_model(model_of(given, outputs, opset, **attributes), given)


def operands(lead=(2, 3), seqlen_q=5, seqlen_k=7, dim=4, dtype=np.float32, seed=0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    seqlens = {"Q": seqlen_q, "K": seqlen_k, "V": seqlen_k}
    return {name: rng.standard_normal((*lead, seqlen, dim)).astype(dtype) for name, seqlen in seqlens.items()}


# Random models


class Problem(NamedTuple):
    inputs: dict[str, Any]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int


def problem_of(seed: int) -> Problem:
    """Any combination of the operator's inputs, outputs and attributes."""
    rng = np.random.default_rng(seed)
    type_q, type_v = types_of(rng)
    batch, kv_heads, group = (int(size) for size in rng.integers(1, 4, 3))
    seqlen_q, seqlen_k = int(rng.choice([1, 2, 3, 7, 16, 33])), int(rng.choice([1, 2, 5, 17, 64, 65, 130]))
    # Exact square roots: the reference multiplies q and k by the root of the scale, which f64 would round.
    dim, dim_v = int(rng.choice([1, 4, 16, 64])), int(rng.choice([1, 3, 8, 40]))
    rank = int(rng.choice([3, 4]))

    def normal(heads: int, seqlen: int, width: int, dtype: Any, rank: int = rank) -> Any:
        shape = (batch, seqlen, heads * width) if rank == 3 else (batch, heads, seqlen, width)
        return rng.standard_normal(shape).astype(dtype)

    attributes = attributes_of(rng)
    if rank == 3:
        attributes.update(q_num_heads=kv_heads * group, kv_num_heads=kv_heads)
    inputs = {
        "Q": normal(kv_heads * group, seqlen_q, dim, type_q),
        "K": normal(kv_heads, seqlen_k, dim, type_q),
        "V": normal(kv_heads, seqlen_k, dim_v, type_v),
    }
    outputs, total = ["Y"], seqlen_k
    cache = rng.choice(["none", "inside", "outside"])
    if cache == "inside":
        past = int(rng.choice([0, 1, 9, 64]))
        inputs["past_key"] = normal(kv_heads, past, dim, type_q, 4)
        inputs["past_value"] = normal(kv_heads, past, dim_v, type_v, 4)
        outputs += ["present_key", "present_value"]
        total += past
    if cache == "outside":
        inputs["nonpad_kv_seqlen"] = rng.integers(0, seqlen_k + 1, batch)
    inputs["attn_mask"] = mask_of(rng, (batch, kv_heads * group, seqlen_q, total), type_q)
    if "qk_matmul_output_mode" in attributes:
        outputs.append("qk_matmul_output")
    lowest = 25 if "left_window_size" in attributes else 24 if cache == "outside" else 23
    return Problem(inputs, tuple(outputs), attributes, int(rng.integers(lowest, 26)))


def types_of(rng: Any) -> tuple[Any, Any]:
    """The type of Q and K, and that of V."""
    f32, f64, f16, bf16 = np.float32, np.float64, np.float16, ml_dtypes.bfloat16
    mixed = [(f32, f16), (f16, f32), (f32, f64), (f64, f32), (bf16, f32)]
    equal = [(dtype, dtype) for dtype in (f32, f64, f16, bf16)]
    kinds = mixed if rng.random() < 0.2 else equal
    return kinds[rng.integers(len(kinds))]


def attributes_of(rng: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {"is_causal": int(rng.integers(0, 2))}
    if rng.random() < 0.5:
        left, right = rng.integers(-1, 9, 2)
        attributes.update(left_window_size=int(left), right_window_size=int(right))
    if rng.random() < 0.4:
        attributes["softcap"] = float(rng.choice([0.0, 0.5, 2.0, 30.0]))
    if rng.random() < 0.4:
        attributes["scale"] = float(rng.choice([0.0625, 0.25, 0.5625, 1.0]))
    if rng.random() < 0.3:
        attributes["softmax_precision"] = int(rng.choice([1, 10, 11, 16]))
    if rng.random() < 0.7:
        attributes["qk_matmul_output_mode"] = int(rng.integers(0, 4))
    return attributes


def mask_of(rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """None, or a mask of any rank, with dimensions of 1, and sometimes too short."""
    rank = int(rng.integers(0, 5))
    if rank == 0:
        return None
    dims = [1 if rng.random() < 0.3 else size for size in shape[4 - rank : -1]]
    last = shape[-1] if rng.random() < 0.7 else int(rng.integers(1, shape[-1] + 1))
    attend = rng.random((*dims, last)) < 0.8
    if rng.random() < 0.5:
        return attend
    return np.where(attend, rng.standard_normal(attend.shape), -np.inf).astype(dtype)


def is_floating(array: Any) -> bool:
    return array is not None and array.dtype not in (np.bool_, np.int64)


def reference(problem: Problem, dtype: Any = None, absolute: Any = (), **changed: Any) -> dict[str, Any]:
    """onnx's reference: in the types of the inputs, or throughout in ``dtype``.

    :param absolute: the names of inputs of which absolute values are taken.
    :param changed: attributes in place of the problem's.
    """
    attributes = {**problem.attributes, **changed}
    inputs = {name: array for name, array in problem.inputs.items() if array is not None}
    if "attn_mask" in inputs:  # it takes the number of rows from the mask, so rank 1 or one row for all fails
        mask, seqlen_q = inputs["attn_mask"], inputs["Q"].shape[-2]
        inputs["attn_mask"] = np.broadcast_to(mask, (*mask.shape[:-2], seqlen_q, mask.shape[-1])).copy()
    if dtype is not None:
        attributes.pop("softmax_precision", None)
        inputs = {name: array.astype(dtype) if is_floating(array) else array for name, array in inputs.items()}
    inputs.update({name: np.abs(inputs[name]) for name in absolute if name in inputs})
    model = model_of(inputs if dtype is None else problem.inputs, problem.outputs, problem.opset, **attributes)
    results = dict(zip(problem.outputs, ReferenceEvaluator(model).run(None, inputs)))
    if attributes.get("qk_matmul_output_mode") == 0 and attributes.get("softcap", 0.0):
        # The operator's text, and the function that defines it, say that mode 0 is raw, but the reference caps it.
        results["qk_matmul_output"] = reference(problem, dtype, absolute, **changed, softcap=0.0)["qk_matmul_output"]
    return results


def bound_of(problem: Problem, name: str, dtype: Any) -> float:
    """The largest result without cancellation; rounding errors are proportional to it."""
    if name == "Y":
        return float(np.max(reference(problem, dtype, ["V", "past_value"])["Y"], initial=0))
    mode = problem.attributes["qk_matmul_output_mode"]
    if mode == 3:
        return 1.0
    without_cap = {"qk_matmul_output_mode": 0, "softcap": 0.0}
    bound = np.max(reference(problem, dtype, ["Q", "K", "past_key"], **without_cap)[name], initial=0)
    mask = problem.inputs["attn_mask"]
    if mode == 2 and is_floating(mask):
        bound += np.max(np.abs(mask[np.isfinite(mask)].astype(dtype)), initial=0)
    return float(bound)


def assert_agrees(problem: Problem, got: Any) -> None:
    """max |got - exact| <= 2 max |reference in the same types - exact| + 8 eps max |exact without cancellation|."""
    types = {problem.inputs["Q"].dtype, problem.inputs["V"].dtype}
    wide = np.longdouble if np.dtype(np.float64) in types else np.float64
    if np.finfo(wide).eps >= min(float(ml_dtypes.finfo(dtype).eps) for dtype in types):
        pytest.skip("this machine has nothing more exact than f64")
    exact, naive = reference(problem, wide), reference(problem)
    for name in problem.outputs:
        result, wanted = got[name], exact[name]
        source = problem.inputs["V" if name == "present_value" else "Q"]
        assert result.dtype == source.dtype and result.shape == wanted.shape, name
        if name.startswith("present"):
            assert np.array_equal(result, naive[name]), name
            continue
        finite = np.isfinite(wanted)  # scores of hidden keys are not
        assert np.array_equal(result[~finite].astype(wide), wanted[~finite]), name
        error, naive_error = (np.abs(x[finite].astype(wide) - wanted[finite]) for x in (result, naive[name]))
        eps = max(float(ml_dtypes.finfo(dtype).eps) for dtype in types)
        allowed = 2 * np.max(naive_error, initial=0) + 8 * eps * bound_of(problem, name, wide)
        assert np.max(error, initial=0) <= allowed, (name, np.argwhere(finite)[np.argmax(error)])


@pytest.mark.parametrize("seed", range(160))
def test_random_models(seed):
    problem = problem_of(seed)
    inputs = {name: array for name, array in problem.inputs.items() if array is not None}
    model = model_of(inputs, problem.outputs, problem.opset, **problem.attributes)
    assert saccade.onnx.is_compatible(model)
    assert_agrees(problem, saccade.onnx.run_model(model, inputs))


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
    with pytest.raises(ValueError, match="device: wanted 'CPU', got 'CUDA'"):
        saccade.onnx.prepare(model, "CUDA")
    with pytest.raises(ValueError, match="device: wanted a str, got a NoneType"):
        saccade.onnx.supports_device(None)


@pytest.mark.parametrize("call", ["prepare", "is_compatible", "run_model"])
@pytest.mark.parametrize("model", ["attention.onnx", b"", None])
def test_what_is_no_model_is_refused(call, model):
    arguments = (model, []) if call == "run_model" else (model,)
    with pytest.raises(ValueError, match=f"model: wanted a ModelProto, got a {type(model).__name__}"):
        getattr(saccade.onnx, call)(*arguments)
    with pytest.raises(ValueError, match=f"node: wanted a NodeProto, got a {type(model).__name__}"):
        saccade.onnx.run_node(model, [])


# What is refused


def past(batch=2, heads=3, seqlen=2, dim=4, dtype=np.float32) -> dict[str, Any]:
    return {name: np.zeros((batch, heads, seqlen, dim), dtype) for name in ("past_key", "past_value")}


def other_node(operator: str, domain: str = "") -> Any:
    nodes = [model_of(operands()).graph.node[0], helper.make_node(operator, ["Y"], ["Y2"], "other", domain=domain)]
    return model_with(nodes, operands(), ["Y2"])


REFUSED_MODELS = {
    "Relu": (other_node("Relu"), "node 'other': wanted the operator Attention of ai.onnx, got Relu of ai.onnx"),
    "another domain": (other_node("Attention", "com.microsoft"), "got Attention of com.microsoft"),
    "opset 22": (
        model_of(operands(), opset=22),
        "node 'node_0': Attention came in opset 23, .* is of opset 22",
    ),
    "lengths in 23": (
        model_of({**operands(), "nonpad_kv_seqlen": np.array([1, 2])}, opset=23),
        "nonpad_kv_seqlen: came in opset 24, but the model is of opset 23",
    ),
    "window in 24": (
        model_of(operands(), opset=24, right_window_size=1),
        "right_window_size: came in opset 25, but the model is of opset 24",
    ),
    "past_key alone": (
        model_of({**operands(), "past_key": past()["past_key"]}, OUTPUTS[:3]),
        "past_value: past and present keys and values go together, but it is left out",
    ),
    "past without present": (model_of({**operands(), **past()}), "present_key: past and present"),
    "present without past": (model_of(operands(), OUTPUTS[:3]), "past_key: past and present"),
    "two caches": (
        model_of({**operands(), **past(), "nonpad_kv_seqlen": np.array([1, 2])}, OUTPUTS[:3]),
        "nonpad_kv_seqlen: wanted without past and present keys and values",
    ),
    "no V": (model_of({**operands(), "V": None}), "V: wanted, but left out"),
    "unknown attribute": (
        model_of(operands(), dropout=0.5),
        "dropout: Attention has no such attribute, but is_c",
    ),
    "type of an attribute": (
        model_of(operands(), scale=1),
        "scale: wanted an attribute of type FLOAT, got INT",
    ),
    "is_causal": (model_of(operands(), is_causal=2), "is_causal: wanted 0 or 1, got 2"),
    "mode": (
        model_of(operands(), qk_matmul_output_mode=4),
        "qk_matmul_output_mode: wanted 0, 1, 2 or 3, got 4",
    ),
    "precision": (
        model_of(operands(), softmax_precision=7),
        r"softmax_precision: wanted one of 1 \(float32\), .* 7",
    ),
    "window": (model_of(operands(), left_window_size=-2), "left_window_size: wanted -1 .open. or more, got -2"),
    "heads": (model_of(operands(), q_num_heads=0), "q_num_heads: wanted 1 or more, got 0"),
}


@pytest.mark.parametrize("case", REFUSED_MODELS)
def test_refused_models(case):
    model, text = REFUSED_MODELS[case]
    assert not saccade.onnx.is_compatible(model)
    with pytest.raises(ValueError, match=text):
        saccade.onnx.prepare(model)


def test_sparse_initializers_are_refused():
    model = model_of(operands())
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [7]))
    with pytest.raises(ValueError, match="initializer 'sparse': wanted a dense tensor"):
        saccade.onnx.prepare(model)


def test_what_is_not_onnx_is_refused():
    model = model_of(operands())
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(onnx.checker.ValidationError, match="nowhere"):
        saccade.onnx.prepare(model)


REFUSED_INPUTS = {
    "rank 2": (
        {name: np.zeros((5, 4), np.float32) for name in "QKV"},
        {},
        "Q: wanted Q, K and V of rank 4, or all of rank 3",
    ),
    "two ranks": ({**operands(), "K": np.zeros((2, 7, 12), np.float32)}, {}, r"K: wanted .* K \[2, 7, 12\]"),
    "no heads": (operands((2,), dim=12), {"q_num_heads": 3}, "kv_num_heads: wanted, for K has rank 3"),
    "width": (
        operands((2,)),
        {"q_num_heads": 3, "kv_num_heads": 2},
        "q_num_heads: Q is 4 wide, which is no multiple of 3",
    ),
    "heads of rank 4": (operands(), {"kv_num_heads": 2}, "kv_num_heads: wanted the 3 heads that K has, got 2"),
    "groups": (
        {**operands(), "Q": operands((2, 4))["Q"]},
        {},
        "Q has 4 heads, which is no multiple of the 3 heads of K",
    ),
    "head size": ({**operands(), "K": operands(dim=8)["K"]}, {}, "K has head_dim 8"),
    "lengths of K and V": ({**operands(), "V": operands(seqlen_k=6)["V"]}, {}, "V has seqlen 6"),
    "types of Q and K": (
        {**operands(), "K": operands(dtype=np.float16)["K"]},
        {},
        "K: wanted the type of Q, float32, got float16",
    ),
    "past's shape": (
        {**operands(), **past(heads=2)},
        {},
        r"past_key: wanted \[2, 3, past_sequence_length, 4\], as K is",
    ),
    "past's type": (
        {**operands(), **past(dtype=np.float64)},
        {},
        "past_key: wanted the type of Q, float32, got float64",
    ),
    "integer mask": ({**operands(), "attn_mask": np.ones((5, 7), np.int64)}, {}, "attn_mask: wanted bool .* got int64"),
    "mask of rank 0": (
        {**operands(), "attn_mask": np.array(True)},
        {},
        r"attn_mask: wanted rank 1 to 4, got shape \[\]",
    ),
    "mask of rank 5": ({**operands(), "attn_mask": np.ones((1,) * 5, bool)}, {}, "attn_mask: wanted rank 1 to 4"),
    "long mask": ({**operands(), "attn_mask": np.ones((5, 8), bool)}, {}, r"attn_mask must .*it has shape \[5, 8\]"),
    "mask's rows": ({**operands(), "attn_mask": np.ones((4, 7), bool)}, {}, r"attn_mask must .*it has shape \[4, 7\]"),
    "number of lengths": (
        {**operands(), "nonpad_kv_seqlen": np.array([1])},
        {},
        r"nonpad_kv_seqlen: wanted int64 \[2\]",
    ),
    "lengths": ({**operands(), "nonpad_kv_seqlen": np.array([1, 8])}, {}, "nonpad_kv_seqlen must .* = 7, but one is 8"),
    "softcap": (operands(), {"softcap": -1.0}, "softcap must be 0 .* got -1"),
}


@pytest.mark.parametrize("case", REFUSED_INPUTS)
def test_refused_inputs(case):
    inputs, attributes, text = REFUSED_INPUTS[case]
    outputs = OUTPUTS[:3] if "past_key" in inputs else ("Y",)
    with pytest.raises(ValueError, match=rf"node 'node_0': .*{text}"):
        run(inputs, outputs, **attributes)


def test_inputs_that_the_model_does_not_declare():
    inputs = operands()
    prepared = saccade.onnx.prepare(model_of(inputs))
    q, k, v = inputs.values()
    for given, text in (
        ([q, k], r"inputs: wanted 3 \(Q, K, V\), got 2"),
        ({"Q": q, "K": k}, "inputs: V is missing; the model wants Q, K, V"),
        ({**inputs, "mask": q}, "inputs: mask is no input of the model, which has Q, K, V"),
        ([q, k, v.astype(np.float64)], "V: the model declares float32, got float64"),
        ([q, k, v[0]], r"V: the model declares shape \[2, 3, 7, 4\], got \[3, 7, 4\]"),
        ([q, k, v[:, :, 1:]], r"V: the model declares shape \[2, 3, 7, 4\], got \[2, 3, 6, 4\]"),
    ):
        with pytest.raises(ValueError, match=text):
            prepared.run(given)


def test_without_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "saccade.onnx")
    with pytest.raises(ImportError, match="saccade.onnx needs the package onnx, 1.19 or newer: pip install onnx"):
        importlib.import_module("saccade.onnx")
