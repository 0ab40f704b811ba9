"""Random problems that are divided among ranks, and their comparison with one process. It is a program too: for MPI
`mpirun -n 3 python -m mpi4py divided.py --cases 100`, for gloo `python divided.py --gloo --ranks 3 --cases 100`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import saccade
from fuzz.problem import Problem
from fuzz.values import Values, bfloat16
from saccade import distributed

PER_ENTRY = ("kv_lengths", "kv_starts", "query_offset")
GRADIENTS = ("dmask", "dsinks", "dalibi_slopes")


class Divided:
    """Problem number `number`, divided among some ranks: the same on every rank."""

    def __init__(self, number: int, ranks: int) -> None:
        self.values = Values(number)
        problem = Problem(self.values)
        self.precision, self.options = problem.precision, {**problem.options}
        self.q, self.k, self.v = (problem.shaped(x) for x in (problem.q, problem.k, problem.v))
        self.axis = self.k.ndim - 3 if problem.bshd and problem.rank > 2 else self.k.ndim - 2
        if "score_mod" in self.options:
            self.options.pop("num_threads", None)
        if self.values.chance(0.15) and problem.rank == 4 and problem.batch:
            self._pack(problem)
        rows, keys = self.q.shape[self.axis], self.k.shape[self.axis]
        self.division: dict[str, Any] = {"sharding": self._sharding(rows, ranks)}
        if rows != keys or self.values.chance(0.3):
            self.division["kv_sharding"] = self._sharding(keys, ranks)
        methods = ["automatic", "gather", "stream", "ring", "pass_q"]
        self.division["method"] = self.values.pick(*methods[: 4 if "cu_seqlens_q" in self.options else 5])
        heads = problem.kv_heads
        if heads >= ranks and self.values.chance(0.4):
            self.division["method"] = "heads"
        elif heads > 1 and ranks % heads == 0 and self.values.chance(0.4):
            self.division.update(method="grid", head_groups=heads)
        self.rows = self.division["sharding"]
        self.keys = self.division.get("kv_sharding", self.rows)
        self.dout = self.values.normal(*self.q.shape[:-1], self.v.shape[-1], dtype=self.q.dtype)

    def _pack(self, problem: Problem) -> None:
        """Makes documents of the batch entries."""
        self.q, self.k, self.v = (
            np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape[0] * x.shape[2], x.shape[1], x.shape[3])
            for x in (problem.q, problem.k, problem.v)
        )
        self.axis = 0
        for name in ("layout", "block_mask", "block_mask_size"):
            self.options.pop(name, None)
        documents = np.arange(problem.batch + 1)
        cu_seqlens = [documents * problem.seqlen_q, documents * problem.seqlen_k]
        if not any(isinstance(self.options.get(name), (list, np.ndarray)) for name in ("mask", *PER_ENTRY)):
            cu_seqlens = [self._cuts(int(even[-1]), problem.batch) for even in cu_seqlens]
        self.options["cu_seqlens_q"], self.options["cu_seqlens_k"] = cu_seqlens

    def _cuts(self, length: int, parts: int) -> np.ndarray:
        inner = [self.values.random.randint(0, length) for _ in range(parts - 1)]
        return np.array([0, *sorted(inner), length], np.int64)

    def _sharding(self, length: int, ranks: int) -> distributed.Sharding:
        kind = self.values.pick("contiguous", "zigzag", "striped", "any", "any")
        if kind == "striped":
            return distributed.Sharding.striped(length, ranks, self.values.pick(1, 7, 33))
        if kind != "any":
            return getattr(distributed.Sharding, kind)(length, ranks)
        cuts = sorted({0, length, *(self.values.random.randint(0, length) for _ in range(3 * ranks))})
        runs: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
        for begin, end in zip(cuts, cuts[1:]):
            self.values.pick(*runs).append((begin, end))
        return distributed.Sharding(runs)

    def own(self, array: np.ndarray, sharding: distributed.Sharding, rank: int, axis: int | None = None) -> np.ndarray:
        """A rank's part of an array."""
        return np.take(array, sharding.indices(rank), self.axis if axis is None else axis)

    def own_operands(self, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.own(self.q, self.rows, rank), self.own(self.k, self.keys, rank), self.own(self.v, self.keys, rank)

    @property
    def is_reordered(self) -> bool:
        """Whether sums have another order than in one process."""
        return self.division["method"] in ("ring", "pass_q")

    def asked(self) -> dict[str, bool]:
        """Which gradients of options are asked for."""
        mask = self.options.get("mask")
        return {
            "return_dmask": mask is not None and mask.dtype != bool,
            "return_dsinks": "sinks" in self.options,
            "return_dalibi_slopes": "alibi_slopes" in self.options,
        }

    def solved(self, dtype: Any = None) -> tuple[np.ndarray, np.ndarray, saccade.Gradients]:
        """Of one process: output, lse and gradients."""
        q, k, v, dout = (x if dtype is None else x.astype(dtype) for x in (self.q, self.k, self.v, self.dout))
        attend = saccade.attention_varlen if "cu_seqlens_q" in self.options else saccade.attention
        o, lse = attend(q, k, v, return_lse=True, **self.options)
        return o, lse, saccade.attention_backward(q, k, v, o, lse, dout, **self.options, **self.asked())

    def largest_term(self) -> float:
        """A bound of the gradient of a weight, in absolute values: gradients of options are sums of differences of
        such numbers, which may cancel."""
        if self.dout.size == 0 or self.v.size == 0:
            return 0.0
        dout, v = (np.abs(x.astype(np.float64)).reshape(-1, x.shape[-1]).max(0) for x in (self.dout, self.v))
        return float(dout @ v)

    def compare(self, comm: Any, rank: int) -> list[str]:
        """What is wrong on a rank."""
        o, lse, gradients = self.solved()
        q, k, v = self.own_operands(rank)
        given = {**self.division, **self.options, "comm": comm}
        got, got_lse = distributed.attention(q, k, v, return_lse=True, **given)
        whole = self.solved(np.float64)
        own_o, own_lse = self.own(o, self.rows, rank), self.own(lse, self.rows, rank, -1)
        if self.is_reordered:
            wrong = too_far("o", got, own_o, self.own(whole[0], self.rows, rank))
            # a relative error of the sum is an absolute one of its logarithm
            wrong += too_far("lse", got_lse, own_lse, self.own(whole[1], self.rows, rank, -1), 1.0)
            again = distributed.attention(q, k, v, return_lse=True, **given)
            wrong += different("o of a second run", again[0], got) + different("lse of a second run", again[1], got_lse)
        else:
            wrong = different("o", got, own_o) + different("lse", got_lse, own_lse)
        dout = self.own(self.dout, self.rows, rank)

        def backward(exact: bool) -> saccade.Gradients:
            return distributed.attention_backward(q, k, v, own_o, own_lse, dout, exact=exact, **given, **self.asked())

        wrong += self.compare_gradients(backward(True), gradients, whole[2], rank, True)
        found = backward(False)
        wrong += self.compare_gradients(found, gradients, whole[2], rank, False)
        for name, one, two in zip(found._fields, found, backward(False)):
            if one is not None:
                wrong += different(f"{name} of a second run", two, one)
        if "cu_seqlens_q" not in self.options:
            wrong += self.compare_decode(comm, k, v, whole[0])
        return [f"rank {rank}: {line}, {self.division}, {sorted(self.options)}" for line in wrong]

    def compare_gradients(
        self, found: Any, one: saccade.Gradients, whole: saccade.Gradients, rank: int, exact: bool
    ) -> list[str]:
        """What is wrong in gradients of a rank. `one`: those of one process; `whole`: in f64."""
        wrong = different("dq", found.dq, self.own(one.dq, self.rows, rank))
        for name in ("dk", "dv"):
            of_one, of_whole = (self.own(getattr(of, name), self.keys, rank) for of in (one, whole))
            if exact:
                wrong += different(f"exact {name}", getattr(found, name), of_one)
            else:
                wrong += too_far(name, getattr(found, name), of_one, of_whole)
        for name in GRADIENTS:
            if getattr(one, name) is not None:
                ones = getattr(one, name), getattr(whole, name)
                wrong += too_far(name, getattr(found, name), *ones, self.largest_term())
        return wrong

    def compare_decode(self, comm: Any, k: np.ndarray, v: np.ndarray, whole: np.ndarray) -> list[str]:
        """What is wrong in decode() with the keys of a rank: short of 4096 keys, the sum is another."""
        o = saccade.decode(self.q, self.k, self.v, **self.options)
        got = distributed.decode(self.q, k, v, comm=comm, kv_sharding=self.keys, **self.options)
        again = distributed.decode(self.q, k, v, comm=comm, kv_sharding=self.keys, **self.options)
        holders = sum(self.keys.rows(rank) > 0 for rank in range(self.keys.ranks))
        wrong = different("decode", got, o) if holders == 1 else too_far("decode", got, o, whole)
        return wrong + different("decode, a second time", again, got)


def different(name: str, got: np.ndarray, wanted: np.ndarray) -> list[str]:
    """Whether arrays differ in a bit."""
    if got.shape == wanted.shape and got.tobytes() == np.ascontiguousarray(wanted).tobytes():
        return []
    return [f"{name} differs: {got.shape} and {wanted.shape}"]


def too_far(name: str, got: np.ndarray, one: np.ndarray, exact: np.ndarray, terms: float = 0.0) -> list[str]:
    """Whether numbers are further from those in f64 than three times those of one process and 16 eps. `terms`: the
    size of what is summed up, if it may cancel."""
    is_finite = np.isfinite(exact)
    if got.shape != exact.shape or not np.array_equal(got[~is_finite], exact[~is_finite]):
        return [f"{name} differs where it is infinite, or in its shape: {got.shape} and {exact.shape}"]
    got, one, exact = got[is_finite], one[is_finite], exact[is_finite]
    if got.size == 0:
        return []
    got, eps = got.astype(np.float64), 2.0**-7 if one.dtype == bfloat16 else np.finfo(one.dtype).eps
    allowed = 3 * np.abs(one.astype(np.float64) - exact).max() + 16 * eps * max(np.abs(exact).max(), terms)
    error = np.abs(got - exact).max()
    return [] if error <= allowed else [f"{name} is off by {error:.3g}, allowed are {allowed:.3g}"]


def differences(comm: Any, rank: int, ranks: int, numbers: range) -> list[str]:
    """What is wrong on a rank in problems with these numbers."""
    return [f"{number}: {line}" for number in numbers for line in Divided(number, ranks).compare(comm, rank)]


def over_gloo(ranks: int, numbers: range) -> list[str]:
    """What is wrong in problems with these numbers among processes of torch.distributed."""
    import divided_torch
    import processes

    timeout = 60 + 2 * len(numbers)
    everything = processes.run(ranks, divided_torch.random_problems, numbers, timeout=timeout)
    return [line for of_rank in everything for line in (of_rank if isinstance(of_rank, list) else [repr(of_rank)])]


def over_mpi(numbers: range) -> list[str] | None:
    """What is wrong in problems with these numbers among ranks of MPI; None on all but the first."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    everything = world.gather(differences(world, world.rank, world.size, numbers), 0)
    return None if everything is None else [line for of_rank in everything for line in of_rank]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compares random problems among ranks of MPI with one process.")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the number of the first problem")
    parser.add_argument("--gloo", action="store_true", help="among processes of torch.distributed, without mpirun")
    parser.add_argument("--ranks", type=int, default=2, help="with --gloo")
    asked = parser.parse_args()
    if asked.cases < 1:
        parser.error("--cases must be at least 1")
    numbers = range(asked.first, asked.first + asked.cases)
    found = over_gloo(asked.ranks, numbers) if asked.gloo else over_mpi(numbers)
    if found is not None:
        print("\n".join(found) or f"{asked.cases} problems, no difference")
        if found:
            raise SystemExit(1)
