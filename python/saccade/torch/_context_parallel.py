"""Calls within torch.distributed.tensor.experimental.context_parallel(), which passes tensors divided among ranks."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._arguments import flag


def are_shards(*tensors: Any) -> bool:
    """Whether some are DTensors. Does not import what defines them."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(isinstance(x, module.DTensor) for x in tensors)


def is_in_force() -> bool:
    """Whether context_parallel() has replaced PyTorch's function of attention."""
    module = _module_of(F.scaled_dot_product_attention)
    return module is not None and F.scaled_dot_product_attention in getattr(module, "_replaced_functions", ())


def _module_of(function: Any) -> Any:
    name = getattr(function, "__module__", None) or ""
    return sys.modules.get(name) if name.startswith("torch.distributed.tensor.experimental") else None


def _options() -> Any:
    """The settings of context_parallel(), None outside of it."""
    from torch.distributed.tensor import DTensor

    handlers = getattr(DTensor._op_dispatcher, "_custom_op_handlers", {})
    module = _module_of(handlers.get(torch.ops.aten._scaled_dot_product_flash_attention.default))
    return getattr(module, "_cp_options", None)


def reason_to_pass_on(query: Any, key: Any, value: Any, mask: Any) -> str | None:
    """Why saccade cannot compute with DTensors; None: it can."""
    from torch.distributed.tensor import Shard

    if _options() is None:
        return "a DTensor outside of context_parallel()"
    if mask is not None:
        return "a mask within context_parallel()"
    for x in (query, key, value):
        if not are_shards(x) or x.device_mesh != query.device_mesh:
            return "tensors of different device meshes"
        if x.device_mesh.ndim != 1 or tuple(x.placements) != (Shard(2),) or x.ndim != 4:
            return "a DTensor that is not divided by rows"
    return None


def attend_to_shards(
    query: Any,
    key: Any,
    value: Any,
    _: None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    """The output of DTensors divided by rows, as a DTensor. With load balancing a rank has a piece of the beginning of
    the sequence and one of the end."""
    from torch.distributed.tensor import DTensor

    from .._together import ParallelConfig
    from ._gloo import communicator
    from ._operators import TENSORS, Call
    from .distributed import Arguments, attend

    mesh, placements = query.device_mesh, query.placements
    q, k, v = (x.to_local() for x in (query, key, value))

    def read() -> Arguments:
        causal = "top_left" if flag(is_causal, "is_causal") else None
        heads, kv_heads = q.shape[1], k.shape[1]
        if heads != kv_heads and not flag(enable_gqa, "enable_gqa"):
            raise ValueError(f"key: expected {heads} heads as query has, got {kv_heads} (enable_gqa is False)")
        call = Call(causal=causal, scale=scale, dropout_p=float(dropout_p))
        return Arguments(q, k, v, [None for _ in TENSORS], call, None)

    division = ParallelConfig("zigzag" if _options().enable_load_balance else "contiguous")
    o, _ = attend(communicator(mesh), division, read, False)
    shape = torch.Size((*query.shape[:-1], value.shape[-1]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(o, mesh, placements, run_check=False, shape=shape, stride=stride)


def local_parts(*tensors: Any) -> tuple[Tensor, ...]:
    """The rank's parts of DTensors, without gradients."""
    return tuple(x._local_tensor if are_shards(x) else x for x in tensors)
