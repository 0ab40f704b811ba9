"""The page of a processor in docs/benchmarks: the tables and the text around them."""

from __future__ import annotations

import dataclasses
import datetime
import statistics
from collections.abc import Iterable, Mapping, Sequence

from . import curves
from .problem import Problem
from .timing import Cell, Line


@dataclasses.dataclass
class Run:
    """All results of one run."""

    machine: str
    date: str
    quick: bool
    processor: str = ""  # as bench/processors.py names it
    commit: str = ""  # the last one that changed what is measured
    isa: str = ""  # the instruction set level that saccade used
    timed: float = 0.0  # seconds in which peers were timed
    others: float = 0.0  # processors that other processes kept busy meanwhile, on average
    titles: dict[str, str] = dataclasses.field(default_factory=dict)  # of the peers by name, in column order
    versions: dict[str, str] = dataclasses.field(default_factory=dict)  # of distributions
    lines: list[Line] = dataclasses.field(default_factory=list)

    def to_json(self) -> dict:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping) -> Run:
        lines = [
            Line(
                problem=Problem(**{**line["problem"], "window": tuple(line["problem"]["window"])}),
                threads=line["threads"],
                cells={name: Cell(**cell) for name, cell in line["cells"].items()},
                limits=line["limits"],
                loops=line["loops"],
                clocks=line["clocks"],
            )
            for line in data["lines"]
        ]
        return cls(**{**data, "lines": lines})


def today() -> str:
    return datetime.date.today().isoformat()


SECTIONS = (
    "Plain attention",
    "Masks, windows, packed documents",
    "A new token and its cache",
    "Gradients",
    "From Python: the published loop and the whole module",
    "Memory",
    "Inside other libraries",
    "Quantized caches",
)


def section_of(problem: Problem) -> str:
    """The section whose table lists a problem."""
    if problem.cache:
        return SECTIONS[7]
    if problem.inside:
        return SECTIONS[6]
    if problem.memory:
        return SECTIONS[5]
    if problem.kind == "loop" or problem.module:
        return SECTIONS[4]
    if problem.needs_gradients:
        return SECTIONS[3]
    if problem.decode:
        return SECTIONS[2]
    is_cut = problem.mask or problem.has_window or problem.documents or problem.lengths or problem.softcap
    return SECTIONS[1] if is_cut or problem.seqlen_q != problem.seqlen_k else SECTIONS[0]


def table_lines(run: Run) -> list[Line]:
    """The lines of tables: all except points of curves, plus the last point of each memory curve."""
    return [
        line
        for i, line in enumerate(run.lines)
        if not line.problem.curve
        or line.problem.memory
        and not any(_same_curve(line.problem, other.problem) for other in run.lines[i + 1 :])
    ]


def _same_curve(a: Problem, b: Problem) -> bool:
    return a.but(seqlen_q=0, seqlen_k=0) == b.but(seqlen_q=0, seqlen_k=0)


def time_text(seconds: float) -> str:
    """Three digits and a unit."""
    for factor, unit in ((1e9, "ns"), (1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds)} s"


def bytes_text(amount: float) -> str:
    return f"{_digits(amount / 2**20)} MiB" if amount < 1000 * 2**20 else f"{_digits(amount / 2**30)} GiB"


def _digits(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def amount_text(line: Line, name: str) -> str:
    """The time or memory of a peer, as its cell shows it."""
    amount = line.amount(name)
    if amount is None:
        return ""
    text = bytes_text(amount) if line.problem.memory else time_text(amount)
    return text + (f" {NOISY}" if line.cells[name].is_noisy else "")


NOISY = "~"  # marks a figure for which too few samples were undisturbed
AHEAD, BEHIND = "ahead", "**behind**"


def summary(run: Run) -> str:
    """How many lines saccade leads, and the lines where it does not."""
    compared = [line for line in table_lines(run) if line.ratio() is not None]
    behind = [line for line in compared if line.ratio() < 1]
    text = f"saccade takes the least on {len(compared) - len(behind)} of {len(compared)} lines"
    if not behind:
        return text + "."
    listed = [f"{_where(line)} ({run.titles[line.best_rival()]}, {line.ratio():.2f})" for line in behind]
    return f"{text}. It does not on: {'; '.join(listed)}."


def _where(line: Line) -> str:
    return f"{line.problem.title()}, {line.threads} thread{'s' * (line.threads != 1)}"


def table(run: Run, lines: Sequence[Line]) -> list[str]:
    """A Markdown table, with a column for each peer that has a figure in at least one line."""
    names = [name for name in run.titles if any(line.amount(name) is not None for line in lines)]
    is_decode, is_memory = lines[0].problem.decode, lines[0].problem.memory
    has_shares = any(line.share("saccade") is not None for line in lines)
    heads = ["problem", "threads", "saccade"]
    heads += ["of bandwidth" if is_decode else "of peak"] if has_shares else []
    heads += [run.titles[name] for name in names if name != "saccade"]
    heads += ["best other / saccade", "saccade is"]
    rows = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for line in lines:
        share, ratio = line.share("saccade"), line.ratio()
        title = line.problem.title() + (", called once" if is_memory else "")
        cells = [title, str(line.threads), amount_text(line, "saccade")]
        cells += ["" if share is None else f"{share:.3f}"] if has_shares else []
        cells += [amount_text(line, name) for name in names if name != "saccade"]
        cells += ["", ""] if ratio is None else [f"{ratio:.2f}", AHEAD if ratio >= 1 else BEHIND]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def ways_table(run: Run) -> list[str]:
    """How each peer computed each problem, with the most threads; or why it did not."""
    names = [name for name in run.titles]
    last: dict[Problem, Line] = {line.problem: line for line in table_lines(run) if not line.problem.memory}
    rows = ["| problem | " + " | ".join(run.titles[name] for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for problem, line in last.items():
        cells = [line.cells[name].way or _reason(line.cells[name]) for name in names if name in line.cells]
        rows.append(f"| {problem.title()} | " + " | ".join(cells) + " |")
    return rows


def caches_table(run: Run, lines: Sequence[Line]) -> list[str]:
    """The best time and the median of each library for each format of a cache, and how many times saccade's median
    that median is."""
    names = [name for name in run.titles if any(line.amount(name) is not None for line in lines)]
    heads = ["cache", "threads", *(run.titles[name] for name in names)]
    rows = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for line in lines:
        own, cells = line.amount("saccade"), [str(line.problem.cache), str(line.threads)]
        for name in names:
            cell = line.cells.get(name)
            if cell is None or cell.seconds is None or cell.best is None:
                cells.append("")
                continue
            text = f"{time_text(cell.best)}, {amount_text(line, name)}"
            cells.append(text + (f": {cell.seconds / own:.2f} times" if own and name != "saccade" else ""))
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def loop_note(run: Run, line: Line) -> str:
    """The time of the loop for each way of the others, and in C++."""
    own = line.amount("saccade")
    ways = [
        f"{run.titles[name]}, {way}: {time_text(seconds)}" + (f" ({seconds / own:.1f} times saccade's)" if own else "")
        for name, cell in line.cells.items()
        if name != "saccade"
        for way, seconds in sorted(cell.ways.items(), key=lambda item: -item[1])
    ]
    text = f"The loop in each way: {'; '.join(ways)}. " if ways else ""
    if line.limits:
        seconds = 1 / line.limits["loops_per_second"]
        text += f"In C++ an iteration of saccade's loop takes {time_text(seconds)} (`saccade bench --only loop`)."
    return text


def _reason(cell: Cell) -> str:
    """Why a peer has no figure: its own reason, or that of its first way."""
    reasons = list(cell.reasons.values())
    return f"*{reasons[0]}*".replace("|", "/") if reasons else ""


def pictures(made: Iterable[str]) -> list[str]:
    """Links to the pictures, with captions."""
    captions = {
        "speed": "Billions of operations a second over the length of the sequence, with the most threads",
        "share": "Share of the peak of multiply-adds of each dtype: saccade, and the best of the others",
        "memory": "The most memory that one call takes beyond its inputs",
    }
    lines: list[str] = []
    for name in made:
        caption = captions[name.rpartition("-")[2].partition(".")[0]]
        lines += ["", f"![{caption}]({name})"]
    return lines


def markdown(run: Run, made: Iterable[str]) -> str:
    """The whole page. Its pictures, ``made``, are beside it."""
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    lines = [f"# Compared with other libraries: {run.processor}", "", _INTRODUCTION, ""]
    lines += [f"**Processor:** {run.processor}, instruction set level {run.isa or 'unknown'}.", ""]
    lines += [f"**Machine:** {run.machine}. {_peaks(run)}", ""]
    lines += [f"**Versions:** {versions}.", ""]
    lines += [f"**Threads:** {_threads(run)}.", ""]
    lines += [f"**Date:** {run.date}{', --quick' if run.quick else ''}, {_commit(run)}.", ""]
    lines += [f"**Noise:** {noise(run)}", ""]
    lines += [f"**Result:** {summary(run)}", *pictures(made), ""]
    for section in SECTIONS:
        of_section = [line for line in table_lines(run) if section_of(line.problem) == section]
        if of_section:
            lines += [f"## {section}", "", *table(run, of_section), ""]
            lines += [_NOTES[section], ""] if section in _NOTES else []
            lines += [*caches_table(run, of_section), ""] if section == SECTIONS[7] else []
            for line in of_section:
                lines += [loop_note(run, line), ""] if line.problem.kind == "loop" else []
    of_curves = curves.curves_of(run)
    if of_curves:
        lines += [f"## {curves.SECTION}", "", _CURVES, "", *curves.tables(of_curves)]
    lines += [_METHOD, "", "## Ways", "", _WAYS, "", *ways_table(run), ""]
    return "\n".join(lines)


def _commit(run: Run) -> str:
    if not run.commit:
        return "of no known commit"
    return f"commit {run.commit.rstrip('+')}" + (" with changes" if run.commit.endswith("+") else "")


def _threads(run: Run) -> str:
    """With how many threads times and memory were measured."""
    texts = []
    for what, is_memory in (("times", False), ("memory", True)):
        of = sorted({line.threads for line in run.lines if line.problem.memory == is_memory})
        if of:
            texts.append(f"{what} with {' and '.join(map(str, of))}")
    return "; ".join(texts)


def _peaks(run: Run) -> str:
    """The measured limits for each number of threads, with their range in the run."""
    found: dict[int, list[Mapping[str, float]]] = {}
    for line in run.lines:
        if line.limits:
            found.setdefault(line.threads, []).append(line.limits)
    texts = []
    for threads, limits in sorted(found.items()):
        text = f"{threads} thread{'s' * (threads != 1)}: {_range(limits, 'peak_gflops')} GFLOP/s of f32 multiply-adds"
        if all(of.get("bf16_peak_gflops") for of in limits):
            text += f", {_range(limits, 'bf16_peak_gflops')} of bf16 pairs"
        texts.append(f"{text}, {_range(limits, 'read_gbytes')} GB/s read from memory")
    return f"Measured with each line, lowest to highest: {'; '.join(texts)}." if texts else ""


def _range(limits: Sequence[Mapping[str, float]], name: str) -> str:
    low, high = (f"{pick(of[name] for of in limits):.0f}" for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def noise(run: Run) -> str:
    """How much of the run was disturbed."""
    cells = [cell for line in run.lines for cell in line.cells.values()]
    samples, disturbed = sum(cell.samples for cell in cells), sum(cell.disturbed for cell in cells)
    noisy = sum(cell.is_noisy for line in table_lines(run) for cell in line.cells.values())
    loops = sorted(loop for line in run.lines for loop in line.loops if loop)
    clocks = sorted(clock for line in run.lines for clock in line.clocks if clock)
    text = f"{disturbed} of {samples} samples were disturbed and left out"
    text += f", except in {noisy} figures, marked {NOISY}, with too few others. " if noisy else ". "
    if loops:
        spread = ", ".join(f"{loop / loops[0]:.2f}" for loop in (statistics.median(loops), loops[-1]))
        text += f"The fixed loop took (median, longest) {spread} times its best. "
    else:
        text += "No fixed loop was timed. "
    if clocks:
        text += f"Clock (lowest, median, highest): {', '.join(f'{clock / 1e9:.2f}' for clock in _spread(clocks))} GHz. "
    if run.others < 0.1:
        return text + "Nothing else ran."
    return f"{text}Other processes kept {run.others:.1f} processors busy meanwhile."


def _spread(of: Sequence[float]) -> tuple[float, float, float]:
    return of[0], statistics.median(of), of[-1]


_INTRODUCTION = f"""\
`script/bench --peers` made this page, one of [several](README.md): every library below on the same inputs, the same
cores and the same number of threads, alternating in one run, each result checked first. Times are medians of a call
from Python. The last two columns: the time of the fastest other library divided by saccade's, and whether that is 1 or
more ({AHEAD}) or less ({BEHIND}); at ratios within a few hundredths of 1, another run may show the opposite."""

_NOTES = {
    SECTIONS[1]: """\
Half of a mask's entries are hidden at random, so that no block can be skipped. Libraries without an argument for a
window, for lengths or for documents get an equivalent mask, built before the timing starts.""",
    SECTIONS[2]: """\
One query and k, v of a cache, the same in each call: if they fit the last-level cache, they may stay there. The
share is of the bandwidth of main memory, so it can then exceed 1.""",
    SECTIONS[3]: """\
Backward only: the forward pass, including what it stores, is not timed. ONNX Runtime and OpenVINO have no
gradients.""",
    SECTIONS[5]: """\
The peak memory of a process during one call, less its memory before the call, which includes inputs, libraries and
compiled code (VmHWM and VmRSS of Linux), with the most threads.""",
    SECTIONS[6]: """\
saccade called from the other library's programs ([JAX](../jax.md), [ONNX Runtime](../onnxruntime.md)), compared with
that library's own function.""",
    SECTIONS[7]: """\
One new token over a [cache](../quantized-caches.md) of each library's own format of 16, 8 or 4 bits a number, named
below. Calls read several equal caches by turns, so that little of a cache is still in the processor's caches when its
turn comes. All formats of all libraries are timed alternately. Results may differ from attention over the given
numbers by 3 %, 5 % and 50 % of their root mean square. The second table: the best time, the median, and how many times
saccade's median that is.""",
}

_CURVES = "The figures of the pictures above."

_METHOD = """\
## How it is measured

- **Separate processes.** Each library has its own process, so threads, allocators and settings cannot interfere. Each
  process is bound to one processor per thread, each on its own core, and the library is set to that number of threads.
- **Checked first.** Rows of each result (all of them, for gradients of a head) are compared with an f64 reference
  written in NumPy ([reference.py](../../bench/peers/reference.py)) by the rule that saccade's own tests use
  ([compare.h](../../include/saccade/compare.h)). Calls whose results fail are not timed. Results with dropout are
  compared without it, because every library draws differently.
- **Alternating.** Each library runs for at least 50 ms per turn, and the next turn begins when its process is idle:
  waiting threads have gone to sleep, and memory has been freed. At least five turns and 0.6 s each (`--quick`: three,
  0.15 s). Short calls are repeated within a turn, after one warm-up call.
- **Undisturbed.** Before and after each turn, a loop of a fixed number of multiply-adds is timed on each of the
  processors ([fixed_loop.cpp](../../bench/peers/fixed_loop.cpp)). A turn is disturbed if the loop took more than 1.1
  times its best of the run, because of another program, a busy hyperthread of the same core or a lower clock; or if,
  on one thread, the process had less than 0.95 of the processor time that it has otherwise; or if other programs had
  its processors for more than a twentieth of the time. Disturbed turns are left out, and up to twice as many turns are
  taken to have enough others.
- **The best way counts.** If a library can compute a problem in several ways, the fastest is shown and
  [named below](#ways). Inputs have the layout that suits the library best; masks are built, models compiled and
  outputs bound beforehand if it supports that.
- **saccade** is called as its users call it, with NumPy arrays or, where that is faster, PyTorch tensors, and allocates
  its results. The share of the peak is that of multiply-adds, which `saccade bench` measures right before and after
  each problem; the larger of the two counts. Operations are those of `saccade.attention_flops`: a pair of query
  and key counts where the query sees the key by causal, window, lengths and documents, whatever a mask says."""

_WAYS = """\
The function called for each line (with the most threads), or in italics the reason why there is no figure.
[bench/peers](../../bench/peers) has a file for each library; adding a file adds a column."""
