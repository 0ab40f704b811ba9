"""Models of the operator Attention, for the tests of saccade.onnx and saccade_onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", minversion="1.23")

from onnx import helper  # noqa: E402

INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


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
    """A model that takes arrays like the inputs. Outputs are of the type of the first input (present_value: of V), and
    Y... of its rank."""
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    elements = {value.name: value.type.tensor_type.elem_type for value in values}
    first, rank = values[0].name, next(iter(inputs.values())).ndim
    types = {name: elements["V" if name == "present_value" else first] for name in outputs}
    ranks = {name: rank if name.startswith("Y") else 4 for name in outputs}
    results = [helper.make_tensor_value_info(name, types[name], [None] * ranks[name]) for name in outputs]
    graph = helper.make_graph(nodes, "graph", values, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(inputs: dict[str, Any], outputs: Any = ("Y",), opset: int = 25, **attributes: Any) -> Any:
    import saccade.onnx  # not at the top: saccade_onnxruntime is tested without it

    given = {name: array for name, array in inputs.items() if array is not None}
    return saccade.onnx.run_model(model_of(given, outputs, opset, **attributes), given)


def operands(lead=(2, 3), seqlen_q=5, seqlen_k=7, dim=4, dtype=np.float32, seed=0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    seqlens = {"Q": seqlen_q, "K": seqlen_k, "V": seqlen_k}
    return {name: rng.standard_normal((*lead, seqlen, dim)).astype(dtype) for name, seqlen in seqlens.items()}
