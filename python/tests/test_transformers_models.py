"""attn_implementation="saccade" in models of transformers with random parameters, beside "eager".

script/compare_transformers.py does the same for more models, types and lengths.
"""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")

import saccade.transformers  # noqa: E402
from transformers_models import CASES, inputs, make, padding  # noqa: E402

CACHED = ["llama", "mistral", "gemma2", "gpt_oss", "llama4", "falcon_alibi", "bloom"]
LENGTH = 20
_COMPUTING = ("torch_attention", "attention_varlen", "scaled_dot_product_attention")


@pytest.fixture(autouse=True)
def registered():
    transformers.logging.set_verbosity_error()
    saccade.transformers.register()


@pytest.fixture
def calls(monkeypatch):
    """The names of the functions of saccade.torch that were called; PyTorch's is an error."""
    found = []
    for name in _COMPUTING:
        own = getattr(saccade.transformers._attention, name)
        counting = lambda *a, _own=own, _name=name, **k: (found.append(_name), _own(*a, **k))[1]  # noqa: E731
        monkeypatch.setattr(saccade.transformers._attention, name, counting)

    def refusing(*_, **__):
        raise AssertionError("a call of attention went to PyTorch")

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", refusing)
    return found


def run(model, given, **options):
    result = model(**given, **options)
    return result.logits if "logits" in result else result.last_hidden_state


def pair(name, **options):
    """The same model with the implementation that is right and with saccade."""
    return make(name, CASES[name].reference, **options), make(name, "saccade", **options)


def padded(name, side="left"):
    mask = padding(name, 2, LENGTH, side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return {**inputs(name), "attention_mask": mask, "position_ids": positions}, mask[:, :, None]


def require_close(ours, theirs):
    """Within the rounding of f32: both differ from exact numbers by up to 5e-6 of the largest."""
    assert float((ours - theirs).detach().abs().max()) <= 1e-5 * float(theirs.detach().abs().max())


def gradients(model, given, seen=1.0, **options):
    logits = run(model, given, **options)
    probe = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5)) * seen
    (logits * probe).sum().backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", CASES)
def test_every_model(name, calls, monkeypatch):
    given = inputs(name)
    ours = make(name, "saccade")
    computed = run(ours, given)
    assert len(calls) == CASES[name].layers
    torch.nn.functional.scaled_dot_product_attention = (
        torch._C._nn.scaled_dot_product_attention
    )  # until monkeypatch undoes
    theirs = make(name, CASES[name].reference)
    require_close(computed, run(theirs, given))
    require_close(gradients(ours, given), gradients(theirs, given))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "gemma2", "gpt_oss", "falcon_alibi", "t5"])
def test_sixteen_bits_are_as_exact_as_eager(name, dtype):
    """The error against the same model in f32 is at most that of eager, times 1.5 for the accident of roundings."""
    given = inputs(name)
    with torch.no_grad():
        exact = run(make(name, CASES[name].reference, dtype).float(), given)
        theirs, ours = (run(model, given).float() for model in pair(name, dtype=dtype))
    assert (ours - exact).square().mean().sqrt() <= 1.5 * (theirs - exact).square().mean().sqrt()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["bert", *CACHED])
def test_padding(name, side):
    theirs, ours = pair(name)
    given, seen = padded(name, side)
    if name in ("bert", "bloom", "falcon_alibi"):
        del given["position_ids"]
    require_close(run(ours, given) * seen, run(theirs, given) * seen)
    require_close(gradients(ours, given, seen), gradients(theirs, given, seen))


@pytest.mark.parametrize("name", ["bert", "mistral", "llama4"])
def test_padding_of_any_shape(name):
    theirs, ours = pair(name)
    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    mask[0, 3:6], mask[1, 10] = 0, 0
    given, seen = {**inputs(name), "attention_mask": mask}, mask[:, :, None]
    require_close(run(ours, given) * seen, run(theirs, given) * seen)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "llama4"])
def test_caches_filled_in_parts(name, cache, is_padded, calls):
    """Dynamic, static and, in three of these models, sliding caches; several tokens at once on top of others."""
    config = make(name, "saccade").config
    ours = make(name, "saccade")
    given, seen = padded(name) if is_padded else (inputs(name), 1)
    places = (
        transformers.DynamicCache(config=config)
        if cache == "dynamic"
        else transformers.StaticCache(config=config, max_cache_len=LENGTH + 12)
    )
    parts = []
    with torch.no_grad():
        for begin, end in ((0, 5), (5, 13), (13, 14), (14, 15), (15, 20)):
            part = {"input_ids": given["input_ids"][:, begin:end]}
            if is_padded:
                part["attention_mask"] = given["attention_mask"][:, :end]
                part["position_ids"] = given["position_ids"][:, begin:end]
            parts.append(run(ours, part, past_key_values=places))
        wanted = run(make(name, CASES[name].reference), given)
    require_close(torch.cat(parts, 1) * seen, wanted * seen)
    assert len(calls) == 5 * CASES[name].layers


@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", ["mistral", "gpt_oss", "llama4", "bloom", "gpt2", "t5"])
def test_greedy_tokens_are_equal(name, options):
    given = inputs(name)
    given.pop("decoder_input_ids", None)
    if CASES[name].kind == "decoder":
        given["attention_mask"] = padding(name, 2, LENGTH, "left")
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, **options}
    theirs, ours = (model.generate(**given, **options) for model in pair(name))
    assert torch.equal(theirs, ours)


POSITIONS = torch.tensor([[*range(7), *range(11), *range(2)], [*range(LENGTH)]])
SEQUENCES = torch.tensor([0, 7, 18, LENGTH], dtype=torch.int32)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "llama4"])
def test_packed_sequences(name, calls):
    theirs, ours = pair(name)
    given = {"input_ids": inputs(name)["input_ids"], "position_ids": POSITIONS, "use_cache": False}
    found = run(ours, given)
    assert calls == ["attention_varlen"] * 2
    require_close(found, run(theirs, given))
    require_close(gradients(ours, given), gradients(theirs, given))
    first = {"input_ids": given["input_ids"][:1], "position_ids": POSITIONS[:1], "use_cache": False}
    lengths = {"cu_seq_lens_q": SEQUENCES, "cu_seq_lens_k": SEQUENCES, "max_length_q": 11, "max_length_k": 11}
    require_close(run(ours, first, **lengths), run(theirs, first))
    if name != "llama4":
        require_close(run(ours, {**first, "use_cache": True}, **lengths), run(theirs, first))
    else:
        with pytest.raises(ValueError, match="chunked attention"):
            run(ours, {**first, "use_cache": True}, **lengths)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt_oss", "falcon_alibi", "bloom", "t5"])
def test_weights(name):
    theirs, ours = make(name, "eager"), make(name, "saccade")
    if name == "falcon_alibi":
        theirs = ours  # their eager adds ALiBi twice: only the shapes
    given = inputs(name)
    key = "decoder_attentions" if CASES[name].kind == "seq2seq" else "attentions"
    wanted, found = (model(**given, output_attentions=True)[key] for model in (theirs, ours))
    assert len(found) == len(wanted) == 2
    for ours_of_layer, theirs_of_layer in zip(found, wanted):
        require_close(ours_of_layer, theirs_of_layer)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_masks_of_the_caller(dtype):
    theirs, ours = pair("llama")
    mask = torch.rand(2, 1, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) > 0.3
    mask |= torch.eye(LENGTH, dtype=torch.bool)
    numbers = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    wanted = run(theirs, {**inputs("llama"), "attention_mask": numbers})
    require_close(
        run(ours, {**inputs("llama"), "attention_mask": numbers if dtype.is_floating_point else mask}), wanted
    )


@pytest.mark.parametrize("name", ["llama", "bloom", "t5"])
def test_training_with_checkpoints_and_dropout(name):
    """Recomputed layers drop the same weights, so the gradients are those without recomputing."""
    given = {**inputs(name), "use_cache": False}
    found = []
    for is_checkpointed in (False, True):
        model = make(name, "saccade", attention_dropout=0.2, dropout_rate=0.2).train()
        if is_checkpointed:
            model.gradient_checkpointing_enable()
        torch.manual_seed(11)
        found.append(gradients(model, given))
    require_close(*found)
    assert not torch.allclose(found[0], gradients(make(name, "saccade").eval(), given), rtol=1e-2)


@pytest.mark.parametrize("name", ["bert", "llama4"])
def test_compiled_as_one_graph(name):
    theirs, ours = pair(name)
    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    given, seen = padded(name, "right" if name == "bert" else "left")
    require_close(run(compiled, given) * seen, run(theirs, given) * seen)
    require_close(gradients(compiled, given, seen), gradients(theirs, given, seen))
    if name == "bert":
        return
    packed = {"input_ids": given["input_ids"], "position_ids": POSITIONS, "use_cache": False}
    require_close(run(compiled, packed), run(theirs, packed))
    cache = transformers.StaticCache(config=ours.config, max_cache_len=32)
    tokens = given["input_ids"]
    with torch.no_grad():
        parts = [run(ours, {"input_ids": tokens[:, :17]}, past_key_values=cache)]
        parts += [run(compiled, {"input_ids": tokens[:, i : i + 1]}, past_key_values=cache) for i in range(17, LENGTH)]
    require_close(torch.cat(parts, 1), run(theirs, {"input_ids": tokens}))


def test_rows_that_see_nothing_are_zero():
    query, key, value = torch.randn(3, 2, 4, 6, 16).unbind()
    given = torch.tensor([[False] * 3 + [True] * 3, [True] * 6])
    mask = saccade.transformers.mask(2, q_length=6, kv_length=6, attention_mask=given)
    o, weights = saccade.transformers.attention(None, query, key, value, mask)
    assert weights is None and not o[0, :3].any() and o[0, 3:].all() and o.shape == (2, 6, 4, 16)


def test_autocast():
    theirs, ours = pair("llama")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted, found = run(theirs, inputs("llama")), run(ours, inputs("llama"))
    exact = run(theirs, inputs("llama"))
    assert found.dtype == wanted.dtype
    assert (found - exact).square().mean() <= 1.5**2 * (wanted - exact).square().mean()


def test_models_that_do_not_go_through_the_interface():
    torch.manual_seed(0)
    config = transformers.MptConfig(d_model=64, n_heads=4, n_layers=2, vocab_size=120, max_seq_len=64)
    config._attn_implementation = "saccade"
    model = transformers.MptForCausalLM(config).eval()
    given, _ = padded("llama")
    del given["position_ids"]
    found = model(**given).logits
    config._attn_implementation = "eager"
    assert torch.equal(found, model(**given).logits)


def test_errors_name_the_argument():
    query = torch.randn(1, 2, 6, 8)
    mask = saccade.transformers.mask(1, q_length=5, kv_length=5, allow_is_causal_skip=False)
    with pytest.raises(ValueError, match="attention_mask: expected one for 6 queries and 6 keys, got one for 5 and 5"):
        saccade.transformers.attention(None, query, query, query, mask)
    for name in ("head_mask", "attention_bias", "alibi", "attn_mask"):
        with pytest.raises(ValueError, match=f"saccade.transformers: {name}: this argument is not known"):
            saccade.transformers.attention(None, query, query, query, None, **{name: torch.zeros(2, 6, 6)})
    with pytest.raises(ValueError, match="cache"):
        saccade.transformers.attention(None, query, query, query, None, cache=object())


MEMORY = """
import resource, sys, torch
sys.path.insert(0, {path!r})
import saccade.transformers, transformers
from transformers_models import make, padding
saccade.transformers.register()
model = make({name!r}, "saccade").model
def peak(length):
    tokens = torch.randint(3, 120, (2, length))
    with torch.no_grad():
        model(tokens, attention_mask=padding({name!r}, 2, length, "left"), use_cache=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak(64)
print(peak(8192) - before)
"""


def test_no_mask_of_all_pairs_in_memory():
    """8,192 tokens of two entries with padding: a mask of all pairs would be 128 MiB, of bool."""
    from pathlib import Path

    program = MEMORY.format(path=str(Path(__file__).parent), name="mistral")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(result.stdout) < 100
