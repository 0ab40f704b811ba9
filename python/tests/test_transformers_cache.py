"""saccade.transformers.QuantizedCache: a model computes as over dequantized keys, without dequantizing them."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")

import saccade.transformers  # noqa: E402
from saccade.transformers import QuantizedCache  # noqa: E402
from transformers_models import CASES, inputs, make, padding  # noqa: E402

LENGTH = 20
PARTS = [(0, 7), (7, 15), (15, 16), (16, LENGTH)]
ONE_LAYER = {
    "llama": {},
    "mistral": {},
    "gemma2": {"layer_types": ["sliding_attention"]},
    "gpt_oss": {"layer_types": ["sliding_attention"]},
    "gpt2": {},
    "falcon_alibi": {},
}
TYPES = [("int8", None), ("int4", None), ("fp8", None), ("int8", "int4"), ("float8_e4m3fn", "bfloat16")]


@pytest.fixture(autouse=True)
def registered():
    transformers.logging.set_verbosity_error()
    saccade.transformers.register()


@pytest.fixture
def never_dequantized(monkeypatch):
    def refuse(*_):
        raise AssertionError("the whole cache was dequantized")

    monkeypatch.setattr(saccade.transformers._stored.Store, "dequantized", refuse)


class RoundingCache(transformers.DynamicCache):
    """transformers' cache of plain tensors, each row of which was stored in a saccade.KvCache for a moment."""

    def __init__(self, config, dtype, dtype_v=None):
        super().__init__(config=config)
        self.types = {"dtype": dtype, "dtype_v": dtype_v}

    def update(self, key_states, value_states, *others, **options):
        batch, heads, _, dim = key_states.shape
        dims = {"head_dim": dim, "head_dim_v": value_states.shape[-1]}
        rounding = saccade.KvCache(batch=batch, num_kv_heads=heads, **dims, **self.types)
        rounding.append(key_states, value_states)
        k, v = rounding.dequantize_k(), rounding.dequantize_v()
        return super().update(k.to(key_states.dtype), v.to(value_states.dtype), *others, **options)


def padded(name):
    return {**inputs(name), "attention_mask": padding(name, 2, LENGTH, "left")}


def generated(model, given, cache, **options):
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, **options}
    return model.generate(**given, past_key_values=cache, **options)


def logits(model, cache, mask):
    """Of the tokens, given in parts, where the mask is 1."""
    tokens = inputs("llama")["input_ids"]
    with torch.no_grad():
        parts = [
            model(tokens[:, begin:end], attention_mask=mask[:, :end], past_key_values=cache).logits
            for begin, end in PARTS
        ]
    return torch.cat(parts, 1) * mask[:, :, None]


def error(ours, theirs):
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("dtype, dtype_v", TYPES)
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_tokens_are_those_of_dequantized_arithmetic(name, dtype, dtype_v, never_dequantized):
    ours, theirs = make(name, "saccade"), make(name, "eager")
    found = generated(ours, padded(name), QuantizedCache(ours.config, dtype, dtype_v=dtype_v))
    assert torch.equal(found, generated(theirs, padded(name), RoundingCache(theirs.config, dtype, dtype_v)))


@pytest.mark.parametrize("shape", ["left", "right", "holes"])
@pytest.mark.parametrize("dtype", ["int8", "int4", "fp8"])
@pytest.mark.parametrize("name", ONE_LAYER)
def test_logits_are_those_of_dequantized_arithmetic(name, dtype, shape, never_dequantized):
    """Of one layer: the keys of a second one differ in the last bit, which may round to another stored number."""
    mask = padding(name, 2, LENGTH, "right" if shape == "right" else "left")
    if shape == "holes":
        mask[0, 3:6], mask[1, 10] = 0, 0
    options = {"num_hidden_layers": 1, **ONE_LAYER[name]}
    ours, theirs = make(name, "saccade", **options), make(name, CASES[name].reference, **options)
    cache = QuantizedCache(ours.config, dtype)
    found = logits(ours, cache, mask)
    assert len(cache) == 1
    assert error(found, logits(theirs, RoundingCache(theirs.config, dtype), mask)) < 1e-5
    assert error(found, logits(theirs, transformers.DynamicCache(config=theirs.config), mask)) > 1e-3


def test_heads_of_an_odd_width(never_dequantized):
    sizes = {"n_embd": 60, "n_head": 4, "n_layer": 1, "vocab_size": 120, "n_positions": 64}
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    for dtype in ("int8", "int4"):
        model.set_attn_implementation("eager")
        wanted = logits(model, RoundingCache(model.config, dtype), mask)
        model.set_attn_implementation("saccade")
        assert error(logits(model, QuantizedCache(model.config, dtype), mask), wanted) < 1e-5


def test_bfloat16_is_as_exact_as_eager():
    """Against the same model in f32; 1.5 for the accident of roundings."""
    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    model = make("llama", "saccade", torch.bfloat16)
    ours = logits(model, QuantizedCache(model.config), mask)
    model.set_attn_implementation("eager")
    theirs = logits(model, RoundingCache(model.config, "int8"), mask)
    exact = logits(model.float(), RoundingCache(model.config, "int8"), mask)
    assert ours.dtype == torch.bfloat16
    assert (ours - exact).square().mean() <= 1.5**2 * (theirs - exact).square().mean()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_other_implementations_read_dequantized_tensors(name, implementation):
    model, mask = make(name, implementation), padding(name, 2, LENGTH, "left")
    found = logits(model, QuantizedCache(model.config, "int4"), mask)
    assert error(found, logits(model, RoundingCache(model.config, "int4"), mask)) < 1e-5


@pytest.mark.parametrize("implementation", ["saccade", "eager"])
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_beam_search(name, implementation):
    ours, theirs, options = make(name, implementation), make(name, "eager"), {"num_beams": 4, "num_return_sequences": 4}
    cache = QuantizedCache(ours.config)
    found = generated(ours, padded(name), cache, **options)
    assert torch.equal(found, generated(theirs, padded(name), RoundingCache(theirs.config, "int8"), **options))
    with pytest.raises(ValueError, match="beam_idx: expected 8 entries, got 2"):
        cache.reorder_cache(torch.tensor([0, 1]))


def test_encoder_and_decoder():
    given = {"input_ids": inputs("t5")["input_ids"], "attention_mask": padding("t5", 2, LENGTH, "right")}
    found = []
    for implementation, kind in (("saccade", QuantizedCache), ("eager", RoundingCache)):
        model = make("t5", implementation)
        caches = (kind(model.config, "int8"), kind(model.config, "int8"))
        found.append(generated(model, given, transformers.EncoderDecoderCache(*caches)))
    assert torch.equal(*found)


def test_a_cache_that_is_cropped_and_used_again():
    for name in ("llama", "mistral"):
        model, mask = make(name, "saccade"), padding(name, 2, LENGTH, "left")
        cache = QuantizedCache(model.config)
        first = logits(model, cache, mask)
        assert cache.get_seq_length() == LENGTH
        cache.crop(-4)
        assert cache.get_seq_length() == 16
        tokens = inputs(name)["input_ids"]
        with torch.no_grad():
            again = model(tokens[:, 16:], attention_mask=mask, past_key_values=cache).logits
        assert torch.equal(again, first[:, 16:])
        cache.crop(3)  # as earlier versions of transformers say that 3 remain
        assert cache.get_seq_length() == 3
        cache.reset()
        assert cache.get_seq_length() == 0
        assert torch.equal(logits(model, cache, mask), first)


def test_guessed_tokens():
    model, one = make("mistral", "saccade"), {"input_ids": inputs("mistral")["input_ids"][:1]}
    found = generated(model, one, QuantizedCache(model.config), prompt_lookup_num_tokens=3)
    assert torch.equal(found, generated(model, one, QuantizedCache(model.config)))


def test_windows_drop_old_keys():
    """9,000 tokens of 10 places, of which some 4,096 are kept until the cache is full."""
    config = make("mistral", "saccade", sliding_window=10).config
    cache = QuantizedCache(config)
    generator = torch.Generator().manual_seed(2)
    k, v, q = (torch.randn(1, heads, 9000, 16, generator=generator) for heads in (2, 2, 4))
    for begin in range(0, 9000, 100):
        end = begin + 100
        keys, values = cache.update(k[:, :, begin:end], v[:, :, begin:end], 0)
    count, offset = cache.get_mask_sizes(3, 0)
    assert (count, offset) == (9 + 3, 9000 - 9) and keys.shape == (1, 2, 9 + 100, 16)
    assert cache.nbytes < 0.8 * 9000 * 2 * 2 * (16 + 4)
    last = {"q_length": 100, "q_offset": 8900, "kv_length": 109, "kv_offset": 8891}
    window = transformers.masking_utils.sliding_window_causal_mask_function(10)
    mask = saccade.transformers.mask(1, mask_function=window, **last)
    with torch.no_grad():
        o, _ = saccade.transformers.attention(None, q[:, :, 8900:], keys, values, mask)
    wanted = saccade.attention(q, k, v, causal="top_left", window=(9, -1))[:, :, 8900:].transpose(1, 2)
    assert o.shape == (1, 100, 4, 16) and 1e-4 < error(o, wanted) < 0.02


@pytest.mark.parametrize("dtype, row", [("int8", 132), ("int4", 76), ("fp8", 132)])
def test_memory_is_as_documented(dtype, row):
    """docs/quantized-caches.md has the bytes of a row of 128 numbers."""
    model = make("llama", "saccade", head_dim=128)
    cache = QuantizedCache(model.config, dtype, capacity=64)
    assert cache.nbytes == 0
    generated(model, padded("llama"), cache)
    layers, batch, heads = 2, 2, 2
    numbers = layers * batch * heads * 64 * 2 * row
    assert numbers <= cache.nbytes < 1.01 * numbers


def test_compiled_with_breaks():
    model, mask = make("llama", "saccade"), padding("llama", 2, LENGTH, "left")
    wanted = logits(model, QuantizedCache(model.config), mask)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    assert error(logits(compiled, QuantizedCache(model.config), mask), wanted) < 1e-5


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda c: QuantizedCache("llama"), "config: expected a configuration of transformers, got str"),
        (lambda c: QuantizedCache(c, "int2"), "dtype: expected .*int8, int4.*, got 'int2'"),
        (lambda c: QuantizedCache(c, dtype_v="int2"), "dtype_v: expected .*, got 'int2'"),
        (lambda c: QuantizedCache(c, "bfloat16"), "dtype: expected int8, int4, float8_e4m3fn .*, got 'bfloat16'"),
        (lambda c: QuantizedCache(c, "bfloat16", dtype_v="int8", rotate=True), "rotate needs quantized keys"),
        (lambda c: QuantizedCache(c, capacity=-1), "capacity: expected .* 0 or more, got -1"),
        (lambda c: QuantizedCache(make("llama4", "eager").config), "got chunked_attention"),
        (lambda c: QuantizedCache(transformers.Qwen3NextConfig()), "got linear_attention"),
        (lambda c: QuantizedCache(c).batch_select_indices(torch.tensor([0])), "batch of a QuantizedCache cannot"),
        (lambda c: QuantizedCache(c).batch_repeat_interleave(2), "batch of a QuantizedCache cannot"),
    ],
)
def test_wrong_arguments(call, text):
    with pytest.raises(ValueError, match=text):
        call(make("llama", "saccade").config)


def test_what_cannot_be_computed_is_refused():
    model, tokens = make("llama", "saccade", attention_dropout=0.1), inputs("llama")["input_ids"]

    def refused(text, **options):
        with pytest.raises(ValueError, match=text):
            model(tokens, past_key_values=QuantizedCache(model.config), **options)

    refused("key_states: requires a gradient")
    with torch.no_grad():
        refused("output_attentions: expected False", output_attentions=True)
        model.train()
        refused("dropout: expected 0 with a QuantizedCache, got 0.1")
        model, everything = make("mistral", "saccade"), torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool)
        refused("tokens that see later ones cannot be combined with a sliding window", attention_mask=everything)
        model(tokens, past_key_values=QuantizedCache(model.config), attention_mask=everything.tril())


def test_keys_are_no_tensors():
    cache = QuantizedCache(make("llama", "saccade").config)
    k, q = torch.randn(1, 2, 5, 16), torch.randn(1, 4, 5, 16)
    keys, values = cache.update(k, k, 0)
    assert keys.shape == k.shape and keys.dtype == k.dtype and keys.size(2) == 5 and keys.dim() == 4
    for compute in (lambda: keys * 2, lambda: torch.cat((k, keys)), lambda: keys[:, :1], lambda: q @ keys):
        with pytest.raises(TypeError, match="the model computes with its keys"):
            compute()
    with pytest.raises(AttributeError, match="transpose: .*the model computes with its keys"):
        keys.transpose(1, 2)
    with pytest.raises(ValueError, match="value: expected the values that QuantizedCache.update"):
        saccade.transformers.attention(None, q, keys, k, None)
    first = saccade.transformers.mask(1, q_length=2, kv_length=5, q_offset=1)
    with pytest.raises(ValueError, match=r"expected a first query at position 3 of 5 keys, got one at \[1\]"):
        saccade.transformers.attention(None, q[:, :, 1:3], keys, values, first)
    cache.update(k, k, 0)
    with pytest.raises(ValueError, match="key: expected that of the last update.*, got one of 5 tokens .* has 10"):
        saccade.transformers.attention(None, q, keys, values, None)
    with pytest.raises(ValueError, match=r"k must have shape \[1, 2, n, 16\], but it has shape \[2, 2, 5, 16\]"):
        cache.update(k.expand(2, -1, -1, -1), k.expand(2, -1, -1, -1), 0)
