"""Random attention problems, and checks of their results."""

from __future__ import annotations

from typing import Any

import numpy as np

import reference

from .values import FLOATS, Values, bfloat16


def assert_close(got: np.ndarray, q: Any, k: Any, v: Any, **meaning: Any) -> None:
    """Like reference.assert_close, whose bound holds for most numbers, but with one that holds for all: the
    rounding error of a logit is proportional to the products in its sum, and changes a weight by the same relative
    amount."""
    precision = np.float64 if got.dtype == np.float64 else np.float32
    finer = np.longdouble if precision is np.float64 else np.float64
    wanted = reference.attention(q, k, v, dtype=finer, **meaning)[0]
    if wanted.size == 0:
        return
    naive = reference.attention(q, k, v, dtype=precision, **meaning)[0]
    bound = reference.attention(q, k, v, absolute=True, dtype=finer, **meaning)[0].max()
    q, k = (np.abs(np.asarray(x).astype(finer)) for x in (q, k))
    products = q.max(initial=0) * k.max(initial=0) * q.shape[-1] * abs(meaning.get("scale") or q.shape[-1] ** -0.5)
    reach = products + np.abs(np.where(np.isfinite(meaning.get("bias", 0)), meaning.get("bias", 0), 0)).max(initial=0)
    relative = 8 * np.finfo(got.dtype).eps + reach * np.finfo(precision).eps
    allowed = 2 * np.abs(naive - wanted).max() + relative * bound + np.finfo(got.dtype).smallest_subnormal
    error = np.abs(got.astype(finer) - wanted).max()
    assert error <= allowed, f"the output is off by {error:.3g}, allowed are {allowed:.3g}"


class Problem:
    """q, k and v that fit each other, options that fit them, and their meaning for the reference."""

    FIRST = ("kv_lengths", "query_offset", "causal")  # they determine positions
    OTHERS = (
        *("window", "mask", "scale", "softcap", "alibi_slopes"),
        *("kv_starts", "sinks", "block_mask", "score_mod", "dropout_p", "num_threads"),
    )

    def __init__(self, values: Values, options: tuple[str, ...] | None = None, paged: bool = False) -> None:
        self.values = values
        self.rank = 4 if paged else values.pick(2, 3, 4, 4)
        self.bshd = values.chance(0.3)
        self.kv_heads = 1 if self.rank == 2 else values.pick(0, 1, 2, 2)
        self.heads = self.kv_heads * (1 if self.rank == 2 else values.pick(1, 2, 3))
        self.batch = 1 if self.rank < 4 else values.pick(0, 1, 2, 3)
        self.page_size, self.pages = values.pick(1, 2, 16), values.pick(1, 2, 5)
        self.seqlen_q, self.seqlen_k = values.length(), self.page_size * self.pages if paged else values.length()
        self.dim, self.dim_v = values.pick(1, 2, 3, 8, 16, 33, 64), values.pick(1, 3, 8, 16, 64)
        dtype = values.pick(*FLOATS)
        types = [dtype if dtype == np.float64 else values.pick(dtype, np.float32) for _ in range(2)]
        self.q = values.normal(self.batch, self.heads, self.seqlen_q, self.dim, dtype=dtype)
        self.k = values.normal(self.batch, self.kv_heads, self.seqlen_k, self.dim, dtype=types[0])
        self.v = values.normal(self.batch, self.kv_heads, self.seqlen_k, self.dim_v, dtype=types[1])
        self.dtype = dtype
        self.options: dict[str, Any] = {"layout": "bshd"} if self.bshd else {}
        self.meaning: dict[str, Any] = {}
        self.seen = np.ones((self.batch, 1, self.seqlen_q, self.seqlen_k), bool)
        self.bias: Any = np.zeros((1, 1, 1, 1))
        self.position = np.zeros((self.batch, 1, 1, 1), np.int64) + np.arange(self.seqlen_q)[:, None]
        self.key = np.arange(self.seqlen_k)
        self.is_exact = bfloat16 is None or bfloat16 not in (dtype, *types)
        for name in (*self.FIRST, *values.random.sample(self.OTHERS, len(self.OTHERS))):
            if (options is None or name in options) and values.chance(0.2) or (paged and name == "kv_lengths"):
                getattr(self, f"_{name}")()
        if paged:
            self._block_table()

    def arguments(self) -> dict[str, Any]:
        laid_out = self.values.laid_out
        k, v = (self.k, self.v) if "block_table" in self.options else (self.shaped(self.k), self.shaped(self.v))
        return {"q": laid_out(self.shaped(self.q)), "k": laid_out(k), "v": laid_out(v), **self.options}

    def shaped(self, array: np.ndarray) -> np.ndarray:
        """[batch, heads, seqlen, dim] in the rank and layout of the call."""
        if self.bshd:
            array = array.swapaxes(1, 2)
        return array if self.rank == 4 else array[0] if self.rank == 3 else array[0].reshape(-1, array.shape[-1])

    def unshaped(self, array: np.ndarray) -> np.ndarray:
        """The inverse of shaped()."""
        array = array.reshape((1,) * (4 - self.rank) + array.shape) if self.rank > 2 else array[None, None]
        return array.swapaxes(1, 2) if self.bshd and self.rank > 2 else array

    def per_row(self, *last: int) -> tuple[int, ...]:
        """The shape of lse, and with seqlen_k that of the weights."""
        return (self.batch, self.heads, self.seqlen_q, *last)[4 - self.rank :]

    @property
    def precision(self) -> type:
        return np.float64 if self.dtype == np.float64 else np.float32

    def check_output(self, o: np.ndarray) -> None:
        assert o.shape == (*self.shaped(self.q).shape[:-1], self.dim_v), f"the output has shape {o.shape}"
        assert not np.isnan(o.astype(np.float64)).any(), "the output has NaN"
        if self.is_exact and o.size and o.dtype.kind == "f":
            q, k, v = self.q, self.k, self.v
            if "block_table" in self.options:
                k, v = self.gathered(k), self.gathered(v)
            assert_close(self.unshaped(o), q, k, v, seen=self.seen, bias=self.bias, **self.meaning)

    # ---- Options -----------------------------------------------------------------------------------------------

    def _kv_lengths(self) -> None:
        lengths = self.values.numbers.integers(0, self.seqlen_k + 1, self.batch)
        self.options["kv_lengths"] = self.values.pick(lengths, lengths.astype(np.int32), lengths.tolist() or lengths)
        self.seen = self.seen & (self.key < lengths[:, None, None, None])

    def _kv_starts(self) -> None:
        starts = self.values.numbers.integers(0, self.seqlen_k + 1, self.batch)
        self.options["kv_starts"] = self.values.pick(starts, starts.astype(np.int32), starts.tolist() or starts)
        self.seen = self.seen & (self.key >= starts[:, None, None, None])

    def _query_offset(self) -> None:
        offsets = self.values.numbers.integers(-9, 50, self.batch)
        if self.values.chance(0.5) or self.batch == 0:
            offsets = np.full(self.batch, self.values.pick(-70, -1, 0, 3, 100))
            self.options["query_offset"] = int(offsets[0]) if self.batch else 5
        else:
            self.options["query_offset"] = offsets
        self.position = self.position + offsets[:, None, None, None]

    def _causal(self) -> None:
        self.options["causal"] = self.values.pick("top_left", "bottom_right", "none")
        if self.options["causal"] == "bottom_right" and "query_offset" not in self.options:
            lengths = np.asarray(self.options.get("kv_lengths", [self.seqlen_k] * self.batch), np.int64)
            self.position = self.position + (lengths - self.seqlen_q)[:, None, None, None]
        if self.options["causal"] != "none":
            self.seen = self.seen & (self.key <= self.position)

    def _window(self) -> None:
        left, right = self.options["window"] = [self.values.pick(-1, 0, 1, 8, 40, 2**62) for _ in range(2)]
        self.seen = self.seen & ((left < 0) | (self.key >= self.position - left))
        self.seen = self.seen & ((right < 0) | (self.key <= self.position + min(right, 2**60)))

    def _mask(self) -> None:
        full = (self.batch, self.heads, self.seqlen_q, self.seqlen_k)
        shape = [n if self.values.chance(0.6) else 1 for n in full][self.values.random.randrange(4) :]
        if self.values.chance(0.5):
            mask = self.values.numbers.random(shape) < 0.7
            self.seen = self.seen & mask
        else:
            mask = self.values.normal(*shape, dtype=self.values.pick(np.float32, np.float64, np.float16))
            mask[self.values.numbers.random(shape) < 0.2] = -np.inf
            self.bias = self.bias + mask.astype(np.float64)
        self.options["mask"] = self.values.laid_out(mask)

    def _scale(self) -> None:
        self.options["scale"] = self.meaning["scale"] = self.values.pick(0, 0.0, 0.5, -1.0, 1)

    def _softcap(self) -> None:
        self.options["softcap"] = self.meaning["softcap"] = self.values.pick(0, 0.5, 30.0)

    def _alibi_slopes(self) -> None:
        slopes = np.float32(self.values.numbers.random(self.values.pick((self.heads,), (self.batch, self.heads))))
        self.options["alibi_slopes"] = self.values.pick(slopes, slopes.astype(np.float64), slopes.astype(np.float16))
        slopes = np.float32(self.options["alibi_slopes"])
        self.bias = self.bias - slopes[..., None, None] * np.abs(self.position - self.key).astype(np.float64)

    def _sinks(self) -> None:
        self.options["sinks"] = self.meaning["sinks"] = self.values.normal(self.heads)

    def _block_mask(self) -> None:
        sizes = [self.values.pick(1, 7, 16, 128) for _ in range(2)]
        shape = [-(-n // size) for n, size in zip((self.seqlen_q, self.seqlen_k), sizes)]
        blocks = self.values.numbers.random(shape) < 0.6
        self.options.update(block_mask=blocks, block_mask_size=sizes)
        whole = blocks.repeat(sizes[0], 0).repeat(sizes[1], 1)
        self.seen = self.seen & whole[: self.seqlen_q, : self.seqlen_k]

    def _score_mod(self) -> None:
        def add(scores: Any, batch: int, head: int, q_idx: Any, kv_idx: Any) -> Any:
            assert scores.shape == (len(q_idx), kv_idx.shape[1])
            return scores + (0.1 * head - 0.2 * batch + 0.01 * (q_idx % 7) + 0.03 * (kv_idx % 5)).astype(scores.dtype)

        self.options["score_mod"] = add
        batch, head, row = np.arange(self.batch), np.arange(self.heads), np.arange(self.seqlen_q)
        place = 0.1 * head[:, None, None] - 0.2 * batch[:, None, None, None] + 0.01 * (row % 7)[:, None]
        self.bias = self.bias + place + 0.03 * (self.key % 5)

    def _dropout_p(self) -> None:
        self.options["dropout_p"] = self.values.pick(0.1, 0.9, np.float32(0.5))
        self.options["seed"] = self.values.pick(1, -5, 2**63 - 1)
        self.is_exact = False

    def _num_threads(self) -> None:
        self.options["num_threads"] = self.values.pick(0, 1, 2, 3, 40)

    def _block_table(self) -> None:
        """k and v in pages of a pool, in any order."""
        used = self.batch * self.pages
        pool = self.values.random.sample(range(used + 2), used)
        table = np.array(pool, np.int32).reshape(self.batch, self.pages)
        lengths = np.asarray(self.options["kv_lengths"])

        def pooled(array: np.ndarray) -> np.ndarray:
            pages = self.values.normal(used + 2, self.kv_heads, self.page_size, array.shape[-1], dtype=array.dtype)
            for b, i in np.ndindex(self.batch, self.pages):
                pages[table[b, i]] = array[b, :, i * self.page_size : (i + 1) * self.page_size]
            return pages.swapaxes(1, 2) if self.bshd else pages

        self.k, self.v, self.table = pooled(self.k), pooled(self.v), table.copy()
        for b, i in np.ndindex(self.batch, self.pages):
            if i * self.page_size >= lengths[b]:
                table[b, i] = self.values.pick(-1, 10**6)  # never read
        self.options["block_table"] = table

    def gathered(self, pages: np.ndarray) -> np.ndarray:
        """The pages of each batch entry in order: [batch, heads, seqlen, dim]."""
        found = (pages.swapaxes(1, 2) if self.bshd else pages)[self.table]
        return found.swapaxes(1, 2).reshape(self.batch, self.kv_heads, self.seqlen_k, pages.shape[-1])
