"""Runs models in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper
from saccade_onnxruntime import register


def session(model: Any, *, own: bool = True, **settings: Any) -> onnxruntime.InferenceSession:
    """A session with saccade's operator, or with ONNX Runtime's own."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if own:
        register(options, **settings)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(
    model: Any, inputs: Mapping[str, np.ndarray], like: Mapping[str, Any], **settings: Any
) -> dict[str, np.ndarray]:
    """The outputs of a model by name, also of bfloat16, which NumPy does not have.

    :param like: shape and dtype of each output.
    """
    return run_in(session(model, **settings), inputs, like)


def run_in(
    prepared: onnxruntime.InferenceSession, inputs: Mapping[str, np.ndarray], like: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    binding = prepared.io_binding()
    arrays = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
    outputs = {name: np.full(wanted.shape, 7, wanted.dtype) for name, wanted in like.items()}
    for bind, values in ((binding.bind_input, arrays), (binding.bind_output, outputs)):
        for name, array in values.items():
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            bind(name, "cpu", 0, element, array.shape, array.ctypes.data)
    prepared.run_with_iobinding(binding)
    return outputs


def names_in(values: Sequence[Any]) -> list[str]:
    return [value.name for value in values]
