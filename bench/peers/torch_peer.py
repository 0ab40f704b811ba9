"""PyTorch: scaled_dot_product_attention on its flash path, flex_attention compiled, nn.MultiheadAttention."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from .inputs import LOOP_WIDTH, Inputs, LoopInputs, ModuleInputs
from .peer import Call, Unsupported, Way, rows_of_group
from .problem import Problem

TITLE = "PyTorch"
DISTRIBUTIONS = ("torch",)

Attend = Callable[..., "list[torch.Tensor]"]


def start(threads: int) -> None:
    torch.set_num_threads(threads)


def ways(problem: Problem) -> list[Way]:
    if problem.cache:
        raise Unsupported("no quantized caches")
    if problem.kind == "loop":
        return [
            Way("the published module", _loop_as_published),
            Way("its operations in inference_mode", _loop_of_operations),
            Way("F.scaled_dot_product_attention in inference_mode", _loop_with_sdpa),
        ]
    if problem.module:
        return [Way("nn.MultiheadAttention", functools.partial(module_call, torch.nn.MultiheadAttention))]
    makers: dict[str, Callable[[Inputs], tuple[list[torch.Tensor], Attend]]] = {}
    if not problem.softcap:
        if problem.documents:
            makers["F.scaled_dot_product_attention of each document"] = _each_document
        makers["F.scaled_dot_product_attention"] = _sdpa
        if problem.mask != "f32" and (problem.mask or _needs_mask(problem)):
            makers["F.scaled_dot_product_attention, the mask as floats"] = functools.partial(_sdpa, float_mask=True)
        if problem.num_kv_heads < problem.num_heads:
            makers["F.scaled_dot_product_attention, a group's heads as rows"] = _group_sdpa
            makers["bmm, softmax, bmm, a group's heads as rows"] = _group_products
    is_plain_forward = problem.kind == "forward" and not problem.mask and not problem.memory
    if is_plain_forward and (problem.is_structured and problem.seqlen_q > 1 or problem.softcap):
        makers["flex_attention, compiled"] = _flex
    if not makers:
        raise Unsupported("flex_attention has no gradients on the CPU" if problem.softcap else "")
    return [Way(name, functools.partial(_prepare, maker)) for name, maker in makers.items()]


def tensor(array: np.ndarray) -> torch.Tensor:
    """The same memory as a tensor."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def numpy(of: torch.Tensor) -> np.ndarray:
    return of.detach().float().numpy()


def _prepare(maker: Callable[[Inputs], tuple[list[torch.Tensor], Attend]], inputs: Inputs) -> Call:
    """``maker`` returns operands, and a function that computes a list of outputs from them."""
    p = inputs.problem
    operands, attend = maker(inputs)
    if p.kind == "forward":
        run = functools.partial(attend, *operands)
        return Call(run, lambda outputs: {"o": _joined(p, outputs)}, torch.inference_mode)
    for operand in operands:
        operand.requires_grad_()
    outputs = attend(*operands)
    dout = _parts(inputs, inputs.dout) if len(outputs) > 1 else [tensor(inputs.dout).view_as(outputs[0])]
    if p.kind == "backward":
        run = functools.partial(torch.autograd.grad, outputs, operands, dout, retain_graph=True)
    else:
        outputs = None

        def run() -> Sequence[torch.Tensor]:
            return torch.autograd.grad(attend(*operands), operands, dout)

    def results(gradients: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
        third = len(gradients) // 3
        parts = (gradients[i * third : (i + 1) * third] for i in range(3))
        return {name: _joined(p, part, name != "dq") for name, part in zip(("dq", "dk", "dv"), parts)}

    return Call(run, results)


def _joined(p: Problem, parts: Sequence[torch.Tensor], of_keys: bool = False) -> np.ndarray:
    """The documents joined, [batch, heads, seqlen, dim]."""
    heads, seqlen = (p.num_kv_heads, p.seqlen_k) if of_keys else (p.num_heads, p.seqlen_q)
    return numpy(torch.cat(list(parts), dim=-2)).reshape(p.batch, heads, seqlen, p.head_dim)


def _parts(inputs: Inputs, array: np.ndarray) -> list[torch.Tensor]:
    return [tensor(array)[:, :, rows].contiguous() for rows in inputs.documents()]


def _needs_mask(p: Problem) -> bool:
    is_plain_causal = p.causal == "top_left" or p.causal == "bottom_right" and p.seqlen_q == p.seqlen_k
    all_visible = not p.causal or p.seqlen_q == 1 and p.causal == "bottom_right"
    return p.has_window or p.documents > 0 or p.lengths or not (is_plain_causal or all_visible)


def _sdpa(inputs: Inputs, float_mask: bool = False) -> tuple[list[torch.Tensor], Attend]:
    p = inputs.problem
    options: dict[str, Any] = {"dropout_p": p.dropout_p, "enable_gqa": p.num_kv_heads < p.num_heads}
    if p.mask or _needs_mask(p):
        mask = tensor(inputs.whole_mask())
        if float_mask:
            mask = torch.zeros(mask.shape, dtype=tensor(inputs.q).dtype).masked_fill_(~mask, -torch.inf)
        options["attn_mask"] = mask
    elif p.causal and p.seqlen_q > 1:
        options["is_causal"] = True
    return [tensor(inputs.q), tensor(inputs.k), tensor(inputs.v)], lambda q, k, v: [
        F.scaled_dot_product_attention(q, k, v, **options)
    ]


def _each_document(inputs: Inputs) -> tuple[list[torch.Tensor], Attend]:
    p = inputs.problem
    if p.has_window or p.mask:
        raise Unsupported("a mask for each document")
    count = p.documents

    def attend(*parts: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.scaled_dot_product_attention(
                parts[i],
                parts[count + i],
                parts[2 * count + i],
                dropout_p=p.dropout_p,
                is_causal=bool(p.causal),
                enable_gqa=p.num_kv_heads < p.num_heads,
            )
            for i in range(count)
        ]

    return [part for array in (inputs.q, inputs.k, inputs.v) for part in _parts(inputs, array)], attend


def _group_sdpa(inputs: Inputs) -> tuple[list[torch.Tensor], Attend]:
    q = tensor(rows_of_group(inputs))
    mask = tensor(inputs.whole_mask()) if inputs.problem.lengths else None
    return [q, tensor(inputs.k), tensor(inputs.v)], lambda q, k, v: [
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    ]


def _group_products(inputs: Inputs) -> tuple[list[torch.Tensor], Attend]:
    p = inputs.problem
    q, k, v = (tensor(array).flatten(0, 1) for array in (rows_of_group(inputs), inputs.k, inputs.v))
    if p.lengths:
        raise Unsupported("lengths")
    scale = p.head_dim**-0.5
    return [q, k, v], lambda q, k, v: [torch.bmm(torch.softmax(torch.bmm(q * scale, k.transpose(1, 2)), -1), v)]


def _flex(inputs: Inputs) -> tuple[list[torch.Tensor], Attend]:
    """A mask_mod for the rule, so that blocks that it hides are skipped, and a score_mod for softcap."""
    p = inputs.problem
    left, right = p.window
    offset = p.seqlen_k - p.seqlen_q if p.causal == "bottom_right" else 0
    document = lengths = None
    if p.documents:
        document = torch.from_numpy(np.repeat(np.arange(p.documents, dtype=np.int32), np.diff(inputs.cu_seqlens)))
    if p.lengths:
        lengths = tensor(inputs.lengths)

    def is_visible(b: Any, h: Any, i: Any, j: Any) -> Any:
        visible = j >= 0
        if p.causal:
            visible = visible & (j <= i + offset)
        if left >= 0:
            visible = visible & (j >= i + offset - left)
        if right >= 0:
            visible = visible & (j <= i + offset + right)
        if document is not None:
            visible = visible & (document[i] == document[j])
        if lengths is not None:
            visible = visible & (j < lengths[b])
        return visible

    def capped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return p.softcap * torch.tanh(score / p.softcap)

    block_mask = None
    if p.is_structured:
        batch = p.batch if p.lengths else None
        block_mask = create_block_mask(is_visible, batch, None, p.seqlen_q, p.seqlen_k, device="cpu")
    torch._dynamo.reset()  # torch.compile would give up at the eighth function of a process
    compiled = torch.compile(flex_attention, dynamic=False)
    options = {"score_mod": capped if p.softcap else None, "enable_gqa": p.num_kv_heads < p.num_heads}
    operands = [tensor(inputs.q), tensor(inputs.k), tensor(inputs.v)]
    return operands, lambda q, k, v: [compiled(q, k, v, block_mask=block_mask, **options)]


def module_call(module_class: type, inputs: ModuleInputs) -> Call:
    """A call of torch.nn.MultiheadAttention, or of a class with its arguments and parameters."""
    p = inputs.problem
    module = module_class(p.width, p.num_heads, batch_first=True)
    state = {"in_proj_weight": inputs.in_weight, "in_proj_bias": inputs.in_bias}
    state.update({"out_proj.weight": inputs.out_weight, "out_proj.bias": inputs.out_bias})
    module.load_state_dict({name: tensor(array) for name, array in state.items()})
    x, dout = tensor(inputs.x), tensor(inputs.dout)
    if p.kind == "forward":
        module.eval()
        return Call(lambda: module(x, x, x, need_weights=False)[0], lambda o: {"o": numpy(o)}, torch.inference_mode)
    x.requires_grad_()
    parameters = [x, *module.parameters()]

    def run() -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
        o = module(x, x, x, need_weights=False)[0]
        return o, torch.autograd.grad(o, parameters, dout)

    def results(outputs: tuple[torch.Tensor, Sequence[torch.Tensor]]) -> dict[str, np.ndarray]:
        o, (dx, din_weight, *_) = outputs
        return {"o": numpy(o), "dx": numpy(dx), "din_weight": numpy(din_weight)}

    return Call(run, results)


class _PublishedSelfAttention(torch.nn.Module):
    """The class of the walk-through "Understanding and Coding Self-Attention"."""

    def __init__(self, inputs: LoopInputs) -> None:
        super().__init__()
        self.d_out_kq = LOOP_WIDTH
        self.W_query = torch.nn.Parameter(tensor(inputs.W_query))
        self.W_key = torch.nn.Parameter(tensor(inputs.W_key))
        self.W_value = torch.nn.Parameter(tensor(inputs.W_value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys = x @ self.W_key
        queries = x @ self.W_query
        values = x @ self.W_value
        attn_scores = queries @ keys.T
        attn_weights = torch.softmax(attn_scores / self.d_out_kq**0.5, dim=-1)
        return attn_weights @ values


def _loop_results(o: torch.Tensor) -> dict[str, np.ndarray]:
    return {"o": numpy(o)}


def _loop_as_published(inputs: LoopInputs) -> Call:
    return Call(functools.partial(_PublishedSelfAttention(inputs), tensor(inputs.x)), _loop_results)


def _loop_of_operations(inputs: LoopInputs) -> Call:
    module = _PublishedSelfAttention(inputs)
    return Call(functools.partial(module.forward, tensor(inputs.x)), _loop_results, torch.inference_mode)


def _loop_with_sdpa(inputs: LoopInputs) -> Call:
    x, W_query, W_key, W_value = map(tensor, (inputs.x, inputs.W_query, inputs.W_key, inputs.W_value))

    def run() -> torch.Tensor:
        return F.scaled_dot_product_attention((x @ W_query)[None], (x @ W_key)[None], (x @ W_value)[None])[0]

    return Call(run, _loop_results, torch.inference_mode)
