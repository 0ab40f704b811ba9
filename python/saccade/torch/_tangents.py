"""Tangents of attention and of its gradients, in PyTorch's own operations: what forward-mode differentiation and
gradients of gradients need.

With scores S = scale q k^T, logits softcap(S) + biases, weights P = softmax(logits) and W = dropout(P), attention is
o = W v. Its backward pass from dout is

    dP = dropout(dout v^T)    D = rowsum(P dP) - dlse    G = P (dP - D)    dS = softcap'(S) G
    dq = scale dS k           dk = scale dS^T q          dv = W^T dout

Each line is differentiated in the direction of given tangents of q, k, v and of the options that learn. Second
derivatives are symmetric: the tangents of dq, dk ... in the direction (a, b ...) are also the gradients of
<dq, a> + <dk, b> + ...

A matrix of rows x keys exists for some rows at a time only, so memory is linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_PAIRS = 2**20  # of a row and a key at a time, in all heads

# The axes of each tensor.
_KINDS = {
    **dict.fromkeys(("q", "o", "dout"), "of_rows"),
    **dict.fromkeys(("k", "v"), "of_keys"),
    **dict.fromkeys(("lse", "dlse"), "one_each_row"),
    **dict.fromkeys(("mask", "block_mask", "weights", "dweights"), "of_pairs"),
    **dict.fromkeys(("sinks", "alibi_slopes"), "of_heads"),
    **dict.fromkeys(("kv_lengths", "kv_starts", "query_offset"), "of_entries"),
}
Tensors = dict[str, Tensor]


def differentiate(given: Tensors, moves: Tensors, call: Any, seed: Tensor | None) -> Tensors:
    """The tangents of o, lse and weights and, if ``given`` has dout, dlse or dweights, of the gradients of q, k, v,
    mask, sinks and alibi_slopes, which have the names of these. All are f64, because such differences of products
    cancel.

    :param given: the tensors of the call, and the gradients of its results.
    :param moves: the tangents, by the same names; what has none stays.
    """
    tensors = (*moves.values(), *given.values())
    like = next((x for x in tensors if type(x) is not Tensor), tensors[0])  # subclasses and batches stay what they are
    shapes = _shapes(given, call)
    result = {name: like.new_zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    if result["lse"].numel():
        for sequences in _sequences(given, call):
            problem = _Problem(sequences.views(given), sequences.views(moves), sequences.views(result), call)
            if call.dropout_p:
                assert seed is not None
                problem.drop(int(seed), sequences.document or 0)
            problem.differentiate()
    return result


def _shapes(given: Tensors, call: Any) -> dict[str, Any]:
    q, k, v = given["q"], given["k"], given["v"]
    is_packed, is_bshd = "cu_seqlens_q" in given, call.layout == "bshd"
    rows = q.shape[:-1]
    if is_bshd and q.dim() > 2:
        rows = (*rows[:-2], rows[-1], rows[-2])
    keys = k.shape[-3 if is_bshd and k.dim() > 2 else -2]
    shapes = {"o": (*q.shape[:-1], v.shape[-1]), "lse": rows}
    if not is_packed:
        shapes["weights"] = (*rows, keys) if call.return_weights else None
    if not given.keys().isdisjoint(("dout", "dlse", "dweights")):
        learnt = ("q", "k", "v", "mask", "sinks", "alibi_slopes")
        shapes.update((name, given[name].shape) for name in learnt if name in given and given[name].is_floating_point())
    return {name: shape for name, shape in shapes.items() if shape is not None}


class _Sequences:
    """A batch, or one document of a packed one: the parts of a call's tensors that belong to it, with the axes [batch,
    kv_heads, group of heads, ...]."""

    def __init__(
        self, kv_heads: int, is_bshd: bool, document: int | None = None, rows: Any = None, keys: Any = None
    ) -> None:
        self.kv_heads, self.is_bshd = kv_heads, is_bshd
        self.document, self.rows, self.keys = document, rows, keys

    def views(self, tensors: Tensors) -> Tensors:
        return {name: getattr(self, _KINDS[name])(x) for name, x in tensors.items() if name in _KINDS}

    def of_rows(self, x: Tensor) -> Tensor:
        return self._grouped(self._bhsd(x if self.rows is None else x[self.rows]))

    def of_keys(self, x: Tensor) -> Tensor:
        """[batch, kv_heads, seqlen_k, dim]."""
        return self._bhsd(x if self.keys is None else x[self.keys])

    def one_each_row(self, x: Tensor) -> Tensor:
        x = x if self.rows is None else x[:, self.rows]
        return self._grouped(_of_rank(x, 3))

    def of_pairs(self, x: Tensor) -> Tensor:
        """An axis may have the length 1: for all."""
        x = _of_rank(x, 4)
        x = x if self.document is None else self._own(x)[:, :, : self.rows.stop - self.rows.start]
        return x.unsqueeze(2) if x.shape[1] == 1 else self._grouped(x)

    def of_heads(self, x: Tensor) -> Tensor:
        return self._grouped(x[None] if x.dim() == 1 else self._own(x))[..., None]

    def of_entries(self, x: Tensor) -> Tensor:
        return self._own(x).view(-1, 1, 1, 1, 1)

    def _own(self, x: Tensor) -> Tensor:
        """The document's entry."""
        return x if self.document is None or len(x) == 1 else x[self.document : self.document + 1]

    def _bhsd(self, x: Tensor) -> Tensor:
        x = _of_rank(x, 3) if x.dim() == 2 or not self.is_bshd else x.transpose(-2, -3)
        return x if x.dim() == 4 else x[None]

    def _grouped(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.kv_heads, -1))


def _of_rank(x: Tensor, rank: int) -> Tensor:
    return x if x.dim() >= rank else x[(None,) * (rank - x.dim())]


def _sequences(given: Tensors, call: Any) -> Iterator[_Sequences]:
    k = given["k"]
    is_bshd = call.layout == "bshd"
    kv_heads = 1 if k.dim() == 2 else k.shape[-2 if is_bshd else -3]
    if "cu_seqlens_q" not in given:
        yield _Sequences(kv_heads, is_bshd)
        return
    starts = zip(given["cu_seqlens_q"].tolist(), given["cu_seqlens_k"].tolist())
    first = next(starts)
    for i, last in enumerate(starts):
        rows, keys = (slice(*ends) for ends in zip(first, last))
        if rows.start < rows.stop:
            yield _Sequences(kv_heads, is_bshd, i, rows, keys)
        first = last


class _Problem:
    """Sequences of the same lengths, whose tensors have the axes of _Sequences."""

    def __init__(self, given: Tensors, moves: Tensors, result: Tensors, call: Any) -> None:
        self.given, self.moves, self.result, self.call = given, moves, result, call
        self.seqlen_q, self.seqlen_k = given["q"].shape[-2], given["k"].shape[-2]
        self.scale = given["q"].shape[-1] ** -0.5 if call.scale is None else call.scale
        self.ends = given.get("kv_lengths", torch.full((1,) * 5, self.seqlen_k))
        self.offset = given.get("query_offset", torch.full((1,) * 5, call.query_offset or 0))
        if call.causal == "bottom_right" and call.query_offset is None and "query_offset" not in given:
            self.offset = self.ends - self.seqlen_q
        self.dropout: _Dropout | None = None

    def drop(self, seed: int, first_entry: int) -> None:
        heads = self.given["q"].shape[:3]
        first = first_entry * heads[1:].numel()
        self.dropout = _Dropout(
            seed, self.call.dropout_p, torch.arange(first, first + heads.numel()).view(*heads, 1, 1, 1)
        )

    def differentiate(self) -> None:
        heads = self.given["q"].shape[:3].numel()
        step = max(1, _PAIRS // max(1, heads * self.seqlen_k))
        for first in range(0, self.seqlen_q, step):
            rows = slice(first, min(first + step, self.seqlen_q))
            _Rows(self, rows, self._keys_of(rows)).differentiate()

    def _keys_of(self, rows: slice) -> slice:
        """The keys that causal, window and lengths leave to some of the rows."""
        call, first, last = self.call, 0, int(self.ends.max())
        ahead = [0] if call.causal else []
        ahead += [call.window_right] if call.window_right >= 0 else []
        if ahead:
            last = min(last, int(self.offset.max()) + rows.stop + min(ahead))
        if call.window_left >= 0:
            first = int(self.offset.min()) + rows.start - call.window_left
        if "kv_starts" in self.given:
            first = max(first, int(self.given["kv_starts"].min()))
        last = max(last, 0)
        return slice(min(max(first, 0), last), last)

    def visible(self, row: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """[batch, kv_heads, group, rows, keys], of which the first three may be 1."""
        call, given = self.call, self.given
        ahead = key - row - self.offset
        visible = key < self.ends
        if "kv_starts" in given:
            visible = visible & (key >= given["kv_starts"])
        if call.causal:
            visible = visible & (ahead <= 0)
        if call.window_left >= 0:
            visible = visible & (-ahead <= call.window_left)
        if call.window_right >= 0:
            visible = visible & (ahead <= call.window_right)
        if "block_mask" in given:
            visible = visible & given["block_mask"][..., row // call.block_mask_q, key // call.block_mask_k]
        if mask is not None:
            visible = visible & (mask if mask.dtype is torch.bool else mask != -torch.inf)
        return visible.expand(*visible.shape[:3], len(row), len(key))


class _Rows:
    """Some rows of a problem. The names are those of the text at the top; moved_x is the tangent of x."""

    def __init__(self, problem: _Problem, rows: slice, keys: slice) -> None:
        self.call, self.scale = problem.call, problem.scale
        self.given, self.moves, self.result = (
            {name: _part(name, x, rows, keys) for name, x in tensors.items()}
            for tensors in (problem.given, problem.moves, problem.result)
        )
        row, key = torch.arange(rows.start, rows.stop)[:, None], torch.arange(keys.start, keys.stop)
        self.visible = problem.visible(row, key, self.given.get("mask"))
        self.distance = (row + problem.offset - key).abs()
        for tensors in (self.given, self.moves):
            tensors.update((name, x.double()) for name, x in tensors.items() if x.is_floating_point())
        is_seen = self.visible.any(3).any(2)[..., None]  # no row is to be harmed by what is in hidden keys
        self.q, self.k, self.v = self.given["q"], *(self.given[name].where(is_seen, 0) for name in ("k", "v"))
        self.moved_q, self.moved_k, self.moved_v = (self.moves.get(name) for name in ("q", "k", "v"))
        dropout = problem.dropout
        self.kept = None if dropout is None else dropout.factors(rows, keys).double()

    def differentiate(self) -> None:
        self._logits()
        self._weights()
        self._add_results()
        if "q" in self.result:
            self._add_gradients()

    def _logits(self) -> None:
        scores = self.scale * _product(self.q, self.k.mT)
        moved = _product(self.moved_q, self.k.mT) + _product(self.q, _transposed(self.moved_k))
        self.moved_scores = self.scale * moved
        self.slope, self.bend = 1.0, 0.0  # the first and second derivative of softcap
        if softcap := self.call.softcap:
            bounded = torch.tanh(scores / softcap)
            scores, self.slope = softcap * bounded, 1 - bounded * bounded
            self.bend = -2 / softcap * bounded * self.slope
        biases, moved = 0, self.slope * self.moved_scores + self.moves.get("mask", 0)
        if "alibi_slopes" in self.given:
            biases = self.given["alibi_slopes"][..., None] * -self.distance
        if "alibi_slopes" in self.moves:
            moved = moved - self.moves["alibi_slopes"][..., None] * self.distance
        mask = self.given.get("mask", self.visible)
        self.logits = (scores + (biases if mask.dtype is torch.bool else biases + mask)).where(self.visible, -torch.inf)
        self.moved_logits = torch.where(self.visible, moved, 0)

    def _weights(self) -> None:
        lse = self.logits.logsumexp(-1, keepdim=True)
        self.sink_weights = self.moved_sinks = 0
        if "sinks" in self.given:
            sinks = self.given["sinks"][..., None]
            lse = torch.logaddexp(lse, sinks)
            self.sink_weights = (sinks - lse.where(lse != -torch.inf, 0)).exp()
        if "sinks" in self.moves:
            self.moved_sinks = self.moves["sinks"][..., None]
        self.weights = (self.logits - lse.where(lse != -torch.inf, 0)).exp()
        self.moved_lse = (self.weights * self.moved_logits).sum(-1, keepdim=True) + self.sink_weights * self.moved_sinks
        self.moved_weights = self.weights * (self.moved_logits - self.moved_lse)

    def _add_results(self) -> None:
        moved_weights = self._dropped(self.moved_weights)
        self.result["o"] += _product(moved_weights, self.v) + _product(self._dropped(self.weights), self.moved_v)
        self.result["lse"] += self.moved_lse[..., 0]
        if "weights" in self.result:
            self.result["weights"] += moved_weights if self.call.weights_after_dropout else self.moved_weights

    def _add_gradients(self) -> None:
        dout, of_weights = self.given.get("dout"), self.given.get("dweights", 0)
        dweights = self._dropped(_product(dout, self.v.mT))
        dweights = dweights + (self._dropped(of_weights) if self.call.weights_after_dropout else of_weights)
        moved_dweights = self._dropped(_product(dout, _transposed(self.moved_v)))
        sums = (self.weights * dweights).sum(-1, keepdim=True)
        if "dlse" in self.given:
            sums = sums - self.given["dlse"][..., None]
        moved_sums = (self.moved_weights * dweights + self.weights * moved_dweights).sum(-1, keepdim=True)
        dlogits = self.weights * (dweights - sums)
        moved_dlogits = self.moved_weights * (dweights - sums) + self.weights * (moved_dweights - moved_sums)
        dscores = self.scale * self.slope * dlogits
        moved_dscores = self.scale * (self.slope * moved_dlogits + self.bend * self.moved_scores * dlogits)

        result = self.result
        result["q"] += _product(moved_dscores, self.k) + _product(dscores, self.moved_k)
        result["k"] += _sum_of_rows(moved_dscores, self.q) + _sum_of_rows(dscores, self.moved_q)
        result["v"] += _sum_of_rows(self._dropped(self.moved_weights), dout)
        if "mask" in result:
            result["mask"] += moved_dlogits.sum_to_size(result["mask"].shape)
        if "alibi_slopes" in result:
            moved = (self.distance * moved_dlogits).sum((3, 4))[..., None]
            result["alibi_slopes"] -= moved.sum_to_size(result["alibi_slopes"].shape)
        if "sinks" in result:
            moved = self.sink_weights * ((self.moved_sinks - self.moved_lse) * sums + moved_sums)
            result["sinks"] -= moved.sum((0, 3))[None]

    def _dropped(self, weights: Any) -> Any:
        return weights if self.kept is None else weights * self.kept


def _part(name: str, x: Tensor, rows: slice, keys: slice) -> Tensor:
    """The view of what belongs to some rows and keys."""
    kind = _KINDS[name]
    if kind == "of_rows":
        return x[..., rows, :]
    if kind == "of_keys":
        return x[..., keys, :]
    if kind == "one_each_row":
        return x[..., rows]
    if kind == "of_pairs" and name != "block_mask":
        x = x if x.shape[-1] == 1 else x[..., keys]
        return x if x.shape[-2] == 1 else x[..., rows, :]
    return x


def _transposed(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.mT


def _product(a: Tensor | None, b: Tensor | None) -> Any:
    """a b of each group of heads, or 0."""
    if a is None or b is None:
        return 0
    return (a.flatten(2, 3) @ b).unflatten(2, a.shape[2:4])


def _sum_of_rows(a: Tensor | None, b: Tensor | None) -> Any:
    """a^T b, summed over the group of heads, or 0."""
    return 0 if a is None or b is None else a.flatten(2, 3).mT @ b.flatten(2, 3)


class _Dropout:
    """The weights that dropout keeps: those of dropout_keeps in include/saccade/random.h."""

    def __init__(self, seed: int, p: float, heads: Tensor) -> None:
        """:param heads: batch * num_heads + head, with the axes of _Sequences."""
        self.seed, self.p, self.heads = seed, p, heads

    def factors(self, rows: slice, keys: slice) -> Tensor:
        """0 for dropped weights, 1 / (1 - p) for the others."""
        first = keys.start // 64
        count = (keys.stop + 63) // 64 - first
        row = torch.arange(rows.start, rows.stop).view(-1, 1, 1)
        block = (torch.arange(first, first + count) * 16).view(-1, 1) + torch.arange(16)
        words = philox((torch.tensor(0), self.heads, row, block), self.seed)
        words = torch.stack(words, -2).flatten(-3)[..., keys.start - first * 64 : keys.stop - first * 64]
        return (words >= self.p * 2.0**32).double() / (1 - self.p)


def philox(counter: Any, seed: int) -> list[Tensor]:
    """The four words of Philox4x32-10 for the four words of a counter, which are broadcast: int64 tensors of numbers
    below 2^32."""
    low = 2**32 - 1
    words = torch.broadcast_tensors(*counter)
    keys = [seed & low, seed >> 32 & low]
    for _ in range(10):
        first, second = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57  # modulo 2^64
        words = [
            (second >> 32 & low) ^ words[1] ^ keys[0],
            second & low,
            (first >> 32 & low) ^ words[3] ^ keys[1],
            first & low,
        ]
        keys = [keys[0] + 0x9E3779B9 & low, keys[1] + 0xBB67AE85 & low]
    return words
