"""saccade.torch.scaled_dot_product_attention with the usual arguments, which takes a way of its own that begins in C++:
it gives the same bits, and leaves everything unusual to the other way."""

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from saccade import _core  # noqa: E402

sdpa = saccade.torch.scaled_dot_product_attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_results_have_the_same_bits_on_either_way(dtype, monkeypatch):
    plain = _core.plain_attention
    shapes = [((6, 4),) * 3, ((1, 6, 4), (1, 9, 4), (1, 9, 4)), ((2, 3, 5, 16),) * 3, ((1, 1, 1, 1),) * 3]
    shapes += [((1, 4, 300, 8),) * 3, ((4, 70, 16), (2, 50, 16), (2, 50, 16)), ((1, 2, 1, 8),) + ((1, 1, 700, 8),) * 2]
    shapes += [((1, 8, 2, 64),) + ((1, 8, 1024, 64),) * 2]
    for i, (of_q, of_k, of_v) in enumerate(shapes):
        for options in ({}, {"is_causal": True}, {"scale": -0.5, "is_causal": False, "enable_gqa": True}):
            if of_q[-3:-2] != of_k[-3:-2]:
                options["enable_gqa"] = True
            for order in ("as they are", "heads inside", "in a longer row"):

                def made(shape, order=order):
                    if order == "in a longer row":
                        return torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., : shape[-1]]
                    if order == "heads inside" and len(shape) > 2:
                        return torch.randn(*shape[:-3], shape[-2], shape[-3], shape[-1]).to(dtype).transpose(-2, -3)
                    return torch.randn(shape).to(dtype)

                torch.manual_seed(i)
                inputs = [made(shape).requires_grad_() for shape in (of_q, of_k, of_v)]
                dout = torch.randn(of_q).to(dtype)
                results = []
                for way in (plain, lambda *_: None):
                    monkeypatch.setattr(_core, "plain_attention", way)
                    o = sdpa(*inputs, **options)
                    with torch.inference_mode():
                        inferred = sdpa(*inputs, **options)
                        assert (way(*inputs, 0.0, False, None, True) is None) == (way is not plain)
                    results.append((o, inferred, *torch.autograd.grad(o, inputs, dout)))
                for got, wanted in zip(*results):
                    assert torch.equal(got, wanted) and got.stride() == wanted.stride()
                    assert got.requires_grad == wanted.requires_grad


def test_which_calls_are_plain():
    def is_plain(q, k=None, v=None, dropout_p=0.0, is_causal=False, scale=None, gqa=False):
        k = q if k is None else k
        return _core.plain_attention(q, k, k if v is None else v, dropout_p, is_causal, scale, gqa) is not None

    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 9, 4)
    parameter = torch.nn.Parameter(q)
    assert is_plain(q) and is_plain(q, k) and is_plain(parameter) and is_plain(q, is_causal=True, scale=0.5)
    others = [(q, k, q), (q, k[:, :1]), (q, k, k[..., :2]), (q, k.double()), (q[None],), (q[0, 0, 0],), (q[:, :, :0],)]
    others += [(q, k[:, :, :0]), (q.int(),)]
    others += [(q.mT.contiguous().mT,), (torch.complex(q, q).conj().imag,), (torch._neg_view(q),), (q.to("meta"),)]
    others += [(torch.nn.UninitializedParameter(),), (q.to_sparse(),), (q.numpy(),), (q.tolist(),)]
    for tensors in others:
        assert not is_plain(*tensors), tensors
        assert len(tensors) > 1 or not is_plain(q, q, *tensors), tensors
    assert _core.plain_attention(q, None, q, 0.0, False, None, False) is None
    for value in (0.1, True, None, "0.0", torch.zeros(())):
        assert not is_plain(q, dropout_p=value)
    for value in (float("nan"), float("inf"), 2, "1", torch.ones(())):
        assert not is_plain(q, scale=value)
    for value in (None, 1, torch.tensor(True)):
        assert not is_plain(q, is_causal=value) and not is_plain(q, gqa=value)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_plain(q)
    with torch.autograd.forward_ad.dual_level():
        assert not is_plain(q)
    with torch.overrides.BaseTorchFunctionMode():
        assert not is_plain(q)
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert not is_plain(q)
    assert torch.equal(torch.func.vmap(lambda x: x + int(is_plain(q)))(k), k)
    assert torch.equal(torch.jit.trace(lambda x: x + int(is_plain(q)), k, check_trace=False)(k), k)
    assert is_plain(q)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("batch", "length", "heads", "head_dim"), [(2, 5, 3, 4), (1, 1, 1, 1), (3, 200, 4, 16)])
def test_heads_side_by_side_have_the_same_bits(batch, length, heads, head_dim, dtype):
    projected = torch.randn(batch, length, 3 * heads * head_dim).to(dtype)
    q, k, v = projected.view(batch, length, 3, heads, head_dim).permute(2, 0, 3, 1, 4)
    wanted = sdpa(q, k, v).transpose(1, 2).flatten(2)
    got = _core.plain_self_attention(projected, heads)
    assert torch.equal(got, wanted) and got.is_contiguous()
    wider = torch.randn(batch, length, 2 * projected.shape[-1]).to(dtype)[..., : projected.shape[-1]].copy_(projected)
    assert torch.equal(_core.plain_self_attention(wider, heads), wanted)


def test_which_heads_side_by_side_are_plain():
    projected = torch.randn(2, 5, 24)
    assert _core.plain_self_attention(projected, 2) is not None
    for heads in (0, -1, 3, 9):
        assert _core.plain_self_attention(projected, heads) is None
    others = [projected[0], projected[None], projected[:, :0], projected.int(), projected.mT, projected.numpy()]
    for other in (*others, projected.clone().requires_grad_(), torch.nn.UninitializedParameter()):
        assert _core.plain_self_attention(other, 2) is None
    with torch.autocast("cpu"):
        assert _core.plain_self_attention(projected, 2) is None


def test_the_gradient_of_a_sum_stays_short(monkeypatch):
    q = torch.randn(1, 2, 6, 4, requires_grad=True)
    o = sdpa(q, q, q)
    monkeypatch.setattr("saccade.torch._attend._forward", None)  # what longer calls compute o and lse with
    (got,) = torch.autograd.grad(o.sum(), q)  # dout has strides of 0
    (wanted,) = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).sum(), q)
    torch.testing.assert_close(got, wanted)


def test_saved_tensors_may_come_back_in_another_form():
    for back in (lambda x: x.mT.contiguous().mT, lambda x: x):
        q = torch.randn(1, 2, 6, 4, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, back):
            o = sdpa(q, q, q)
        (got,) = torch.autograd.grad(o.sum(), q)  # dout has strides of 0
        (wanted,) = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).sum(), q)
        torch.testing.assert_close(got, wanted)
