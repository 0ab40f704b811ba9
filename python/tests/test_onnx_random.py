"""saccade.onnx: random models against onnx's reference."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", minversion="1.23")
pytest.importorskip("ml_dtypes")

import saccade.onnx  # noqa: E402
from onnx_models import model_of  # noqa: E402
from onnx_problems import assert_agrees, problem_of  # noqa: E402


@pytest.mark.parametrize("seed", range(160))
def test_random_models(seed):
    problem = problem_of(seed)
    inputs = {name: array for name, array in problem.inputs.items() if array is not None}
    model = model_of(inputs, problem.outputs, problem.opset, **problem.attributes)
    assert saccade.onnx.is_compatible(model)
    assert_agrees(problem, saccade.onnx.run_model(model, inputs))
