"""Memory that runs out: a MemoryError, objects as they were, and the same results when there is memory again."""

import contextlib
import sys

import numpy as np
import pytest
import saccade
from saccade import nn

from reference import random

resource = pytest.importorskip("resource", reason="the system cannot limit a process's memory")
if not sys.platform.startswith("linux"):
    pytest.skip("what a process uses is read from /proc", allow_module_level=True)

MIB = 2**20


@contextlib.contextmanager
def memory_left(mebibytes):
    """Leaves this process so many MiB: uses up what its heap has free, and limits its address space."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used, limits[1]))
    free = []
    try:
        with contextlib.suppress(MemoryError):
            while True:
                free.append(np.empty(MIB, np.uint8))
        resource.setrlimit(resource.RLIMIT_AS, (used + mebibytes * MIB, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.fixture(autouse=True)
def threads_that_run():
    """The threads of calls start before memory is short: OpenMP ends the program if they cannot."""
    x = np.ones((1, 8, 512, 64), np.float32)
    saccade.attention(x, x, x)


def test_attention():
    q = random(np.random.default_rng(0), 1, 8, 2048, 64)
    wanted, weights = saccade.attention(q, q, q, return_weights=True)
    with memory_left(64), pytest.raises(MemoryError):
        saccade.attention(q, q, q, return_weights=True)
    o, again = saccade.attention(q, q, q, return_weights=True)
    np.testing.assert_array_equal(o, wanted)
    np.testing.assert_array_equal(again, weights)


@pytest.mark.parametrize("page_size", [0, 16])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_cache(dtype, page_size):
    options = {"num_kv_heads": 4, "head_dim": 128, "dtype": dtype, "page_size": page_size}
    k = random(np.random.default_rng(0), 1, 4, 4096, 128)
    q = random(np.random.default_rng(1), 1, 4, 1, 128)
    cache = saccade.KvCache(**options)
    with memory_left(96), pytest.raises(MemoryError):
        while True:
            cache.append(k, k)
    (length,) = cache.lengths
    assert length > 0 and length % 4096 == 0
    cache.append(k, k)
    other = saccade.KvCache(**options)
    for _ in range(length // 4096 + 1):
        other.append(k, k)
    assert cache.lengths == other.lengths
    np.testing.assert_array_equal(cache.decode(q), other.decode(q))


def test_module():
    x = random(np.random.default_rng(0), 8192, 512)
    module = nn.SelfAttention(512, 512)
    before = module.state_dict()
    with memory_left(24), pytest.raises(MemoryError):
        module(x)
    after = module.state_dict()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    assert np.isfinite(module(x[:16])).all()
