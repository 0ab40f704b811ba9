"""Attention problems as text, one per line, in the words of bench/shapes.txt and a few more."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np

DTYPES = ("f32", "bf16", "f16")
CACHES = ("bf16", "int8", "int4")
KINDS = ("forward", "backward", "train", "loop")
INSIDE = {"jax": "JAX", "onnxruntime": "ONNX Runtime"}  # libraries for which saccade has a package, by their peers


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem without its inputs. The comment of a field names the words that set it."""

    kind: str = "forward"  # or "backward" (the gradients alone), "train" (both), "loop" (see shapes.txt)
    module: bool = False  # "module": the whole of torch.nn.MultiheadAttention
    batch: int = 1  # b=
    num_heads: int = 1  # h=
    num_kv_heads: int = 1  # hkv=, otherwise h
    seqlen_q: int = 1  # sq= (or s= for both); of all documents together where there are any
    seqlen_k: int = 1  # sk=, otherwise sq
    head_dim: int = 64  # d=
    dtype: str = "f32"  # dtype=
    causal: str | None = None  # causal=top_left or bottom_right
    window: tuple[int, int] = (-1, -1)  # window=LEFT,RIGHT, inclusive; -1: open
    mask: str | None = None  # mask=bool or f32: [seqlen_q, seqlen_k], half of it hidden
    lengths: bool = False  # "lengths": random numbers of keys that count in each batch entry, from seqlen_k / 2 on
    documents: int = 0  # docs=: a packed batch of that many documents, of random lengths
    softcap: float = 0.0  # softcap=
    dropout_p: float = 0.0  # dropout=
    decode: bool = False  # "decode": few rows, many keys
    cache: str | None = None  # cache=: one new token over a cache of 16, 8 or 4 bits a number, in each library's format
    memory: bool = False  # "memory": the peak memory of the call instead of its time
    inside: str | None = None  # inside=jax or onnxruntime: called from that library, and compared with its own
    curve: bool = False  # s=A,B,...: a point of a picture instead of a line of a table

    @property
    def has_window(self) -> bool:
        return self.window != (-1, -1)

    @property
    def needs_gradients(self) -> bool:
        return self.kind in ("backward", "train")

    @property
    def is_structured(self) -> bool:
        """Whether a rule (causal and the like) hides keys, alone or together with a mask."""
        return bool(self.causal or self.has_window or self.documents or self.lengths)

    @property
    def width(self) -> int:
        """Of a module's inputs and outputs."""
        return self.num_heads * self.head_dim

    def but(self, **changes: Any) -> Problem:
        """The same problem with other fields."""
        return dataclasses.replace(self, **changes)

    def flops(self) -> float:
        """Operations as :func:`saccade.attention_flops` counts them, 2.5 times as many for gradients. A module's
        projections add 2 width^2 for each token and matrix, twice that for gradients."""
        linear = 8.0 * self.batch * self.seqlen_q * self.width**2 if self.module else 0.0
        factors = {"forward": (1, 1), "backward": (2.5, 2), "train": (3.5, 3), "loop": (1, 1)}[self.kind]
        return factors[0] * self._attention_operations() + factors[1] * linear

    def _attention_operations(self) -> float:
        import saccade  # not at the top, because the processes of other peers import this file too

        def tensor(heads: int, rows: int) -> np.ndarray:  # only its shape matters
            shape = (rows, heads) if self.documents else (self.batch, heads, rows)
            return np.broadcast_to(np.zeros(self.head_dim, np.float32), (*shape, self.head_dim))

        q, k = tensor(self.num_heads, self.seqlen_q), tensor(self.num_kv_heads, self.seqlen_k)
        options: dict[str, Any] = {"causal": self.causal, "window": self.window}
        if self.documents:
            options.update(cu_seqlens_q=self.document_begins(), cu_seqlens_k=self.document_begins())
        else:
            options["kv_lengths"] = self.key_counts()
        return saccade.attention_flops(q, k, k, **options)

    def document_begins(self) -> np.ndarray:
        """Where each document begins, and where the last one ends: int32 [documents + 1]."""
        random = np.random.default_rng(self.documents)
        begins = random.choice(np.arange(1, self.seqlen_q), self.documents - 1, replace=False)
        return np.array([0, *np.sort(begins), self.seqlen_q], np.int32)

    def key_counts(self) -> np.ndarray:
        """How many keys of each batch entry count: int32 [batch]."""
        if not self.lengths:
            return np.full(self.batch, self.seqlen_k, np.int32)
        return np.random.default_rng(self.batch).integers(self.seqlen_k // 2, self.seqlen_k + 1, self.batch, np.int32)

    def kv_bytes(self) -> float:
        """Bytes of k and v, which decoding reads once."""
        size = 4 if self.dtype == "f32" else 2
        row = self.head_dim * size
        if self.cache:  # as docs/quantized-caches.md describes saccade's formats
            row = {"bf16": 2 * self.head_dim, "int8": self.head_dim + 4, "int4": self.head_dim * 9 / 16 + 4}[self.cache]
        return 2.0 * self.batch * self.num_kv_heads * self.seqlen_k * row

    def title(self) -> str:
        """The problem in words, as the tables print it."""
        if self.kind == "loop":
            return "6 x 3 input, three 3 x 4 projections, attention"
        shared = "" if self.num_kv_heads == self.num_heads else f" ({self.num_kv_heads} of k and v)"
        sizes: list[tuple[str, object]] = [("batch", self.batch)] if self.batch > 1 else []
        sizes += [("heads", f"{self.num_heads}{shared}")]
        if self.seqlen_q == self.seqlen_k:
            sizes += [("seqlen", self.seqlen_q)]
        else:
            sizes += [("queries", self.seqlen_q), ("keys", self.seqlen_k)]
        sizes += [("width", self.width)] if self.module else [("head_dim", self.head_dim)]
        return ", ".join([f"{name} {value}" for name, value in sizes] + list(self._options()))

    def _options(self) -> Iterator[str]:
        if self.dtype != "f32":
            yield self.dtype
        if self.causal:
            yield "causal" if self.seqlen_q == self.seqlen_k or self.decode else f"causal {self.causal}"
        if self.has_window:
            yield f"window {self.window}"
        if self.documents:
            yield f"{self.documents} documents"
        if self.lengths:
            yield "lengths of keys"
        if self.mask:
            yield f"{'bool' if self.mask == 'bool' else 'float'} mask"
        if self.softcap:
            yield f"softcap {self.softcap:g}"
        if self.dropout_p:
            yield f"dropout {self.dropout_p:g}"
        if self.needs_gradients:
            yield "backward" if self.kind == "backward" else "forward and backward"
        if self.cache:
            yield f"cache of {self.cache}"
        if self.inside:
            yield f"inside {INSIDE[self.inside]}"


def visible_range(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The first key that each row sees by causal and window, and the end of its keys: int64 [seqlen_q] each."""
    offset = problem.seqlen_k - problem.seqlen_q if problem.causal == "bottom_right" else 0
    position = np.arange(problem.seqlen_q) + offset
    left, right = problem.window
    first, end = np.zeros(problem.seqlen_q, np.int64), np.full(problem.seqlen_q, problem.seqlen_k)
    if problem.causal:
        right = min(right, 0) if right >= 0 else 0
    if right >= 0:
        end = np.minimum(end, position + right + 1)
    if left >= 0:
        first = np.maximum(first, position - left)
    return first, end


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < least:
            raise ValueError(f"expected a whole number from {least} on")
        return int(text)

    return read


def _number(below: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 <= number < below:
            raise ValueError("expected a probability below 1" if below == 1 else "expected 0 or a positive number")
        return number

    return read


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return text

    return read


def _window(text: str) -> tuple[int, int]:
    left, comma, right = text.partition(",")
    if not comma:
        raise ValueError("expected two whole numbers from -1 on with , between them")
    return _whole(-1)(left), _whole(-1)(right)


_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "b": ("batch", _whole(1)),
    "h": ("num_heads", _whole(1)),
    "hkv": ("num_kv_heads", _whole(1)),
    "sq": ("seqlen_q", _whole(1)),
    "sk": ("seqlen_k", _whole(1)),
    "d": ("head_dim", _whole(1)),
    "dtype": ("dtype", _one_of(*DTYPES)),
    "causal": ("causal", _one_of("none", "top_left", "bottom_right")),
    "window": ("window", _window),
    "mask": ("mask", _one_of("bool", "f32")),
    "docs": ("documents", _whole(1)),
    "softcap": ("softcap", _number(float("inf"))),
    "dropout": ("dropout_p", _number(1)),
    "inside": ("inside", _one_of(*INSIDE)),
    "cache": ("cache", _one_of(*CACHES)),
}
_FLAGS = ("module", "lengths", "decode", "memory")


def _option_words() -> list[str]:
    """The words of all options of attention in bench/shapes.txt."""
    from saccade import _core  # not at the top, because the processes of other peers import this file too

    return [word for *_, word, _ in _core.option_table()]


def parse_problems(line: str) -> list[Problem]:
    """The problem of a line, or several where ``s=`` is a list.

    :raises NotImplementedError: for a word of bench/shapes.txt that is not compared with other libraries.
    :raises ValueError: names the word and what was wanted.
    """
    fields: dict[str, Any] = {}
    lengths: list[int] = []
    for word in line.split():
        key, equals, value = word.partition("=")
        try:
            if not equals and key in KINDS:
                fields["kind"] = key
            elif not equals and key in _FLAGS:
                fields[key] = True
            elif equals and key == "s":
                lengths = [_whole(1)(part) for part in value.split(",")]
            elif equals and key in _KEYS:
                field, read = _KEYS[key]
                fields[field] = read(value)
            elif key in _option_words():
                raise NotImplementedError(f"{word}: not compared with other libraries")
            else:
                wanted = ", ".join(["s=", *(f"{name}=" for name in _KEYS), *KINDS, *_FLAGS])
                raise ValueError(f"expected one of the words {wanted}")
        except ValueError as error:
            raise ValueError(f"{word}: {error}") from None
    return [_completed(dict(fields), length, len(lengths) > 1) for length in lengths or [None]]


def _completed(fields: dict[str, Any], length: int | None, curve: bool) -> Problem:
    if length is not None:
        fields["seqlen_q"] = length
    fields.setdefault("seqlen_k", fields.get("seqlen_q", 1))
    fields.setdefault("num_kv_heads", fields.get("num_heads", 1))
    if fields.get("causal") == "none":
        del fields["causal"]
    problem = Problem(**fields, curve=curve)
    if problem.num_heads % problem.num_kv_heads:
        raise ValueError(f"h={problem.num_heads} is no multiple of hkv={problem.num_kv_heads}")
    if problem.documents and (problem.batch != 1 or problem.seqlen_q != problem.seqlen_k):
        raise ValueError("docs= makes the batch, of documents that attend to themselves: no b=, sq= or sk=")
    if problem.module and problem.but(module=False, kind="forward", dropout_p=0.0) != Problem(
        batch=problem.batch,
        num_heads=problem.num_heads,
        num_kv_heads=problem.num_heads,
        seqlen_q=problem.seqlen_q,
        seqlen_k=problem.seqlen_q,
        head_dim=problem.head_dim,
    ):
        raise ValueError("module goes with b=, h=, s=, d= and train only")
    if problem.cache and problem != Problem(
        batch=problem.batch,
        num_heads=problem.num_heads,
        num_kv_heads=problem.num_kv_heads,
        seqlen_k=problem.seqlen_k,
        head_dim=problem.head_dim,
        causal="bottom_right",
        decode=True,
        cache=problem.cache,
    ):
        raise ValueError("cache= goes with b=, h=, hkv=, sq=1, sk=, d=, causal=bottom_right and decode only")
    return problem


def read_problems(path: pathlib.Path, note: Callable[[str], None]) -> list[Problem]:
    """The problems of a file; '#' begins a comment, empty lines are ignored.

    :param note: is called for lines that are left out because they cannot be compared.
    :raises ValueError: with the file's name and the number of the line.
    """
    problems: list[Problem] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        try:
            problems += parse_problems(words)
        except NotImplementedError as error:
            note(f"{path}:{number}: left out: {error}")
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return problems
