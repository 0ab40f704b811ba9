"""saccade_onnxruntime: random models against onnx's reference, and onnx's own cases."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", minversion="1.23")
ml_dtypes = pytest.importorskip("ml_dtypes")
pytest.importorskip("onnxruntime")

from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402
from onnx.backend.test.runner import Runner  # noqa: E402
from onnx_models import model_of  # noqa: E402
from onnx_problems import Problem, assert_agrees, problem_of  # noqa: E402
from sessions import run  # noqa: E402


def outputs_like(problem: Problem) -> dict[str, Any]:
    """Shape and dtype of each output, from the operator's text."""
    q, k, v = (problem.inputs[name] for name in "QKV")
    heads = problem.attributes.get("q_num_heads") or q.shape[1]
    kv_heads = problem.attributes.get("kv_num_heads") or k.shape[1]
    batch, rows, keys = q.shape[0], q.shape[-2], k.shape[-2]
    dim, dim_v = (x.shape[-1] // (kv_heads if x.ndim == 3 else 1) for x in (k, v))
    past = problem.inputs.get("past_key")
    total = keys + (0 if past is None else past.shape[2])
    shapes = {
        "Y": (batch, rows, heads * dim_v) if q.ndim == 3 else (batch, heads, rows, dim_v),
        "present_key": (batch, kv_heads, total, dim),
        "present_value": (batch, kv_heads, total, dim_v),
        "qk_matmul_output": (batch, heads, rows, total),
    }
    types = {"present_value": v.dtype}
    return {name: SimpleNamespace(shape=shapes[name], dtype=types.get(name, q.dtype)) for name in problem.outputs}


@pytest.mark.parametrize("seed", range(300))
def test_random_models(seed):
    problem = problem_of(10_000 + seed)
    inputs = {name: array for name, array in problem.inputs.items() if array is not None}
    model = model_of(inputs, problem.outputs, problem.opset, **problem.attributes)
    assert_agrees(problem, run(model, inputs, outputs_like(problem)))


def official_cases() -> list[Any]:
    """The cases of Attention in the installed onnx but for those called _expanded, which have no node Attention."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cases of some operators overflow while they are made
        cases = collect_testcases("Attention")
    names = {case.name: case for case in cases}
    return [
        case for name, case in sorted(names.items()) if name.startswith("test_attention_") and "_expanded" not in name
    ]


@pytest.mark.parametrize("case", official_cases(), ids=lambda case: case.name)
def test_official_cases(case):
    for given, wanted in case.data_sets:
        inputs = dict(zip((value.name for value in case.model.graph.input), map(as_array, given)))
        arrays = dict(zip((value.name for value in case.model.graph.output), map(as_array, wanted)))
        got = run(case.model, inputs, arrays)
        Runner.assert_similar_outputs(list(arrays.values()), list(got.values()), case.rtol, case.atol)


def as_array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def test_no_official_case_is_missing():
    assert len(official_cases()) >= 93  # as of onnx 1.23.2
