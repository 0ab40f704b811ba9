"""Arrays are not copied, and memory does not grow with the square of the sequence length."""

import subprocess
import sys

import numpy as np
import saccade


def peak_of(setup: str, call: str) -> float:
    """By how many MiB the call raises the peak memory of a new process."""
    program = f"""
import numpy as np, resource, saccade
rng = np.random.default_rng(0)
saccade.attention(*(rng.random((64, 64), np.float32) for _ in range(3)))
{setup}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{call}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def test_contiguous_inputs_are_not_copied():
    # 192 MiB of keys and values, one query row and one result.
    setup = "k, v = (np.ones((1, 8, 49152, 64), np.float32) for _ in range(2)); q = k[:, :, :1].copy(); o = q.copy()"
    assert peak_of(setup, "saccade.decode(q, k, v, out=o)") < 32
    # The same in the layout [batch, seqlen, heads, dim] and as slices of a larger array.
    setup = "kv = np.ones((1, 49152, 8, 128), np.float32); q = kv[:, :1, :, :64].copy(); o = q.copy()"
    call = "saccade.decode(q, kv[..., :64], kv[..., 64:], out=o, layout='bshd')"
    assert peak_of(setup, call) < 32


def test_nothing_is_quadratic():
    setup = "q = np.ones((1, 2, 16384, 16), np.float32); mask = np.ones(16384, bool); o = q.copy()"
    call = "saccade.attention(q, q, q, mask=mask, causal='top_left', dropout_p=0.1, out=o)"
    assert peak_of(setup, call) < 16  # the matrix would take 2 GiB


def test_results_are_the_callers():
    q = np.ones((3, 4), np.float32)
    o = saccade.attention(q, q, q)
    assert o.flags.owndata and o.flags.writeable
    module = saccade.nn.SelfAttention(4, 64)
    large = module(np.ones((100, 4), np.float32))
    assert large.flags.writeable
    again = module(np.zeros((100, 4), np.float32))
    assert large.any() and not again.any()
