"""saccade.onnx: models and inputs that are refused, and what the errors say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", minversion="1.23")

import saccade.onnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from onnx_models import OUTPUTS, model_of, model_with, operands, run  # noqa: E402


@pytest.mark.parametrize("call", ["prepare", "is_compatible", "run_model"])
@pytest.mark.parametrize("model", ["attention.onnx", b"", None])
def test_what_is_no_model_is_refused(call, model):
    arguments = (model, []) if call == "run_model" else (model,)
    with pytest.raises(ValueError, match=f"model: expected a ModelProto, got a {type(model).__name__}"):
        getattr(saccade.onnx, call)(*arguments)
    with pytest.raises(ValueError, match=f"node: expected a NodeProto, got a {type(model).__name__}"):
        saccade.onnx.run_node(model, [])


def past(batch=2, heads=3, seqlen=2, dim=4, dtype=np.float32) -> dict[str, Any]:
    return {name: np.zeros((batch, heads, seqlen, dim), dtype) for name in ("past_key", "past_value")}


def other_node(operator: str, domain: str = "") -> Any:
    nodes = [model_of(operands()).graph.node[0], helper.make_node(operator, ["Y"], ["Y2"], "other", domain=domain)]
    return model_with(nodes, operands(), ["Y2"])


REFUSED_MODELS = {
    "Relu": (other_node("Relu"), "node 'other': expected the operator Attention of ai.onnx, got Relu of ai.onnx"),
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
        "past_value: past and present keys and values must all be given, but it is missing",
    ),
    "past without present": (model_of({**operands(), **past()}), "present_key: past and present"),
    "present without past": (model_of(operands(), OUTPUTS[:3]), "past_key: past and present"),
    "two caches": (
        model_of({**operands(), **past(), "nonpad_kv_seqlen": np.array([1, 2])}, OUTPUTS[:3]),
        "nonpad_kv_seqlen: expected without past and present keys and values",
    ),
    "no V": (model_of({**operands(), "V": None}), "V: expected, but left out"),
    "unknown attribute": (
        model_of(operands(), dropout=0.5),
        "dropout: Attention has no such attribute, but is_c",
    ),
    "type of an attribute": (
        model_of(operands(), scale=1),
        "scale: expected an attribute of type FLOAT, got INT",
    ),
    "is_causal": (model_of(operands(), is_causal=2), "is_causal: expected 0 or 1, got 2"),
    "mode": (
        model_of(operands(), qk_matmul_output_mode=4),
        "qk_matmul_output_mode: expected 0, 1, 2 or 3, got 4",
    ),
    "precision": (
        model_of(operands(), softmax_precision=7),
        r"softmax_precision: expected one of 1 \(float32\), .* 7",
    ),
    "window": (model_of(operands(), left_window_size=-2), "left_window_size: expected -1 .open. or more, got -2"),
    "heads": (model_of(operands(), q_num_heads=0), "q_num_heads: expected 1 or more, got 0"),
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
    with pytest.raises(ValueError, match="initializer 'sparse': expected a dense tensor"):
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
        "Q: expected Q, K and V of rank 4, or all of rank 3",
    ),
    "two ranks": ({**operands(), "K": np.zeros((2, 7, 12), np.float32)}, {}, r"K: expected .* K \[2, 7, 12\]"),
    "no heads": (operands((2,), dim=12), {"q_num_heads": 3}, "kv_num_heads: expected, for K has rank 3"),
    "width": (
        operands((2,)),
        {"q_num_heads": 3, "kv_num_heads": 2},
        "q_num_heads: Q is 4 wide, which is no multiple of 3",
    ),
    "heads of rank 4": (operands(), {"kv_num_heads": 2}, "kv_num_heads: expected the 3 heads that K has, got 2"),
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
        "K: expected the type of Q, float32, got float16",
    ),
    "past's shape": (
        {**operands(), **past(heads=2)},
        {},
        r"past_key: expected \[2, 3, past_sequence_length, 4\], as K is",
    ),
    "past's type": (
        {**operands(), **past(dtype=np.float64)},
        {},
        "past_key: expected the type of Q, float32, got float64",
    ),
    "integer mask": (
        {**operands(), "attn_mask": np.ones((5, 7), np.int64)},
        {},
        "attn_mask: expected bool .* got int64",
    ),
    "mask of rank 0": (
        {**operands(), "attn_mask": np.array(True)},
        {},
        r"attn_mask: expected rank 1 to 4, got shape \[\]",
    ),
    "mask of rank 5": ({**operands(), "attn_mask": np.ones((1,) * 5, bool)}, {}, "attn_mask: expected rank 1 to 4"),
    "long mask": ({**operands(), "attn_mask": np.ones((5, 8), bool)}, {}, r"attn_mask must .*it has shape \[5, 8\]"),
    "mask's rows": ({**operands(), "attn_mask": np.ones((4, 7), bool)}, {}, r"attn_mask must .*it has shape \[4, 7\]"),
    "number of lengths": (
        {**operands(), "nonpad_kv_seqlen": np.array([1])},
        {},
        r"nonpad_kv_seqlen: expected int64 \[2\]",
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
        ([q, k], r"inputs: expected 3 \(Q, K, V\), got 2"),
        ({"Q": q, "K": k}, "inputs: V is missing; the model needs Q, K, V"),
        ({**inputs, "mask": q}, "inputs: mask is no input of the model, which has Q, K, V"),
        ([q, k, v.astype(np.float64)], "V: the model declares float32, got float64"),
        ([q, k, v[0]], r"V: the model declares shape \[2, 3, 7, 4\], got \[3, 7, 4\]"),
        ([q, k, v[:, :, 1:]], r"V: the model declares shape \[2, 3, 7, 4\], got \[2, 3, 6, 4\]"),
    ):
        with pytest.raises(ValueError, match=text):
            prepared.run(given)
