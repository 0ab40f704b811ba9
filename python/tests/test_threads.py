"""Threads and forks of Python together with the threads of the library."""

import multiprocessing
import threading
import time

import numpy as np
import pytest
import saccade

from reference import random


def problem(seed=0):
    rng = np.random.default_rng(seed)
    return [random(rng, 2, 4, 200, 32) for _ in range(3)]


def test_threads_get_the_same_results():
    q, k, v = problem()
    wanted = saccade.attention(q, k, v, causal="top_left")
    different = []

    def work():
        for _ in range(20):
            if (saccade.attention(q, k, v, causal="top_left") != wanted).any():
                different.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different


def test_other_threads_run_while_it_computes():
    x = np.ones((1, 1, 8192, 64), np.float32)
    ticks = []
    done = threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.perf_counter()
    saccade.attention(x, x, x, num_threads=1)
    end = time.perf_counter()
    done.set()
    ticker.join()
    during = [t for t in ticks if begin + 0.1 * (end - begin) < t < begin + 0.9 * (end - begin)]
    assert len(during) >= 3  # none if the call held the GIL


def test_threads_may_share_a_module():
    layer = saccade.nn.MultiHeadAttention(16, 16, num_heads=2, causal=True, seed=1)
    x = random(np.random.default_rng(1), 4, 10, 16)
    wanted = layer(x)
    results = [None] * 4

    def work(i):
        for _ in range(100):
            results[i] = layer(x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_computes_on():
    q, k, v = problem(3)
    wanted = saccade.attention(q, k, v, num_threads=2)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        jobs = [pool.apply_async(saccade.attention, (q, k, v), {"num_threads": 2}) for _ in range(4)]
        for job in jobs:
            np.testing.assert_array_equal(job.get(timeout=60), wanted)


def test_score_mod_from_several_threads():
    q, k, v = (random(np.random.default_rng(5), 2, 4, 300, 16) for _ in range(3))
    seen = set()

    def note(scores, batch, head, q_idx, kv_idx):
        seen.add(threading.get_ident())
        time.sleep(0.001)  # lets the other threads call
        return scores

    many = saccade.attention(q, k, v, score_mod=note, num_threads=4)
    assert len(seen) > 1 or saccade.info()["threading_layer"] == "none"
    np.testing.assert_array_equal(many, saccade.attention(q, k, v, score_mod=note, num_threads=1))
