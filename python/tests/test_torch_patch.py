"""saccade.torch.patch(): which calls go to saccade, which to PyTorch, and how it ends."""

import copy
import importlib
import itertools
import pickle
import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")

import saccade.torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from saccade.torch import _attend, _encoder  # noqa: E402
from torch import nn  # noqa: E402
from torch.jit import _builtins  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention.bias import causal_lower_right  # noqa: E402

original = F.scaled_dot_product_attention
fused = (torch._transformer_encoder_layer_fwd, torch._native_multi_head_attention)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    yield
    assert F.scaled_dot_product_attention is original
    assert fused == (torch._transformer_encoder_layer_fwd, torch._native_multi_head_attention)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.fixture
def calls(monkeypatch):
    """The shapes of q in all calls that saccade computes."""
    shapes = []
    forward = _attend._forward

    def counted(q, *others, **options):
        shapes.append(tuple(q.shape))
        return forward(q, *others, **options)

    plain = _attend._core.plain_attention

    def counted_plain(q, *others):
        o = plain(q, *others)
        if o is not None:
            shapes.append(tuple(q.shape))
        return o

    plain_self = _attend._core.plain_self_attention

    def counted_self(projected, num_heads):
        o = plain_self(projected, num_heads)
        if o is not None:
            batch, length, width = o.shape
            shapes.append((batch, num_heads, length, width // num_heads))
        return o

    packed = _encoder._packed

    def counted_packed(q, *others):
        shapes.append(tuple(q.shape))
        return packed(q, *others)

    monkeypatch.setattr(_attend, "_forward", counted)
    monkeypatch.setattr(_attend._core, "plain_attention", counted_plain)
    monkeypatch.setattr(_attend._core, "plain_self_attention", counted_self)
    monkeypatch.setattr(_encoder, "_packed", counted_packed)
    return shapes


def operands(*lead):
    torch.manual_seed(0)
    return [torch.randn(*lead, seqlen, 8) for seqlen in (5, 7, 7)]


# Beginning and end of a patch.


def test_takes_effect_at_once_and_ends_with_undo(calls):
    q, k, v = operands(2, 3)
    wanted = F.scaled_dot_product_attention(q, k, v)
    handle = saccade.torch.patch()
    try:
        torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v), wanted)
        assert calls == [(2, 3, 5, 8)] and "in force" in repr(handle)
    finally:
        handle.undo()
    F.scaled_dot_product_attention(q, k, v)
    handle.undo()  # the second time has no effect
    assert len(calls) == 1 and "undone" in repr(handle)


def test_ends_with_its_block_even_by_an_exception(calls):
    with pytest.raises(ZeroDivisionError), saccade.torch.patch() as handle:
        assert isinstance(handle, saccade.torch.Patch)
        raise ZeroDivisionError
    F.scaled_dot_product_attention(*operands(2, 3))
    assert not calls


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_is_in_force_until_the_last_handle_is_undone(order, calls):
    handles = [saccade.torch.patch() for _ in range(3)]
    for count, i in enumerate(order):
        F.scaled_dot_product_attention(*operands(2, 3))
        assert len(calls) == count + 1
        handles[i].undo()
        handles[i].undo()
    F.scaled_dot_product_attention(*operands(2, 3))
    assert len(calls) == 3


def test_a_handle_can_be_used_again(calls):
    handle = saccade.torch.patch()
    for _ in range(2):
        with handle:
            F.scaled_dot_product_attention(*operands(2, 3))
        assert F.scaled_dot_product_attention is original and "undone" in repr(handle)
    assert len(calls) == 2


@pytest.mark.parametrize("enabled", [True, False])
def test_fused_inference_stays_as_it_was(enabled, calls):
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        with saccade.torch.patch(), torch.no_grad():
            assert torch.backends.mha.get_fastpath_enabled() == enabled
            encoder().eval()(torch.randn(3, 7, 32))
        assert torch.backends.mha.get_fastpath_enabled() == enabled and len(calls) == 2
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_threads_may_patch_and_undo_as_they_like():
    q, k, v = operands(2, 3)
    wanted = original(q, k, v)
    failures = []

    def work():
        for _ in range(200):
            with saccade.torch.patch():
                if F.scaled_dot_product_attention is original:
                    failures.append("not patched")
                if not torch.allclose(F.scaled_dot_product_attention(q, k, v), wanted, atol=1e-5):
                    failures.append("wrong")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_others_may_wrap_it_meanwhile(calls):
    q, k, v = operands(2, 3)
    handle = saccade.torch.patch()
    patched = F.scaled_dot_product_attention

    def wrapper(*arguments, **options):
        return patched(*arguments, **options)

    F.scaled_dot_product_attention = wrapper
    try:
        handle.undo()
        assert F.scaled_dot_product_attention is wrapper
        F.scaled_dot_product_attention(q, k, v)
        assert not calls  # a wrapper that is still referenced does not compute after undo()
        with saccade.torch.patch():
            F.scaled_dot_product_attention(q, k, v)
            meta = F.scaled_dot_product_attention(*(x.to("meta") for x in (q, k, v)))
        assert len(calls) == 1 and meta.is_meta
        assert F.scaled_dot_product_attention is wrapper
    finally:
        F.scaled_dot_product_attention = original


def test_looks_like_the_original():
    with saccade.torch.patch():
        assert F.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"
        assert F.scaled_dot_product_attention.__doc__ == original.__doc__


def test_goes_through_pickle():
    with saccade.torch.patch():
        pickled = pickle.dumps(F.scaled_dot_product_attention)
        assert pickle.loads(pickled) is F.scaled_dot_product_attention
    assert pickle.loads(pickled) is original


def test_names_imported_before_are_not_reached(calls):
    with saccade.torch.patch():
        original(*operands(2, 3))
        assert not calls
        module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("later", None))
        exec("from torch.nn.functional import scaled_dot_product_attention", module.__dict__)
        module.scaled_dot_product_attention(*operands(2, 3))
        assert len(calls) == 1


# Which calls go to saccade.


def test_takes_all_arguments_of_the_original(calls):
    q, k, v = (torch.randn(2, heads, 7, 8) for heads in (6, 2, 2))
    mask = torch.rand(7, 7) < 0.7
    for options in (
        {"attn_mask": mask, "enable_gqa": True},
        {"is_causal": True, "scale": 0.3, "enable_gqa": True},
        {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": True},
    ):
        with saccade.torch.patch():
            got = F.scaled_dot_product_attention(q, k, v, **options)
        torch.testing.assert_close(got, original(q, k, v, **options))
    with saccade.torch.patch(), pytest.raises(TypeError):
        F.scaled_dot_product_attention(q, k, v, causal=True)
    assert len(calls) == 3


def test_what_saccade_cannot_do_is_an_error_and_no_fallback(calls):
    q, k, v = operands(2, 3)
    with saccade.torch.patch():
        with pytest.raises(ValueError, match="key: batch and heads"):
            F.scaled_dot_product_attention(q, k[:, :2], v)
        with pytest.raises(ValueError, match="query: expected float64"):
            F.scaled_dot_product_attention(q.int(), k, v)


def test_other_devices_and_stand_ins_go_to_the_original(calls):
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, k, v = operands(2, 3)
    with saccade.torch.patch():
        assert F.scaled_dot_product_attention(*(x.to("meta") for x in (q, k, v))).is_meta
        with FakeTensorMode() as mode:
            fake = [mode.from_tensor(x) for x in (q, k, v)]
            assert F.scaled_dot_product_attention(*fake).shape == (2, 3, 5, 8)
        wanted = original(q, k, v)
        torch.testing.assert_close(torch.vmap(F.scaled_dot_product_attention)(q, k, v), wanted)
        gradient = torch.func.grad(lambda x: F.scaled_dot_product_attention(x, k, v).sum())(q)
        x = q.clone().requires_grad_()
        torch.testing.assert_close(gradient, torch.autograd.grad(original(x, k, v).sum(), x)[0])
        with pytest.raises(Exception, match="torch.device|device"):  # PyTorch's own error
            F.scaled_dot_product_attention(q.to("meta"), k, v)
    assert not calls


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_is_left_alone(calls):
    with saccade.torch.patch():
        assert F.scaled_dot_product_attention(*(x.cuda() for x in operands(2, 3))).is_cuda
    assert not calls


def test_classes_with_their_own_mind_are_asked(calls):
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return "mine" if function is original else super().__torch_function__(function, types, args, kwargs)

    q, k, v = operands(2, 3)
    with saccade.torch.patch():
        assert F.scaled_dot_product_attention(q.as_subclass(Own), k, v) == "mine"
        assert F.scaled_dot_product_attention(query=q, key=k, value=v.as_subclass(Own)) == "mine"
        graph = torch.fx.symbolic_trace(_Calling())
    assert not calls
    assert any(node.target is original for node in graph.graph.nodes)


class _Calling(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def test_classes_that_change_nothing_and_modes_come_here(calls):
    class Tagged(torch.Tensor):
        pass

    seen = []

    class Listening(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    q, k, v = operands(2, 3)
    with saccade.torch.patch():
        assert type(F.scaled_dot_product_attention(q.as_subclass(Tagged), k, v)) is Tagged
        with Listening():
            F.scaled_dot_product_attention(q, k, v)
            assert F.scaled_dot_product_attention in seen
        with torch.device("cpu"):
            F.scaled_dot_product_attention(q, k, v)
        got = F.scaled_dot_product_attention(q, k, v, causal_lower_right(5, 7))
    torch.testing.assert_close(got, original(q, k, v, causal_lower_right(5, 7)))
    assert len(calls) == 4


def test_what_is_traced_is_pytorchs_own(calls):
    q = torch.randn(2, 3, 5, 8)
    with saccade.torch.patch(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(_Calling(), (q,), check_trace=False)
    assert "saccade::" not in str(traced.graph)
    torch.testing.assert_close(traced(q), original(q, q, q))
    assert not calls


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_what_is_scripted_is_pytorchs_own(calls):
    q = torch.randn(2, 3, 5, 8)
    module, x = nn.MultiheadAttention(16, 4), torch.randn(5, 2, 16)
    known = dict(_builtins._get_builtin_table())
    with saccade.torch.patch():
        scripted = torch.jit.script(_Calling())
        scripted_module = torch.jit.script(module)
        torch.testing.assert_close(scripted(q), original(q, q, q))
        assert not calls
        torch.testing.assert_close(scripted_module(x, x, x)[0], module(x, x, x)[0])
    assert "aten::scaled_dot_product_attention" in str(scripted.graph)
    assert _builtins._get_builtin_table() == known  # the compiler's table is restored


def test_where_the_fused_kernel_is_off_pytorch_computes(calls):
    q, k, v = (x.requires_grad_() for x in operands(2, 3))
    with saccade.torch.patch():
        with sdpa_kernel(SDPBackend.MATH):
            (gradient,) = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).sum(), q, create_graph=True)
            assert torch.autograd.grad(gradient.square().sum(), q)[0].any()
        assert not calls
        F.scaled_dot_product_attention(q, k, v)
    assert len(calls) == 1


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="this PyTorch does not say that it exports")
def test_what_is_exported_is_pytorchs_own(calls):
    q = torch.randn(2, 3, 5, 8)
    with saccade.torch.patch():
        exported = torch.export.export(_Calling(), (q,))
    assert "saccade." not in str(exported.graph)
    torch.testing.assert_close(exported.module()(q), original(q, q, q))
    assert not calls


# PyTorch's modules.


def encoder(dropout=0.0, **options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options.get("norm_first"))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_encoder(norm_first, training, grad, padded, calls):
    """In training and evaluation, where PyTorch would otherwise use fused inference and nested tensors."""
    model = encoder(norm_first=norm_first).train(training)
    x = torch.randn(3, 7, 32)
    padding = torch.arange(7) >= torch.tensor([7, 5, 3])[:, None] if padded else None
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = model(x, src_key_padding_mask=padding)
        assert not calls
        with saccade.torch.patch():
            got = model(x, src_key_padding_mask=padding)
    assert len(calls) == 2
    makes_nested = not norm_first and not training and not grad  # and zeros at padded positions
    seen = slice(None) if padding is None or makes_nested else ~padding
    torch.testing.assert_close(got[seen], wanted[seen])


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "floating"])
def test_fused_layer_and_attention(activation, norm_first, mask, calls):
    layer = encoder(activation=activation, norm_first=norm_first).layers[0]
    x = torch.randn(3, 7, 32)
    options = {}
    if mask:
        later = torch.ones(7, 7, dtype=torch.bool).triu(1)
        options["src_mask"] = later if mask == "bool" else torch.randn(7, 7).masked_fill(later, -torch.inf)
    wanted = layer(x, **options)  # in training, where a floating mask is added
    layer.eval()
    with torch.no_grad(), saccade.torch.patch():
        got = layer(x, **options)
        assert len(calls) == 1
        if not mask:
            o, weights = layer.self_attn(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(got, wanted)
    if not mask:
        assert len(calls) == 2
        wanted, their_weights = layer.self_attn.train()(x, x, x, average_attn_weights=False)
        torch.testing.assert_close(o, wanted)
        torch.testing.assert_close(weights, their_weights)


@pytest.mark.parametrize("shape", [(0, 7, 32), (3, 0, 32), (0, 0, 32)])
def test_empty_input_in_evaluation(shape):
    layer = encoder().eval().layers[0]
    x = torch.randn(shape)
    nested = torch.nested.nested_tensor([torch.randn(0, 32), torch.randn(0, 32)])
    with torch.no_grad(), saccade.torch.patch():
        assert layer(x).shape == shape
        assert layer.self_attn(x, x, x, need_weights=False)[0].shape == shape
        assert [tuple(y.shape) for y in layer(nested).unbind()] == [(0, 32), (0, 32)]


def test_fused_functions_take_keywords(calls):
    attention = encoder().eval().layers[0].self_attn
    x = torch.randn(3, 7, 32)
    weights = (attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight, attention.out_proj.bias)
    with torch.no_grad():
        given = (x, x, x, 32, 4, *weights)
        wanted, _ = torch._native_multi_head_attention(*given, mask=None, need_weights=False)
        with saccade.torch.patch():
            patched = torch._native_multi_head_attention
            got, _ = patched(*given, mask=None, need_weights=False)
            assert len(calls) == 1
        torch.testing.assert_close(got, wanted)
        assert torch.equal(patched(*given, mask=None, need_weights=False)[0], wanted) and len(calls) == 1


@pytest.mark.parametrize("norm_first", [False, True])
def test_nested_input_in_evaluation(norm_first, calls):
    """The layer, the module and the encoder with a nested tensor, for which PyTorch has its fused functions only."""
    model = encoder(norm_first=norm_first).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.randn(length, 32) for length in (3, 7, 1)])
    layer = model.layers[0]
    with torch.no_grad():
        for function in (layer, lambda x: layer.self_attn(x, x, x, need_weights=False)[0], model):
            before = len(calls)
            wanted = function(nested)
            assert len(calls) == before
            with saccade.torch.patch():
                got = function(nested)
            assert got.is_nested and len(calls) > before
            for a, b in zip(got.unbind(), wanted.unbind()):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize("attn", [None, "bool", "floating"])
@pytest.mark.parametrize("padding", [None, "bool", "floating"])
@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_forward(attn, padding, causal, calls):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(16, 4)
    x = torch.randn(7, 3, 16, requires_grad=True)
    options = {"need_weights": False, "is_causal": causal}
    later = torch.ones(7, 7, dtype=torch.bool).triu(1)
    if attn or causal:
        options["attn_mask"] = later if attn != "floating" else torch.zeros(7, 7).masked_fill(later, -torch.inf)
    if padding:
        hidden = torch.arange(7) >= torch.tensor([7, 5, 3])[:, None]
        options["key_padding_mask"] = hidden if padding == "bool" else torch.zeros(3, 7).masked_fill(hidden, -torch.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, _ = module(x, x, x, **options)
        with saccade.torch.patch():
            got, _ = module(x, x, x, **options)
    assert len(calls) == 1
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_decoder(calls):
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 1, 1, 64, 0.0, batch_first=True)
    source, target = torch.randn(2, 9, 32), torch.randn(2, 5, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    wanted = model(source, target, tgt_mask=mask)
    with saccade.torch.patch():
        got = model(source, target, tgt_mask=mask)
    assert len(calls) == 3
    torch.testing.assert_close(got, wanted)


def test_training_comes_to_the_same_losses(calls):
    """40 steps of learning to reverse sequences, in f64: the same except for rounding, and the loss falls."""

    def losses(model):
        torch.manual_seed(1)
        table, place = torch.randn(10, 32, dtype=torch.float64), torch.randn(12, 32, dtype=torch.float64)
        out = nn.Linear(32, 10).double()
        optimizer = torch.optim.Adam([*model.parameters(), *out.parameters()], lr=1e-2)
        for _ in range(40):
            tokens = torch.randint(10, (16, 12))
            loss = F.cross_entropy(out(model(table[tokens] + place)).flatten(0, 1), tokens.flip(1).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    model = encoder().double().train()
    ours = copy.deepcopy(model)
    wanted = list(losses(model))
    assert not calls
    with saccade.torch.patch():
        got = list(losses(ours))
    assert len(calls) == 80
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=0)  # rounding grows from step to step
    assert wanted[-1] < 0.1 * wanted[0]


def test_dropout_in_a_module_follows_manual_seed(calls):
    model, x = encoder(dropout=0.2).train(), torch.randn(3, 7, 32)
    with saccade.torch.patch():
        torch.manual_seed(4)
        a, b = model(x), model(x)
        torch.manual_seed(4)
        assert torch.equal(model(x), a) and not torch.equal(a, b)


# torch.compile.


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend, calls):
    torch._dynamo.reset()
    q, k, v = (x.requires_grad_() for x in operands(2, 3))

    def function(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v).square()

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    with saccade.torch.patch():
        got = compiled(q, k, v)
        assert calls
    wanted = function(q, k, v)
    torch.testing.assert_close(got, wanted)
    gradients = [torch.autograd.grad(x.sum(), (q, k, v)) for x in (got, wanted)]
    torch.testing.assert_close(*gradients)
    calls.clear()
    torch.testing.assert_close(compiled(q, k, v), wanted)
    assert not calls  # compiled code notices the end of the patch


def test_compiled_encoder(calls):
    torch._dynamo.reset()
    model, x = encoder().train(), torch.randn(3, 7, 32)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with saccade.torch.patch():
        got = compiled(x)
    assert len(calls) == 2
    torch.testing.assert_close(got, model(x))
    got.sum().backward()
