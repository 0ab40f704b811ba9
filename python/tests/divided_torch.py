"""What ranks of a gloo group compute with saccade.torch.distributed: functions for processes.run()."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import saccade.distributed
import saccade.torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from divided import Divided, differences, different
from fuzz.values import bfloat16
from saccade.torch.distributed import communicator, scaled_dot_product_attention
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.nn.attention import SDPBackend, sdpa_kernel

LEARNT = ("mask", "sinks", "alibi_slopes")


def tensor(array: Any) -> Any:
    """A tensor of an array, and of anything else itself."""
    if not isinstance(array, np.ndarray):
        return torch.from_dlpack(array).clone() if hasattr(array, "__dlpack__") else array
    array = np.ascontiguousarray(array)
    if bfloat16 is not None and array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def array(tensor: torch.Tensor, like: np.ndarray) -> np.ndarray:
    """An array of a tensor."""
    tensor = tensor.detach().contiguous()
    is_bfloat16 = tensor.dtype is torch.bfloat16
    return (tensor.view(torch.int16) if is_bfloat16 else tensor).numpy().view(like.dtype)


def random_problems(numbers: range, group: Any = None) -> list[str]:
    """What is wrong in random problems: those of NumPy over gloo, and those with autograd."""
    comm = communicator(group, timeout=50)
    wrong = differences(comm, comm.rank, comm.size, numbers)
    for number in numbers:
        problem = Divided(number, comm.size)
        if "score_mod" not in problem.options:
            wrong += [f"{number}: rank {comm.rank}: torch: {line}" for line in _compare(problem, comm, group)]
    return wrong


def _compare(problem: Divided, comm: Any, group: Any) -> list[str]:
    """What is wrong in a problem with autograd: it has the numbers of the functions for NumPy."""
    arrays = problem.own_operands(comm.rank)
    options = {name: tensor(value) for name, value in problem.options.items() if name != "num_threads"}
    q, k, v = (tensor(x).requires_grad_() for x in arrays)
    learnt = {name: options[name] for name in LEARNT if problem.asked()[f"return_d{name}"]}
    for x in learnt.values():
        x.requires_grad_()
    given = {**problem.division, **options, "group": group, "exact": True, "return_lse": True}
    got, got_lse = scaled_dot_product_attention(q, k, v, **given)
    dout = problem.own(problem.dout, problem.rows, comm.rank)
    got.backward(tensor(dout))

    given = {**problem.division, **problem.options, "comm": comm}
    o, lse = saccade.distributed.attention(*arrays, return_lse=True, **given)
    gradients = saccade.distributed.attention_backward(*arrays, o, lse, dout, exact=True, **given, **problem.asked())
    wrong = different("o", array(got, o), o) + different("lse", array(got_lse, lse), lse)
    for name, x in {"q": q, "k": k, "v": v, **learnt}.items():
        wanted = getattr(gradients, f"d{name}")
        if name in learnt:
            wanted = wanted.astype(x.grad.numpy().dtype)
        wrong += different(f"d{name}", array(x.grad, wanted), wanted)
    return wrong


def context_parallel_steps(mesh: Any, is_causal: bool, balanced: bool, patched: bool) -> Any:
    """The steps of PyTorch's tutorial on context parallel: output and gradients of all rows, computed by all ranks,
    and by this process alone; the latter by saccade if `patched`. With the statistics of the patch."""
    from torch.distributed.tensor.experimental import _attention

    _attention._cp_options.enable_load_balance = balanced
    torch.manual_seed(0)
    qkv = [torch.randn(2, 4, 64, 32) for _ in range(3)]
    qkv[1], qkv[2] = qkv[1][:, :2].contiguous(), qkv[2][:, :2].contiguous()
    dout = torch.randn(2, 4, 64, 32)
    patch = saccade.torch.patch()
    if not patched:
        patch.undo()
    try:
        alone = _alone(qkv, dout, is_causal)
        parts = [x.clone() for x in (*qkv, dout)]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4):
            leaves = [x.clone().requires_grad_() for x in parts[:3]]
            o = F.scaled_dot_product_attention(*leaves, is_causal=is_causal, enable_gqa=True)
            o.backward(parts[3])
            found = context_parallel_unshard(mesh, [o.detach(), *(x.grad for x in leaves)], [2] * 4)
    finally:
        patch.undo()
    sites = [os.path.basename(site.file) for site in patch.statistics().taken]
    return [x.numpy() for x in found], alone, sites


def _alone(qkv: list[torch.Tensor], dout: torch.Tensor, is_causal: bool) -> list[np.ndarray]:
    leaves = [x.clone().requires_grad_() for x in qkv]
    o = F.scaled_dot_product_attention(*leaves, is_causal=is_causal, enable_gqa=True)
    o.backward(dout)
    return [o.detach().numpy(), *(x.grad.numpy() for x in leaves)]


def all_context_parallel(mesh: Any) -> list[Any]:
    """context_parallel_steps() with and without a mask, load balancing and saccade; what they return or raise."""
    results = []
    for given in (
        (True, True, True),
        (True, False, True),
        (False, False, True),
        (False, True, True),
        (True, True, False),
    ):
        try:
            results.append((given, context_parallel_steps(mesh, *given)))
        except NotImplementedError as error:
            results.append((given, error))
    return results


def _error_of(*arguments: Any, **options: Any) -> Any:
    try:
        scaled_dot_product_attention(*arguments, **options)
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def _x(**options: Any) -> torch.Tensor:
    return torch.ones(2, 6, 8, **options)


def errors(group: Any) -> dict[str, Any]:
    """Names of errors, and text, of calls that are wrong on rank 1 only; and what follows."""
    is_wrong = dist.get_rank(group.get_group()) == 1
    x, found = _x(), {}
    wrong: dict[str, Any] = {
        "causal": {"causal": "up"},
        "window": {"window": (1, 2, 3)},
        "sinks": {"sinks": "many"},
        "method": {"method": "spin"},
        "softcap": {"softcap": 2.0},
    }
    for name, options in wrong.items():
        found[name] = _error_of(x, x, x, group=group, **(options if is_wrong else {}))
    found["integers"] = _error_of(x.to(torch.int64) if is_wrong else x, x, x, group=group)
    found["requires_grad"] = _error_of(x, x, _x(requires_grad=is_wrong), group=group)
    found["vmap"] = _error_of(torch.ones(2, 2, 6, 8), x, x, group=group) if not is_wrong else _vmapped_error(x, group)
    leaf = _x(requires_grad=True)
    o = scaled_dot_product_attention(leaf, x, x, group=group)
    try:
        torch.autograd.grad(o.sum(), leaf, create_graph=is_wrong)
    except ValueError as error:
        found["twice"] = "ValueError", str(error)
    found["fine"] = _error_of(x, x, x, group=group)
    return found


def _vmapped_error(x: torch.Tensor, group: Any) -> Any:
    found = []
    torch.func.vmap(lambda q: (found.append(_error_of(q, x, x, group=group)), q)[1])(torch.ones(2, 2, 6, 8))
    return found[0]


def details(mesh: Any, pair: Any) -> dict[str, Any]:
    """What does not need problems."""
    x = _x()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found: dict[str, Any] = {"same": communicator() is communicator(dist.group.WORLD), "rank": communicator().rank}
    found["pair"] = communicator(pair).rank, communicator(pair).size
    pairs = [dist.new_group([first, first + 1]) for first in range(0, ranks, 2)]
    found["not in it"] = _error_of(x, x, x, group=pairs[1 - rank // 2])
    found["no group"] = _error_of(x, x, x, group=3)
    torch.manual_seed(rank)
    q = torch.ones(1, 2, 6, 8)
    one, two = (scaled_dot_product_attention(q, q, q, dropout_p=0.5) for _ in range(2))
    torch.manual_seed(0)
    own = slice(6 * rank, 6 * rank + 6)
    wanted = saccade.torch.attention(*(torch.ones(1, 2, 6 * ranks, 8) for _ in range(3)), dropout_p=0.5)[:, :, own]
    found["dropout"] = torch.equal(one, wanted), not torch.equal(one, two)
    half = x.to(torch.bfloat16)
    with torch.autocast("cpu"):
        found["autocast"] = torch.equal(
            scaled_dot_product_attention(x, x, x), scaled_dot_product_attention(half, half, half)
        )
    try:
        with context_parallel(mesh, buffers=[q.clone()], buffer_seq_dims=[3]):
            saccade.torch.patch()
    except RuntimeError as error:
        found["patch"] = str(error)
    return found


def everything() -> dict[str, Any]:
    """All that needs no lost rank, in one start of four processes: of all, and of each pair."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("cp",))
    pair = init_device_mesh("cpu", (2, 2), mesh_dim_names=("batch", "cp"))["cp"]
    first = 310 + 10 * (dist.get_rank() // 2)
    return {
        "problems": random_problems(range(300, 310)) + random_problems(range(first, first + 10), pair.get_group()),
        "context_parallel": all_context_parallel(mesh) + all_context_parallel(pair),
        "errors": errors(pair),
        "details": details(mesh, pair),
    }
