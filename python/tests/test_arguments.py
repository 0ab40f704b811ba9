"""Invalid arguments raise a ValueError that names the argument, and do no harm."""

import sys
import threading

import numpy as np
import pytest
import saccade
from saccade import nn

Q = np.ones((2, 4, 6, 8), np.float32)
K = np.ones((2, 2, 9, 8), np.float32)
X = np.ones((1, 2, 4, 8), np.float32)
# Python refuses to convert it to text, but for some versions before 3.12.
BEYOND_TEXT = 10**5000
IS_REFUSED = hasattr(sys, "get_int_max_str_digits")


class Exported:
    """An array of a library that has __dlpack__ and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def read_only(shape):
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "change, text",
    [
        ({"q": None}, "q: expected an array, got None"),
        ({"q": "tokens"}, "q: "),
        ({"q": [[1.0], [1.0, 2.0]]}, "q: expected an array, got list"),
        ({"q": {}}, "q: expected an array"),
        ({"q": np.float32(1)}, "q, k, v and o must have the same rank"),
        ({"q": np.ones(8, np.float32)}, "q, k, v and o must have the same rank"),
        ({"q": Q[0, 0, 0], "k": K[0, 0, 0], "v": K[0, 0, 0]}, "q must have rank"),
        ({"q": np.ones((1,) * 7, np.float32)}, "q: has 7 dimensions"),
        ({"q": Q.astype(complex)}, "q: has elements of a type"),
        ({"q": Q.astype(np.int64)}, "q must be f32"),
        ({"q": Q.astype(">f4")}, "q: could not be read"),
        # f64 on Windows
        ({"q": Q.astype(np.longdouble)}, "q: " if np.dtype(np.longdouble).itemsize > 8 else "must all be f64"),
        ({"q": Q.astype(object)}, "q: could not be read"),
        ({"q": np.frombuffer(bytes(4 * 384 + 1), np.uint8)[1:].view(np.float32).reshape(Q.shape)}, "q: is not aligned"),
        ({"q": Q.astype(np.float64)}, "f64"),
        ({"k": K[..., :5]}, "k has head_dim 5"),
        ({"k": K[:1]}, "k has batch 1"),
        ({"k": K[0]}, "k"),
        ({"k": np.ones((2, 3, 9, 8), np.float32)}, "k"),
        ({"v": K[:, :, :4]}, "v has seqlen 4"),
        ({"v": np.ones((2, 2, 9, 0), np.float32)}, "v"),
        ({"q": Q[..., :0], "k": K[..., :0]}, "head_dim"),
        ({"mask": np.ones(5, bool)}, "mask must broadcast"),
        ({"mask": np.ones((2, 2, 4, 6, 9), bool)}, "mask"),
        ({"mask": np.ones(9, int)}, "mask"),
        ({"mask": "causal"}, "mask: "),
        ({"causal": True}, "causal: expected None, 'top_left' or 'bottom_right'"),
        ({"causal": "diagonal"}, "causal: expected"),
        ({"query_offset": [1, 2, 3]}, "query_offset"),
        ({"query_offset": 1.5}, "query_offset"),
        ({"query_offset": 2**70}, "query_offset: expected an integer of 64 bits"),
        ({"window": (1, 2, 3)}, "window: expected two integers"),
        ({"window": "ab"}, "window: expected an integer"),
        ({"window": (-5, 0)}, "window"),
        ({"window": None, "scale": "large"}, "scale: expected a number"),
        ({"scale": float("nan")}, "scale"),
        ({"softcap": -1.0}, "softcap"),
        ({"alibi_slopes": np.ones(3)}, "alibi_slopes"),
        ({"sinks": np.ones(3)}, "sinks"),
        ({"kv_lengths": [-1, 3]}, "kv_lengths"),
        ({"kv_starts": [-1, 3]}, "kv_starts"),
        ({"kv_starts": [3, 10]}, "kv_starts"),
        ({"kv_lengths": [3, 10]}, "kv_lengths"),
        ({"kv_lengths": [1.0, 2.0]}, "kv_lengths"),
        ({"kv_lengths": [1]}, "kv_lengths"),
        ({"dropout_p": 1.0}, "dropout_p"),
        ({"dropout_p": -0.5}, "dropout_p"),
        ({"dropout_p": float("nan")}, "dropout_p"),
        ({"dropout_p": 0.5, "seed": "x"}, "seed: expected an integer"),
        ({"block_mask": np.ones((3, 3), bool)}, "block_mask"),
        ({"block_mask": np.ones((1, 1), bool), "block_mask_size": (0, 128)}, "block_mask"),
        ({"block_table": np.zeros((2, 1), np.int32)}, "kv_lengths|block_table"),
        ({"block_table": np.full((2, 1), 7, np.int32), "kv_lengths": [9, 9]}, "block_table"),
        ({"layout": "bsdh"}, "layout: expected 'bhsd' or 'bshd'"),
        ({"layout": 4}, "layout: expected a str"),
        ({"num_threads": -1}, "num_threads"),
        ({"num_threads": 1.5}, "num_threads: expected an integer"),
        ({"out": read_only(Q.shape)}, "out: is read-only"),
        ({"out": np.broadcast_to(np.float32(0), Q.shape)}, "out: is read-only"),
        ({"out": np.zeros((2, 4, 6, 7), np.float32)}, "out"),
        ({"out": np.zeros(Q.shape, np.int32)}, "out"),
        ({"out": [[0.0]]}, "out"),
        ({"out": Q}, "out: shares memory with q"),
        ({"out": Q[::-1]}, "out: shares memory with q"),
        ({"num_threads": BEYOND_TEXT}, "num_threads: expected an integer of 64 bits"),
        ({"window": (0, BEYOND_TEXT)}, "window: expected an integer of 64 bits"),
        ({"window": [BEYOND_TEXT]}, "window: expected two integers, got " + IS_REFUSED * "a list"),
        ({"window": memoryview(np.zeros((2, 2)))}, "window: expected two integers, got <memory"),
        ({"layout": "\ud800"}, r"layout: expected 'bhsd' or 'bshd', got '\\ud800'"),
        ({"causal": "\ud800"}, "causal: expected"),
        ({"dropout_p": np.array([0.1, 0.2])}, "dropout_p: expected a number"),
        ({"weights_after_dropout": np.zeros(2)}, "weights_after_dropout: expected True or False"),
        ({"return_lse": np.zeros(2)}, "return_lse: expected True or False"),
        ({"return_weights": np.zeros(2)}, "return_weights: expected True or False"),
        ({"layout": np.zeros(2), "return_lse": True}, "layout: expected a str"),
        ({"block_table": np.int32(1), "return_weights": True}, "block_table"),
        ({"score_mod": lambda *_: None}, "score_mod: returned None"),
        ({"score_mod": lambda *_: np.zeros((2, 3, 4))}, "score_mod: returned what is no tile of"),
        ({"score_mod": lambda *_: "text"}, "score_mod: returned what is no tile of"),
    ],
)
@pytest.mark.parametrize("function", [saccade.attention, saccade.decode])
def test_attention(function, change, text):
    with pytest.raises(ValueError, match=text):
        function(**{"q": Q, "k": K, "v": K, **change})


def test_outputs_share_memory_with_no_input():
    memory = np.zeros(4096, np.float32)
    out = memory[: Q.size].reshape(Q.shape)
    bits = memory.view(np.int32)
    pages = np.ones((4, 2, 3, 8), np.float32)
    for given in (
        {"mask": memory[:54].reshape(6, 9)},
        {"mask": memory.view(np.float16)[:54].reshape(6, 9)},
        {"sinks": memory[8:12]},
        {"kv_lengths": bits[:2]},
        {"kv_lengths": [3, 3], "block_table": bits[100:106].reshape(2, 3), "k": pages, "v": pages},
    ):
        name = list(given)[1 if "block_table" in given else 0]
        with pytest.raises(ValueError, match=f"out: shares memory with {name}"):
            saccade.attention(**{"q": Q, "k": K, "v": K, "out": out, **given})
    scores = {"scores": memory[: 2 * 4 * 6 * 9].reshape(2, 4, 6, 9)}  # as saccade.onnx does
    with pytest.raises(ValueError, match="scores: shares memory with q"):
        saccade._core.decode(memory[: Q.size].reshape(Q.shape), K, K, np.empty_like(Q), None, None, scores)


def test_a_score_mod_cannot_change_which_pages_are_read():
    rng = np.random.default_rng(0)
    pages = rng.standard_normal((40, 1, 8, 16)).astype(np.float32)
    q = rng.standard_normal((1, 1, 5, 16)).astype(np.float32)
    table = np.arange(40, dtype=np.int32)[None]

    def attention(score_mod):
        return saccade.attention(q, pages, pages, block_table=table, kv_lengths=[320], score_mod=score_mod)

    def score_mod(scores, *_):
        table[...] = 2**30
        return scores

    wanted = attention(lambda scores, *_: scores)
    np.testing.assert_array_equal(attention(score_mod), wanted)


def test_a_score_mod_cannot_change_the_cache_that_it_is_called_for():
    cache = saccade.KvCache(num_kv_heads=2, head_dim=8)
    k, q = K[:1], Q[:1, :, -1:]
    cache.append(k, k)
    seen = []

    def score_mod(scores, *_):
        seen.append((cache.lengths, cache.decode(q).shape))
        for change in (lambda: cache.append(k, k), lambda: cache.clear(0), lambda: cache.truncate(0, 1)):
            with pytest.raises(RuntimeError, match="score_mod cannot change the cache"):
                change()
        with pytest.raises(RuntimeError, match="score_mod cannot change the cache"):  # also in a nested call
            saccade.attention(Q, K, K, score_mod=lambda scores, *_: cache.clear(0))
        return scores

    done = []
    thread = threading.Thread(target=lambda: done.append(cache.decode(q, score_mod=score_mod)), daemon=True)
    thread.start()
    thread.join(20)  # a deadlock would hang here
    assert done and set(map(str, seen)) == {"([9], (1, 4, 1, 8))"} and cache.lengths == [9]
    cache.clear(0)


def test_a_score_mod_has_errors_of_its_own():
    with pytest.raises(TypeError, match="positional argument"):
        saccade.attention(Q, K, K, score_mod=lambda scores: scores)
    with pytest.raises(ValueError, match="score_mod_backward: returned None"):
        o, lse = saccade.attention(Q, K, K, score_mod=lambda scores, *_: scores, return_lse=True)
        functions = {"score_mod": lambda scores, *_: scores, "score_mod_backward": lambda *_: None}
        saccade.attention_backward(Q, K, K, o, lse, o, **functions)


def test_attributes_of_pytorch_do_not_make_a_tensor():
    class Parameter(np.ndarray):
        requires_grad = True

    np.testing.assert_array_equal(saccade.attention(Q.view(Parameter), K, K), Q)
    with pytest.raises(ValueError, match="out: is read-only"):
        saccade.attention(Q, K, K, out=read_only(Q.shape).view(Parameter))


def test_other_libraries_need_nothing_but_dlpack():
    np.testing.assert_array_equal(saccade.attention(Exported(Q), Exported(K), Exported(K)), Q)
    x = Q[None]
    np.testing.assert_array_equal(saccade.scaled_dot_product_attention(Exported(x), Exported(x), Exported(x)), x)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: saccade.alibi_slopes("two"), "num_heads: expected an integer, got a str"),
        (lambda: saccade.alibi_slopes(2**64), "num_heads: expected an integer of 64 bits"),
        (lambda: saccade.manual_seed(None), "seed: expected an integer, got None"),
        (lambda: saccade.set_num_threads(None), "num_threads: expected an integer, got None"),
        (lambda: saccade.KvCache(num_kv_heads=None, head_dim=8), "num_kv_heads: expected an integer, got None"),
        (lambda: saccade.KvCache(num_kv_heads=1, head_dim=8, head_dim_v=[8]), "head_dim_v: expected an integer"),
        (lambda: saccade.KvCache(num_kv_heads=1, head_dim=8, causal=np.zeros(2)), "causal: expected True or False"),
        (lambda: saccade.KvCache(num_kv_heads=1, head_dim=8, rope=3), "rope: expected a saccade.Rope, got int"),
        (lambda: saccade.KvCache(num_kv_heads=1, head_dim=8, dtype=BEYOND_TEXT), "dtype: expected float32"),
        (lambda: saccade.KvCache(num_kv_heads=1, head_dim=8, batch=2**62), r"batch must be at most 2\^40"),
        (lambda: saccade.Rope(2**62), r"dim must lie between 1 and 2\^40"),
        (lambda: saccade.heatmap(Q[0, 0], queries=2**63 - 1), r"queries and keys must be at most 2\^40"),
        (lambda: saccade.Rope(None), "dim: expected an integer, got None"),
        (lambda: saccade.Rope(8).rotate(Q, out=Q[:, ::-1]), "out: shares memory with x, but is not x itself"),
        (lambda: saccade.inspect(Q, K, rows=1), "rows: expected a list of integers, got int"),
        (lambda: saccade.inspect(Q, K, rows=[True]), "rows: expected a list of integers"),
        (lambda: saccade.inspect(Q, K, pool=3), "pool: expected a list of integers, got int"),
        (lambda: saccade.inspect(Q, K, pool=(1, 2, 3)), "pool: expected two sizes"),
        (lambda: saccade.inspect(Q, K, entropy=np.zeros(2)), "entropy: expected True or False"),
        (lambda: saccade.heatmap(Q[0, 0], tokens=5), "tokens: expected a list of str, got int"),
        (lambda: saccade.heatmap(Q[0, 0], tokens=memoryview(Q)), "tokens: expected a list of str, got memoryview"),
        (lambda: saccade.inspect(Q, K, rows=memoryview(Q)), "rows: expected a list of integers, got memoryview"),
        (lambda: saccade.heatmap(Q[0, 0], decimals=BEYOND_TEXT), "decimals: cannot be " + IS_REFUSED * "a int"),
        (lambda: saccade.heatmap(Q[0, 0]).save(5), "path: expected a file name, got int"),
        (lambda: saccade.heatmap(Q[0, 0]).png("large"), "zoom: expected a number, got str"),
        (lambda: nn.SelfAttention("3", 2), "d_in: expected an integer, got a str"),
        (lambda: nn.SelfAttention(3, 2, weight_layout=None), "weight_layout: expected a str, got None"),
        (lambda: nn.CausalAttention(3, 2, dropout="half"), "dropout: expected a number, got a str"),
        (lambda: nn.MultiHeadAttentionWrapper(3, 2, num_heads=1.5), "num_heads: expected an integer, got a float"),
        (lambda: nn.MultiHeadAttention(4, 4, seed=2**64), "seed: expected an integer of 64 bits"),
        (lambda: nn.MultiHeadAttention(4, 4, causal="no"), "causal: expected True or False, got a str"),
        (lambda: nn.MultiHeadAttention(4, 4, initialization=np.zeros(2)), "initialization: expected"),
        (lambda: nn.SelfAttention(8, 8).load_state_dict([1]), "state_dict: expected a dict of arrays, got list"),
        (lambda: nn.SelfAttention(8, 8).train(np.zeros(2)), "mode: expected True or False"),
        (lambda: nn.SelfAttention(8, 8)(Q[0, 0], return_weights=np.zeros(2)), "return_weights: expected True or False"),
        (lambda: nn.SelfAttention(8, 8)(Q[0, 0], causal=np.zeros(2)), "causal: expected True or False"),
    ],
)
def test_other_kinds_of_values(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_strings_that_are_no_text():
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        saccade.decode(Q, K, K, **{"\ud800": 1})
    with pytest.raises(ValueError, match=r"unexpected \\ud800"):
        layer = nn.SelfAttention(8, 8)
        layer.load_state_dict({**layer.state_dict(), "\ud800": np.zeros(3)})


def test_arrays_larger_than_memory():
    q, v = (np.broadcast_to(np.float32(0), shape) for shape in ((2**50, 4, 1), (2**50, 1, 2**9)))
    with pytest.raises(MemoryError, match="no room for an array of shape"):
        saccade.attention(q, q, v)


def test_unknown_keywords_are_type_errors():
    cache = saccade.KvCache(num_kv_heads=2, head_dim=8, batch=2)
    for call, arguments in (
        (saccade.attention, (Q, K, K)),
        (saccade.decode, (Q, K, K)),
        (saccade.attention_varlen, (Q, K, K, [0, 6])),
        (saccade.attention_backward, (Q, K, K, Q, Q, Q)),
        (saccade.inspect, (Q, K)),
        (cache.attention, (Q,)),
        (cache.decode, (Q,)),
    ):
        text = rf"{call.__name__}\(\) got an unexpected keyword argument 'is_causal'"
        with pytest.raises(TypeError, match=text):
            call(*arguments, is_causal=True)


def test_memory_that_elements_share():
    whole = np.zeros((2, 4, 6, 1), np.float32)
    shared = np.lib.stride_tricks.as_strided(whole, (2, 4, 6, 8), (*whole.strides[:3], 0))
    with pytest.raises(ValueError, match="out: has elements that share memory"):
        saccade.attention(Q, K, K, out=shared)


@pytest.mark.parametrize(
    "change, text",
    [
        ({"lse": np.zeros((2, 4, 5), np.float32)}, "lse"),
        ({"o": Q[..., :3]}, "o"),
        ({"dout": None}, "dout: expected an array, got None"),
        ({"dout": Q.astype(np.int8)}, "dout"),
        ({"return_dq": False, "return_dk_dv": False}, "one of return_dq and return_dk_dv must be True"),
        ({"return_dmask": True}, "return_dmask: mask was not given"),
        ({"return_dsinks": True}, "return_dsinks: sinks was not given"),
        ({"return_dmask": True, "mask": np.ones(9, bool)}, "dmask"),
        ({"k": np.ones(3, np.float32)}, "k"),
        ({"q": 1}, "q"),
    ],
)
def test_attention_backward(change, text):
    o, lse = saccade.attention(Q, K, K, return_lse=True)
    with pytest.raises(ValueError, match=text):
        saccade.attention_backward(**{"q": Q, "k": K, "v": K, "o": o, "lse": lse, "dout": o, **change})


@pytest.mark.parametrize(
    "starts, text",
    [
        ([0, 3], "cu_seqlens_q"),
        ([0, 7, 6], "cu_seqlens_q"),
        ([0.0, 6.0], "cu_seqlens_[qk]"),
        (None, "cu_seqlens_q"),
        ([[0, 6]], "cu_seqlens_[qk]"),
        (6, "cu_seqlens_[qk]"),
        ([0, 2**62], "cu_seqlens_[qk]"),
        ([], "cu_seqlens_[qk]"),
    ],
)
def test_attention_varlen(starts, text):
    x = np.ones((6, 2, 8), np.float32)
    for asked in ({}, {"return_weights": True}):
        with pytest.raises(ValueError, match=text):
            saccade.attention_varlen(x, x, x, starts, **asked)


def test_merge_states():
    o, lse = saccade.attention(Q, K, K, return_lse=True)
    with pytest.raises(ValueError, match="lse_b"):
        saccade.merge_states(o, lse, o, lse[:, :2])
    with pytest.raises(ValueError, match="o_b: expected an array"):
        saccade.merge_states(o, lse, None, lse)


def test_threads():
    for wrong in (-1, "two", 1.5):
        with pytest.raises(ValueError, match="num_threads|threads"):
            saccade.set_num_threads(wrong)
    before = saccade.get_num_threads()
    saccade.set_num_threads(100_000)  # more than any machine has; only as many as useful are started
    x = np.ones((3000, 2, 3, 8), np.float32)
    np.testing.assert_array_equal(saccade.attention(x, x, x), x)
    saccade.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": (-5, 0)}, "window: expected integers of at least -1, got (-5, 0)"),
        (
            {"block_mask": np.ones((1, 1), bool), "block_mask_size": 0},
            "block_mask_size: expected integers of at least 1",
        ),
        ({"query_offset": [1.5]}, "query_offset: expected integers, got f64"),
        ({"mask": np.ones((4, 4), np.int32)}, "mask: expected bool (True = attend) or floating numbers"),
        ({"out": np.ones((1, 2, 4, 7), np.float32)}, "out: expected [1, 2, 4, 8], got [1, 2, 4, 7]"),
        ({"score_mod": lambda scores, *_: scores > 0}, "score_mod: returned bool"),
        ({"dropout_p": 0.5, "seed": 2**64}, "seed: expected an integer of 64 bits"),
    ],
)
def test_messages_have_the_names_of_the_arguments(options, message):
    with pytest.raises(ValueError) as error:
        saccade.attention(X, X, X, **options)
    assert str(error.value).startswith(message)


def test_a_masked_array_is_refused():
    with pytest.raises(ValueError, match="k: is a masked array"):
        saccade.attention(X, np.ma.masked_array(X), X)


def test_an_array_that_says_it_is_read_only_stays_as_it_is():
    class Constant:  # like JAX's arrays
        def __init__(self, array):
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    out = np.zeros_like(X)
    out.flags.writeable = False
    # NumPy before 2.1 refuses to hand such an array over.
    with pytest.raises(ValueError, match="out: (is read-only|could not be read: Cannot export readonly)"):
        saccade.attention(X, X, X, out=Constant(out))
    assert not out.any()


def test_lists_of_integers_are_sinks_and_seeds_have_64_bits():
    expected = saccade.attention(X, X, X, sinks=np.array([1, 2], np.float32))
    np.testing.assert_array_equal(saccade.attention(X, X, X, sinks=[1, 2]), expected)
    drawn = [saccade.attention(X, X, X, dropout_p=0.5, seed=seed) for seed in (-1, 2**64 - 1)]
    np.testing.assert_array_equal(*drawn)
