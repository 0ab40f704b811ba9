"""Masks of saccade.transformers: each query sees the keys that transformers' own mask says, without storing it."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")

import saccade.torch  # noqa: E402
import saccade.transformers  # noqa: E402
from saccade.transformers import Mask  # noqa: E402
from transformers import masking_utils as theirs  # noqa: E402

WINDOW, CHUNK = 4, 5
# of queries, of keys, position of the first query, of the first key
LENGTHS = [(12, 12, 0, 0), (1, 12, 11, 0), (3, 12, 9, 0), (4, 16, 8, 0), (1, 4, 20, 17), (6, 9, 20, 17)]


def patterns(batch, left):
    none = theirs.causal_mask_function
    zeros = torch.zeros(batch, dtype=torch.int64)
    return {
        "causal": none,
        "everything": theirs.bidirectional_mask_function,
        "window": theirs.sliding_window_causal_mask_function(WINDOW),
        "window both": theirs.sliding_window_bidirectional_mask_function(WINDOW),
        "chunk": theirs.chunked_causal_mask_function(CHUNK, zeros if left is None else left),
    }


def keys_seen(mask, queries, keys, batch):
    """What attention with a mask's options sees, found from its weights: [batch, queries, keys]."""
    q, k, v = (torch.zeros(batch, 1, n, 4) for n in (queries, keys, keys))
    if mask is None:
        return torch.ones(batch, queries, keys, dtype=torch.bool)
    if mask.documents is None:
        _, weights = saccade.torch.attention(q, k, v, return_weights=True, **mask.options)
        return weights[:, 0] > 0
    v = torch.eye(batch * keys).unflatten(0, (batch, keys))[:, None]  # the outputs are the weights
    seen = saccade.transformers._attention._of_documents(q, k, v, mask.documents, mask.options)[:, :, 0] > 0
    return torch.stack([seen[i, :, i * keys : (i + 1) * keys] for i in range(batch)])


@pytest.mark.parametrize("padding", ["none", "left", "right", "holes", "all"])
@pytest.mark.parametrize(
    "lengths", [(12, 12, 0, 0), (1, 12, 11, 0), (3, 12, 9, 0), (4, 16, 8, 0), (1, 4, 20, 17), (6, 9, 20, 17)]
)
@pytest.mark.parametrize("name", ["causal", "everything", "window", "window both", "chunk"])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_options_hide_what_the_mask_hides(name, lengths, padding, as_tensor):
    q_length, kv_length, q_offset, kv_offset = lengths
    batch, total = 3, q_offset + q_length
    count = torch.tensor([0, 2, 7])[:, None]
    place = torch.arange(total)
    given, left = None, None
    if padding == "left":
        given, left = place >= count, count[:, 0]
    elif padding == "right":
        given = place < total - count
    elif padding == "holes":
        given = (place % 3 != 1) | (count == 0)
    elif padding == "all":
        given = torch.ones(batch, total, dtype=torch.bool)
    arguments = {
        "batch_size": batch,
        "q_length": q_length,
        "kv_length": kv_length,
        "q_offset": torch.tensor(q_offset) if as_tensor else q_offset,
        "kv_offset": kv_offset,
        "mask_function": patterns(batch, left)[name],
        "attention_mask": given,
    }
    wanted = theirs.sdpa_mask(allow_is_causal_skip=False, **arguments)[:, 0]
    mask = saccade.transformers.mask(allow_is_causal_skip=False, **arguments)
    if name == "chunk" and padding == "holes" and q_length > 1:
        assert isinstance(mask, torch.Tensor) and torch.equal(mask[:, 0], wanted)
        return
    assert isinstance(mask, Mask) and mask.shape == (batch, 1, q_length, kv_length)
    assert torch.equal(mask.dense()[:, 0], wanted)
    assert torch.equal(keys_seen(mask, q_length, kv_length, batch), wanted)
    assert all(
        not isinstance(x, torch.Tensor) or x.numel() <= batch * max(kv_length, 12) for x in mask.options.values()
    )


@pytest.mark.parametrize("chunk", [None, CHUNK])
def test_packed_sequences_are_documents(chunk):
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]])
    sequences = theirs.find_packed_sequence_indices(positions)
    zeros = torch.zeros(2, dtype=torch.int64)
    for name in ("causal", "window", "chunk"):
        function = patterns(2, None)[name] if chunk is None else theirs.chunked_causal_mask_function(chunk, zeros)
        if hasattr(theirs, "remap_positions_for_packed_sequence"):
            function = theirs.remap_positions_for_packed_sequence(function, positions)
        function = theirs.and_masks(function, theirs.packed_sequence_mask_function(sequences))
        arguments = {"batch_size": 2, "q_length": 10, "kv_length": 10, "mask_function": function}
        mask = saccade.transformers.mask(**arguments, allow_is_causal_skip=False)
        wanted = theirs.sdpa_mask(**arguments, allow_is_causal_skip=False)
        assert mask.documents is not None
        assert torch.equal(keys_seen(mask, 10, 10, 2), wanted[:, 0])


def test_a_causal_mask_is_never_none():
    def mask(**arguments):
        found = saccade.transformers.mask(1, **{"q_length": 8, "kv_length": 8, **arguments})
        return None if found is None else found.options

    causal = {"causal": "top_left"}
    assert mask() == causal
    assert mask(q_length=1, q_offset=7) == {}
    assert mask(kv_length=12) == causal  # an empty cache with places left: counted from the first key
    assert mask(q_length=1, q_offset=5).keys() == {"causal", "query_offset"}  # places after the token
    assert mask(q_length=2, q_offset=6).keys() == {"causal", "query_offset"}
    assert mask(allow_is_causal_skip=False) == causal
    assert mask(attention_mask=torch.ones(1, 8, dtype=torch.bool)) == causal
    assert "kv_starts" in mask(attention_mask=torch.tensor([[False] + [True] * 7]))
    assert mask(mask_function=theirs.sliding_window_causal_mask_function(8)) == causal
    assert "window" in mask(mask_function=theirs.sliding_window_causal_mask_function(7))
    everything = {"mask_function": theirs.bidirectional_mask_function}
    assert mask(**everything) == {}
    assert mask(**everything, allow_is_bidirectional_skip=True) is None
    assert mask(allow_is_bidirectional_skip=True) == causal


@pytest.mark.parametrize("is_causal", [None, False, True])
def test_what_a_module_says_changes_no_mask(is_causal):
    """Neither the module's is_causal nor the argument counts where there is a mask."""
    query, key, value = torch.randn(3, 2, 4, 6, 16).unbind()
    module = torch.nn.Module()
    module.is_causal = False
    mask = saccade.transformers.mask(2, q_length=6, kv_length=6)
    o, _ = saccade.transformers.attention(module, query, key, value, mask, is_causal=is_causal)
    wanted = saccade.torch.attention(query, key, value, causal="top_left").transpose(1, 2)
    torch.testing.assert_close(o, wanted)
    everything = saccade.transformers.mask(2, q_length=6, kv_length=6, mask_function=theirs.bidirectional_mask_function)
    module.is_causal = True
    o, _ = saccade.transformers.attention(module, query, key, value, everything, is_causal=is_causal)
    torch.testing.assert_close(o, saccade.torch.attention(query, key, value).transpose(1, 2))


def test_other_mask_functions_become_a_tensor():
    prefix = theirs.or_masks(theirs.causal_mask_function, lambda b, h, q, k: k < 3)
    mask = saccade.transformers.mask(2, q_length=6, kv_length=6, mask_function=prefix, use_vmap=True)
    assert mask.dtype is torch.bool
    assert torch.equal(mask, theirs.sdpa_mask(2, 6, 6, mask_function=prefix, use_vmap=True, allow_is_causal_skip=False))


def test_a_mask_is_handed_on_as_it_is_and_no_numbers():
    mask = saccade.transformers.mask(2, q_length=6, kv_length=6, allow_is_causal_skip=False)
    assert saccade.transformers.mask(2, q_length=6, kv_length=6, attention_mask=mask) is mask
    assert mask.ndim == mask.dim() == 4 and mask.size() == mask.shape and mask.dtype is torch.bool
    assert mask.contiguous() is mask and mask.to("cpu") is mask
    assert "causal" in repr(mask)


@pytest.mark.parametrize("says", [None, False, True])
def test_none_hides_nothing_where_masks_are_those_of_saccade(says):
    """Where another function makes them, as that of "sdpa" does, None is causal if the module is."""
    query, key, value = torch.randn(3, 2, 4, 6, 16).unbind()
    module = torch.nn.Module()
    module.is_causal = True
    everything = saccade.torch.attention(query, key, value).transpose(1, 2)
    causal = saccade.torch.attention(query, key, value, causal="top_left").transpose(1, 2)
    saccade.transformers.register()
    for name, unsaid in (("saccade", everything), ("sdpa", causal), (None, causal)):
        module.config = None if name is None else transformers.LlamaConfig(attn_implementation=name)
        o, _ = saccade.transformers.attention(module, query, key, value, None, is_causal=says)
        torch.testing.assert_close(o, {None: unsaid, False: everything, True: causal}[says])


def test_models_that_compute_with_a_mask_are_refused_by_name():
    config = transformers.LlamaConfig()
    mask = saccade.transformers.mask(2, q_length=6, kv_length=6, config=config)
    numbers, bools = torch.zeros(2, 1, 6, 6), torch.ones(2, 1, 6, 6, dtype=torch.bool)
    computing = [
        lambda: numbers + mask,
        lambda: mask + numbers,
        lambda: mask * 2,
        lambda: 1.0 - mask,
        lambda: ~mask,
        lambda: bools & mask,
        lambda: mask == 0,
        lambda: mask != numbers,
        lambda: mask[:, :, :3],
        lambda: list(mask),
        lambda: torch.where(mask, numbers, 1.0),
        lambda: torch.nn.functional.scaled_dot_product_attention(numbers, numbers, numbers, attn_mask=mask),
        lambda: numbers.masked_fill(mask, 1.0),
        lambda: mask.masked_fill(bools, 1.0),
        lambda: mask.expand(2, 3, 6, 6),
        lambda: mask.sum(-1),
        lambda: torch.cat([bools, mask], -1),
    ]
    text = "saccade.transformers: the model of LlamaConfig computes with its attention mask"
    for compute in computing:
        with pytest.raises((TypeError, AttributeError), match=text):
            compute()
    assert mask == mask and mask is not None and mask != "a name" and not isinstance(mask, torch.Tensor)


def test_models_that_look_for_masks_of_flex_attention_get_a_tensor():
    from transformers.models.doge import modeling_doge

    mask = saccade.transformers.mask(2, q_length=6, kv_length=6, config=transformers.DogeConfig())
    assert hasattr(modeling_doge, "BlockMask") and not issubclass(Mask, modeling_doge.BlockMask)
    assert torch.equal(mask, theirs.sdpa_mask(2, 6, 6, allow_is_causal_skip=False))


@pytest.mark.parametrize("name", ["", "my_flash", "sdpa2", "paged|x", None])
def test_register_refuses_names_with_a_meaning(name):
    with pytest.raises(ValueError, match="name: expected"):
        saccade.transformers.register(name)
