"""saccade.distributed: the bits of one process, over threads and over MPI, and one error for all ranks."""

import os
import pickle
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import saccade
from divided import Divided, different
from saccade import _together, distributed
from saccade.distributed import (
    CommunicationError,
    Communicator,
    Sharding,
    attention,
    attention_backward,
    decode,
    local_communicators,
)


def run(communicators, function):
    """What function(communicator) returns, or the exception that it raises, on a thread for each rank."""
    results = [None] * len(communicators)

    def work(communicator):
        try:
            results[communicator.rank] = function(communicator)
        except BaseException as error:
            results[communicator.rank] = error

    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in communicators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def operands(seqlen=30, dtype=np.float32):
    return np.random.default_rng(0).standard_normal((3, 2, 2, seqlen, 8)).astype(dtype)


class Mailbox:
    """A transport among threads, in Python."""

    def __init__(self, rank, size, shared):
        self._rank, self._size, self._shared, self.polls = rank, size, shared, 0

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def send(self, to, data):
        self._shared.setdefault((self._rank, to), []).append(bytes(data))
        return None

    def receive(self, source, data):
        return self._shared.setdefault((source, self._rank), []), data

    def is_finished(self, request):
        if request is None:
            return True
        waiting, data = request
        if waiting:
            data[:] = waiting.pop(0)
            return True
        return False

    def make_progress(self):
        self.polls += 1


def mailboxes(size, kind=Mailbox, **options):
    shared = {}
    return [Communicator(kind(rank, size, shared), **options) for rank in range(size)]


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_problems_have_the_bits_of_one_process(first):
    for number in range(first, first + 20):
        ranks = 2 + number % 3
        problem = Divided(number, ranks)
        for found in run(local_communicators(ranks, timeout=50), lambda c, p=problem: p.compare(c, c.rank)):
            assert found == [], number


def test_a_transport_in_python():
    q, k, v = operands(900)
    sharding = Sharding.zigzag(900, 3)
    wanted = saccade.attention(q, k, v, causal="top_left")
    communicators = mailboxes(3)

    def work(communicator):
        rows = sharding.indices(communicator.rank)
        return attention(
            q[:, :, rows], k[:, :, rows], v[:, :, rows], comm=communicator, sharding=sharding, causal="top_left"
        )

    for rank, o in enumerate(run(communicators, work)):
        assert different("o", o, wanted[:, :, sharding.indices(rank)]) == []
    assert repr(communicators[1]) == "<saccade.distributed.Communicator, rank 1 of 3>"


def test_shards_of_any_length_need_no_sharding():
    q, k, v = operands(31)
    cuts = [0, 4, 4, 31]
    wanted = saccade.attention(q, k, v, window=(5, 2))

    def work(communicator):
        own = slice(cuts[communicator.rank], cuts[communicator.rank + 1])
        return attention(q[:, :, own], k[:, :, own], v[:, :, own], comm=communicator, window=(5, 2))

    for rank, o in enumerate(run(local_communicators(3), work)):
        assert different("o", o, wanted[:, :, cuts[rank] : cuts[rank + 1]]) == []


def test_dropout_without_a_seed_uses_that_of_rank_0():
    q, k, v = operands()
    sharding = Sharding.contiguous(30, 2)

    def work(communicator):
        rows = sharding.indices(communicator.rank)
        return attention(q[:, :, rows], k[:, :, rows], v[:, :, rows], comm=communicator, dropout_p=0.5)

    def joined():
        return np.concatenate(run(local_communicators(2), work), axis=2)

    first, second = joined(), joined()
    assert not np.array_equal(first, second)
    saccade.manual_seed(3)
    drawn = [saccade._core.draw_seed() for _ in range(2)]  # by the threads, in any order
    saccade.manual_seed(3)
    third = joined()
    assert any(different("o", third, saccade.attention(q, k, v, dropout_p=0.5, seed=seed)) == [] for seed in drawn)


def test_decode_over_a_cache_that_ranks_share():
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, heads, n, 16), dtype=np.float32) for heads, n in ((4, 2), (2, 9000), (2, 9000)))
    wanted, wanted_lse = saccade.decode(q, k, v, causal="bottom_right", return_lse=True)
    for cuts, is_exact in (([0, 4096, 9000], True), ([0, 5000, 9000], False)):

        def work(communicator, cuts=cuts):
            own = slice(cuts[communicator.rank], cuts[communicator.rank + 1])
            return decode(q, k[:, :, own], v[:, :, own], comm=communicator, causal="bottom_right", return_lse=True)

        (o, lse), (other, _) = run(local_communicators(2), work)
        assert different("o of another rank", other, o) == []
        if is_exact:
            assert different("o", o, wanted) + different("lse", lse, wanted_lse) == []
        else:
            np.testing.assert_allclose(o, wanted, rtol=0, atol=16 * np.finfo(np.float32).eps * np.abs(v).max())


def test_shardings():
    assert Sharding.contiguous(10, 3).runs == [[(0, 4)], [(4, 7)], [(7, 10)]]
    zigzag = Sharding.zigzag(8, 2)
    assert zigzag.indices(0).tolist() == [0, 1, 6, 7] and zigzag.rows(0) == 4
    assert (zigzag.ranks, zigzag.length) == (2, 8)
    assert Sharding.striped(6, 2, 2).runs == [[(0, 2), (4, 6)], [(2, 4)]]
    balanced = Sharding.balanced(1000, 1000, 2, causal="top_left")
    assert 690 < balanced.rows(0) < 720  # half of the pairs are in the first 1000 / sqrt(2) rows
    assert Sharding.of_runs(zigzag.runs) == zigzag and hash(Sharding(zigzag.runs)) == hash(zigzag)
    assert zigzag != balanced and zigzag != "zigzag"
    assert Sharding([[], [(0, 3)]]).indices(0).shape == (0,)
    assert "8 rows among 2 ranks" in repr(zigzag)
    assert pickle.loads(pickle.dumps(zigzag)) == zigzag


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: Sharding.contiguous(-1, 2), "length"),
        (lambda: Sharding.zigzag(5, 0), "rank"),
        (lambda: Sharding([[(0, 2)], [(3, 4)]]), "run"),
        (lambda: Sharding([(0, 2)]), "runs: expected a list"),
        (lambda: Sharding.balanced(5, 5, 2, causal="left"), "causal: expected"),
        (lambda: Communicator(object()), r"transport: expected an object with a method rank\(\)"),
        (lambda: attention(*operands(), comm=3), "comm: expected an mpi4py.MPI.Intracomm"),
        (lambda: local_communicators(0), "ranks"),
        (lambda: local_communicators(1, timeout=0), "timeout: expected a positive number"),
    ],
)
def test_wrong_arguments(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    "wrong, right, kind, message",
    [
        ({"causal": "up"}, {}, ValueError, "rank 1: causal: expected"),
        ({"windows": 3}, {}, TypeError, "rank 1: .*unexpected keyword argument 'windows'"),
        ({"method": "spin"}, {}, ValueError, "rank 1: method: expected one of 'automatic'"),
        ({"sharding": "even"}, {}, ValueError, "rank 1: sharding: expected 'contiguous'"),
        ({"softcap": 2.0}, {}, ValueError, "softcap must be the same on every rank"),
        ({"method": "gather", "chunk": 64}, {}, ValueError, "rank 1: chunk"),
        ({"dropout_p": 0.5, "seed": 1}, {"dropout_p": 0.5, "seed": 2}, ValueError, "seed must be the same"),
        ({"mask": object()}, {}, ValueError, "rank 1: mask"),
        ({"sharding": Sharding.contiguous(30, 2)}, {"sharding": Sharding.zigzag(30, 2)}, ValueError, "rank|division"),
        (
            {"score_mod": lambda *_: 1 / 0},
            {"score_mod": lambda scores, *_: scores},
            RuntimeError,
            "rank 1: ZeroDivisionError",
        ),
        (
            {"score_mod": lambda *_: None},
            {"score_mod": lambda s, *_: s},
            ValueError,
            "rank 1: score_mod: returned None",
        ),
    ],
)
def test_an_error_on_one_rank_is_the_same_error_on_all(wrong, right, kind, message):
    q, k, v = operands(30)

    def work(communicator):
        own = slice(15 * communicator.rank, 15 * communicator.rank + 15)
        given = wrong if communicator.rank == 1 else right
        return attention(q[:, :, own], k[:, :, own], v[:, :, own], comm=communicator, **given)

    begin = time.monotonic()
    communicators = local_communicators(2)
    errors = run(communicators, work)
    assert time.monotonic() - begin < 1
    assert [type(error) for error in errors] == [kind, kind] and str(errors[0]) == str(errors[1])
    with pytest.raises(kind, match=message):
        raise errors[0]
    assert not communicators[0].failure  # it may be used again
    wrong, right = {}, {}
    assert [o.shape for o in run(communicators, work)] == [(2, 2, 15, 8)] * 2


def test_gradients_of_options_are_asked_for_by_all():
    q, k, v = operands(8)

    def work(communicator):
        own = slice(4 * communicator.rank, 4 * communicator.rank + 4)
        q_, k_, v_ = (x[:, :, own] for x in (q, k, v))
        sinks = np.zeros(2, np.float32)
        o, lse = attention(q_, k_, v_, comm=communicator, sinks=sinks, return_lse=True)
        return attention_backward(
            q_, k_, v_, o, lse, o, comm=communicator, sinks=sinks, return_dsinks=communicator.rank == 0
        )

    for error in run(local_communicators(2), work):
        assert isinstance(error, ValueError) and "return_dsinks must be the same on every rank" in str(error)


def test_a_rank_that_does_not_come():
    q, k, v = operands(8)
    communicators = local_communicators(2, timeout=0.2)

    def late(communicator):
        if communicator.rank == 0:
            return attention(q, k, v, comm=communicator)
        return None

    error = run(communicators, late)[0]
    assert isinstance(error, CommunicationError) and isinstance(error, RuntimeError)
    assert "waiting for the arguments of other ranks: no answer within 0.2" in str(error)
    with pytest.raises(CommunicationError, match="failed before"):
        attention(q, k, v, comm=communicators[0])


@pytest.mark.parametrize("moment", ["packing", "preparing", "sharding", "computing"])
def test_what_only_one_rank_raises_ends_the_calls_of_all(moment, monkeypatch):
    raised = {"packing": MemoryError, "sharding": MemoryError}.get(moment, KeyboardInterrupt)
    communicators = local_communicators(2, timeout=0.3)
    q, k, v = operands(8)

    def fail_on_rank_1(original):
        def function(*arguments):
            if threading.current_thread().name == "rank 1":
                raise raised
            return original(*arguments)

        return function

    if moment == "packing":
        monkeypatch.setattr(_together, "_preface", fail_on_rank_1(_together._preface))
    if moment == "sharding":
        monkeypatch.setattr(_together, "sharding_of", fail_on_rank_1(_together.sharding_of))
    if moment == "preparing":
        monkeypatch.setattr(distributed, "Prepared", fail_on_rank_1(distributed.Prepared))
    score_mod = fail_on_rank_1(lambda scores, *_: scores) if moment == "computing" else None

    def work(communicator):
        threading.current_thread().name = f"rank {communicator.rank}"
        return attention(q, k, v, comm=communicator, score_mod=score_mod, num_threads=1)

    errors = run(communicators, work)
    assert isinstance(errors[0], CommunicationError) and isinstance(errors[1], raised), errors
    monkeypatch.undo()
    for error in run(communicators, lambda communicator: attention(q, k, v, comm=communicator)):
        assert isinstance(error, CommunicationError) and "failed before" in str(error)


def test_errors_of_a_transport():
    class Broken(Mailbox):
        def send(self, to, data):
            raise OSError("the cable is cut")

    class Interrupted(Mailbox):
        def is_finished(self, request):
            raise KeyboardInterrupt

    q, k, v = operands(8)
    error = run(mailboxes(2, Broken, timeout=1), lambda c: attention(q, k, v, comm=c))[0]
    assert isinstance(error, CommunicationError) and "the cable is cut" in str(error)
    assert isinstance(error.__cause__, OSError)
    assert isinstance(run(mailboxes(2, Interrupted), lambda c: attention(q, k, v, comm=c))[0], KeyboardInterrupt)


def test_a_failure_aborts_the_transport_once():
    class Aborting(Mailbox):
        aborted = 0

        def abort(self):
            Aborting.aborted += 1

    q, k, v = operands(8)
    communicator = mailboxes(2, Aborting, timeout=0.1)[0]
    for _ in range(2):
        with pytest.raises(CommunicationError):
            attention(q, k, v, comm=communicator)
    assert Aborting.aborted == 1


def test_a_communicator_is_used_by_one_call_at_a_time():
    q, k, v = operands(8)
    communicator = local_communicators(1)[0]

    def call_again(scores, *_):
        attention(q, k, v, comm=communicator)
        return scores

    with pytest.raises(RuntimeError, match="in use by another call"):
        attention(q, k, v, comm=communicator, score_mod=call_again)
    assert different("o", attention(q, k, v, comm=communicator), saccade.attention(q, k, v)) == []


def mpirun(ranks, *arguments, timeout=60):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    launcher = shutil.which("mpirun")
    if launcher is None:
        pytest.skip("there is no mpirun")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path]),
    }
    for name in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_mpi_yield_when_idle"):
        environment[f"OMPI_{name}"] = "1"
    environment.update(OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none")
    environment["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none"
    command = [launcher, "-n", str(ranks), sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)


@pytest.mark.parametrize("ranks", [2, 3])
def test_random_problems_over_mpi(ranks):
    program = os.path.join(os.path.dirname(__file__), "divided.py")
    done = mpirun(ranks, "-m", "mpi4py", program, "--first", str(1000 * ranks), "--cases", "40")
    assert (done.returncode, done.stdout) == (0, "40 problems, no difference\n"), done.stderr


def test_an_error_on_one_rank_of_mpi():
    program = """
import numpy as np
from mpi4py import MPI
from saccade.distributed import attention
world = MPI.COMM_WORLD
x = np.ones((2, 6, 8), np.float32)
for causal in (None, "up" if world.rank else None, None):
    try:
        attention(x, x, x, comm=world, causal=causal)
        print(f"{world.rank} fine\\n", end="", flush=True)
    except ValueError as error:
        print(f"{world.rank} {error}\\n", end="", flush=True)
copy = world.Dup()
attention(x, x, x, comm=copy)
copy.Free()
"""
    done = mpirun(2, "-c", program)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    text = "[distributed::attention] rank 1: causal: expected None, 'top_left' or 'bottom_right', got 'up'"
    assert lines == sorted([f"{rank} {words}" for rank in (0, 1) for words in ("fine", "fine", text)])


@pytest.mark.parametrize("function", [attention, decode])
def test_quantized_keys_of_ranks(function):
    rng = np.random.default_rng(1)
    k, v = (rng.integers(-127, 128, (2, 30, 8), dtype=np.int8) for _ in range(2))
    k_scale, of_channels = (rng.random(shape, dtype=np.float32) / 50 for shape in ((2, 30, 1), (8,)))
    q = rng.standard_normal((4, 30, 8), dtype=np.float32)
    one = {"attention": saccade.attention, "decode": saccade.decode}[function.__name__]
    wanted = one(q, k, v, causal="top_left", k_scale=k_scale, v_scale=of_channels, k_rotated=True)

    def rank(comm):
        sharding = Sharding.contiguous(30, comm.size)
        rows = sharding.indices(comm.rank)
        given = {"causal": "top_left", "k_scale": k_scale[:, rows], "v_scale": of_channels, "k_rotated": True}
        if function is attention:
            o = attention(q[:, rows], k[:, rows], v[:, rows], comm=comm, sharding=sharding, **given)
            return np.array_equal(o, wanted[:, rows])
        o = decode(q, k[:, rows], v[:, rows], comm=comm, kv_sharding=sharding, **given)
        return np.abs(o - wanted).max() < 1e-5

    assert run(local_communicators(3), rank) == [True] * 3
