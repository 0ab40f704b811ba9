"""Random problems of the operator Attention, and a check of results against onnx's reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("onnx", minversion="1.23")
ml_dtypes = pytest.importorskip("ml_dtypes")

from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_models import model_of  # noqa: E402


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
