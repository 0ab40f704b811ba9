"""Bad input: a ValueError that names the argument, and nothing worse."""

import numpy as np
import pytest
import saccade

Q = np.ones((2, 4, 6, 8), np.float32)
K = np.ones((2, 2, 9, 8), np.float32)


def read_only(shape):
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "change, text",
    [
        ({"q": None}, "q: wanted an array, got None"),
        ({"q": "tokens"}, "q: "),
        ({"q": [[1.0], [1.0, 2.0]]}, "q: wanted an array, got list"),
        ({"q": {}}, "q: wanted an array"),
        ({"q": np.float32(1)}, "q, k, v and o must have the same rank"),
        ({"q": np.ones(8, np.float32)}, "q, k, v and o must have the same rank"),
        ({"q": Q[0, 0, 0], "k": K[0, 0, 0], "v": K[0, 0, 0]}, "q must have rank"),
        ({"q": np.ones((1,) * 7, np.float32)}, "q: has 7 dimensions"),
        ({"q": Q.astype(complex)}, "q: has elements of a type"),
        ({"q": Q.astype(np.int64)}, "q must be f32"),
        ({"q": Q.astype(">f4")}, "q: could not be read"),
        ({"q": Q.astype(np.longdouble)}, "q: "),
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
        ({"causal": True}, "causal: wanted None, 'top_left' or 'bottom_right'"),
        ({"causal": "diagonal"}, "causal: wanted"),
        ({"query_offset": [1, 2, 3]}, "query_offset"),
        ({"query_offset": 1.5}, "query_offset"),
        ({"query_offset": 2**70}, "query_offset: wanted an integer of 64 bits"),
        ({"window": (1, 2, 3)}, "window: wanted two integers"),
        ({"window": "ab"}, "window: wanted an integer"),
        ({"window": (-5, 0)}, "window"),
        ({"window": None, "scale": "large"}, "scale: wanted a number"),
        ({"scale": float("nan")}, "scale"),
        ({"softcap": -1.0}, "softcap"),
        ({"alibi_slopes": np.ones(3)}, "alibi_slopes"),
        ({"sinks": np.ones(3)}, "sinks"),
        ({"kv_lengths": [-1, 3]}, "kv_lengths"),
        ({"kv_lengths": [3, 10]}, "kv_lengths"),
        ({"kv_lengths": [1.0, 2.0]}, "kv_lengths"),
        ({"kv_lengths": [1]}, "kv_lengths"),
        ({"dropout_p": 1.0}, "dropout_p"),
        ({"dropout_p": -0.5}, "dropout_p"),
        ({"dropout_p": float("nan")}, "dropout_p"),
        ({"dropout_p": 0.5, "seed": "x"}, "seed: wanted an integer"),
        ({"block_mask": np.ones((3, 3), bool)}, "block_mask"),
        ({"block_mask": np.ones((1, 1), bool), "block_mask_size": (0, 128)}, "block_mask"),
        ({"block_table": np.zeros((2, 1), np.int32)}, "kv_lengths|block_table"),
        ({"block_table": np.full((2, 1), 7, np.int32), "kv_lengths": [9, 9]}, "block_table"),
        ({"layout": "bshd"}, "layout: wanted 'bhld' or 'blhd'"),
        ({"layout": 4}, "layout: wanted a str"),
        ({"num_threads": -1}, "num_threads"),
        ({"num_threads": 1.5}, "num_threads: wanted an integer"),
        ({"out": read_only(Q.shape)}, "out: is read-only"),
        ({"out": np.broadcast_to(np.float32(0), Q.shape)}, "out: is read-only"),
        ({"out": np.zeros((2, 4, 6, 7), np.float32)}, "o "),
        ({"out": np.zeros(Q.shape, np.int32)}, "o "),
        ({"out": [[0.0]]}, "out"),
        ({"out": Q}, "out: shares memory with q"),
        ({"out": Q[::-1]}, "out: shares memory with q"),
    ],
)
@pytest.mark.parametrize("function", [saccade.attention, saccade.decode])
def test_attention(function, change, text):
    with pytest.raises(ValueError, match=text):
        function(**{"q": Q, "k": K, "v": K, **change})


def test_unknown_keywords_are_type_errors():
    for call in (saccade.attention, saccade.decode):
        with pytest.raises(TypeError, match="unexpected keyword argument 'is_causal'"):
            call(Q, K, K, is_causal=True)


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
        ({"dout": None}, "dout: wanted an array, got None"),
        ({"dout": Q.astype(np.int8)}, "dout"),
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
        ([0.0, 6.0], "cu_seqlens_q"),
        (None, "cu_seqlens_q"),
        ([[0, 6]], "cu_seqlens_q"),
    ],
)
def test_attention_varlen(starts, text):
    x = np.ones((6, 2, 8), np.float32)
    with pytest.raises(ValueError, match=text):
        saccade.attention_varlen(x, x, x, starts)


def test_merge_states():
    o, lse = saccade.attention(Q, K, K, return_lse=True)
    with pytest.raises(ValueError, match="lse_b"):
        saccade.merge_states(o, lse, o, lse[:, :2])
    with pytest.raises(ValueError, match="o_b: wanted an array"):
        saccade.merge_states(o, lse, None, lse)


def test_threads():
    for wrong in (-1, "two", 1.5):
        with pytest.raises(ValueError, match="num_threads|threads"):
            saccade.set_num_threads(wrong)
    before = saccade.num_threads()
    saccade.set_num_threads(100_000)  # more than any machine has: as many as there is work for
    x = np.ones((3000, 2, 3, 8), np.float32)
    np.testing.assert_array_equal(saccade.attention(x, x, x), x)
    saccade.set_num_threads(before)
