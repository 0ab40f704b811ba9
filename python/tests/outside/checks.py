"""The list of checks, and which calls each is made with."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch

from . import derivatives, recording, values
from .cases import FUNCTIONS, Case

ALL_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
F64, F32 = (torch.float64,), (torch.float32,)
BOTH = (*F64, *F32)


class Check(NamedTuple):
    name: str
    run: Callable[[Case], Any]
    dtypes: tuple[torch.dtype, ...] = F32
    of: str = "all"  #: "all", "functions", "modules" or "attention", PyTorch's function alone
    at_most: int = 25  #: of each function or module, evenly among its samples

    def takes(self, case: Case) -> bool:
        kinds = {"all": True, "functions": case.module is None, "modules": case.module is not None}
        return kinds[self.of] if self.of in kinds else case.subject == FUNCTIONS[0]


CHECKS = (
    Check("gradients", values.gradients, ALL_TYPES, at_most=100),
    Check("without gradients", values.without_gradients, ALL_TYPES, at_most=100),
    Check("inference mode", values.in_inference_mode),
    Check("contiguous rows", values.strides),
    Check("tensors with gaps", values.noncontiguous),
    Check("negated views", values.conjugate_views),
    Check("gradient of one tensor", values.of_some_inputs),
    Check("autocast", values.autocast),
    Check("checkpoint", values.checkpointed),
    Check("saved-tensor hooks", values.saved_tensors),
    Check("changed in place", values.changed_in_place),
    Check("wrong arguments", values.wrong_arguments, of="attention"),
    Check("fewer values than keys", values.short_value, of="attention"),
    Check("evaluation", values.evaluated, BOTH, "modules", at_most=100),
    Check("pickled and cloned", values.copied, of="modules"),
    Check("stack_module_state", values.ensembles, of="modules", at_most=12),
    Check("gradcheck", derivatives.numerical, F64),
    Check("gradcheck, batched", derivatives.numerical_batched, F64),
    Check("gradcheck, forward", derivatives.numerical_forward, F64),
    Check("gradcheck, forward batched", derivatives.numerical_batched_forward, F64),
    Check("gradgradcheck", derivatives.numerical_twice, F64, at_most=12),
    Check("gradgradcheck, forward", derivatives.numerical_forward_over_reverse, F64, at_most=12),
    Check("gradients of gradients", derivatives.twice, BOTH),
    Check("forward-mode tangents", derivatives.tangents, BOTH),
    Check("batches of gradients", derivatives.batched, BOTH),
    Check("jacobian", derivatives.jacobian, F64),
    Check("hessian", derivatives.hessian, F64, at_most=12),
    Check("func.grad", derivatives.func_grad),
    Check("func.vjp", derivatives.func_vjp),
    Check("func.jvp", derivatives.func_jvp),
    Check("func.linearize", derivatives.func_linearize, of="attention", at_most=4),
    Check("func.vmap", derivatives.func_vmap),
    Check("vmap of vjp", derivatives.func_vmap_of_vjp),
    Check("vjp of vmap", derivatives.func_vjp_of_vmap),
    Check("jacrev and jacfwd", derivatives.func_jacobians, F64, at_most=12),
    Check("vjp of vjp", derivatives.func_vjp_of_vjp, F64),
    Check("jvp of vjp", derivatives.func_jvp_of_vjp, F64),
    Check("func.hessian", derivatives.func_hessian, F64, at_most=12),
    Check("composite compliance", recording.compliance, F64, at_most=12),
    Check("compliance, backward", recording.compliance_backward, F64, of="attention"),
    Check("compliance, forward", recording.compliance_forward, F64, of="attention"),
    Check("copy on write", recording.copy_on_write),
    Check("fake beside real", recording.fake_beside_real, at_most=4),
    Check("fake tensors", recording.fake, at_most=12),
    Check("meta tensors", recording.meta, at_most=12),
    Check("make_fx", recording.traced_to_fx, at_most=2),
    Check("aot_autograd", recording.ahead_of_time, F64, at_most=2),
    Check("compile", recording.compiled, at_most=4),
    Check("compile, dynamic", recording.compiled_dynamic, at_most=2),
    Check("compile, inductor", recording.compiled_by_inductor, of="functions", at_most=2),
    Check("export", recording.exported, of="modules", at_most=3),
    Check("jit.trace", recording.traced, at_most=4),
    Check("jit.script", recording.scripted, of="modules", at_most=6),
    Check("schemas", recording.schemas),
    Check("dispatch mode", recording.under_a_mode),
    Check("subclass of two tensors", recording.subclass),
    Check("operations counted", recording.operations),
)
