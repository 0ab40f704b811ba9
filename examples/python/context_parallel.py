"""PyTorch's context_parallel() on CPUs: each process holds some rows of the sequence, and computes their attention and
its gradients. With --plain, without saccade: PyTorch has no kernel for it.

    torchrun --nproc-per-node 2 examples/python/context_parallel.py [--plain]
"""

import sys

import saccade.torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.nn.attention import SDPBackend, sdpa_kernel

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
if "--plain" not in sys.argv:
    saccade.torch.patch()  # before context_parallel()

torch.manual_seed(0)  # the same sequence in every process
q, k, v, dout = (torch.randn(1, 8, 2048, 64) for _ in range(4))
leaves = [x.clone().requires_grad_() for x in (q, k, v)]
alone = F.scaled_dot_product_attention(*leaves, is_causal=True)
alone.backward(dout)
wanted = [alone.detach(), *(x.grad for x in leaves)]

with (
    sdpa_kernel(SDPBackend.FLASH_ATTENTION),
    context_parallel(mesh, buffers=[q, k, v, dout], buffer_seq_dims=[2, 2, 2, 2]),
):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]  # the rows of this process
    o = F.scaled_dot_product_attention(*leaves, is_causal=True)
    o.backward(dout)
    found = context_parallel_unshard(mesh, [o.detach(), *(x.grad for x in leaves)], [2, 2, 2, 2])

if dist.get_rank() == 0:
    for name, one, whole in zip(("o", "dq", "dk", "dv"), found, wanted):
        print(f"{name}: largest difference from one process {(one - whole).abs().max().item():.1e}")
dist.destroy_process_group()
