"""Compares saccade with other libraries; ``script/bench --peers`` calls it. See :mod:`peers`."""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import processors

from . import curves, machine, pages, plots, report
from .problem import Problem, read_problems
from .process import FOLDER, Failed, PeerProcess
from .timing import QUICK, USUAL, Line, Prepared, Quiet, measured_limits, memory, prepare, take_turns

# Of the columns; other libraries follow.
ORDER = ("saccade", "torch", "onnxruntime", "openvino", "llama_cpp", "jax", "numpy")


def note(text: str) -> None:
    """Prints a line of progress."""
    print(text, file=sys.stderr, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/bench --peers", description=__doc__)
    parser.add_argument("--threads", default="", metavar="N,...", help="numbers of threads; without, 1 and all cores")
    parser.add_argument("--shapes", action="append", type=pathlib.Path, metavar="FILE", help="the problems, one a line")
    parser.add_argument("--only", default="", metavar="PEER,...", help="these libraries only, by their files' names")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--resume", action="store_true", help="measure only what results.json of this commit lacks")
    parser.add_argument("--command", metavar="PATH", help="the saccade command, for the machine's limits")
    parser.add_argument("--loop", type=pathlib.Path, metavar="PATH", help="the library of fixed_loop.cpp")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER", help="for results.json and logs")
    parser.add_argument(
        "--pages", type=pathlib.Path, required=True, metavar="FOLDER", help="for the page and the index"
    )
    parser.add_argument(
        "--readme", action="append", type=pathlib.Path, default=[], metavar="FILE", help="a page with a table of all"
    )
    parser.add_argument(
        "--from", dest="results", type=pathlib.Path, metavar="FILE", help="write the page of a results.json"
    )
    return parser.parse_args()


def available_peers(only: str) -> list[str]:
    """The names of the peers, in the order of the columns."""
    names = sorted(path.name[: -len("_peer.py")] for path in FOLDER.glob("*_peer.py"))
    names.sort(key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    wanted = only.split(",") if only else names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise ValueError(f"--only: {unknown[0]} is none of {', '.join(names)}")
    return [name for name in names if name in wanted or name == "saccade"]


def thread_counts(text: str) -> list[int]:
    processors = machine.processors()
    if not text:
        return sorted({1, machine.core_count(processors)})
    counts = [int(part) if part.isdigit() else 0 for part in text.split(",")]
    if not all(1 <= count <= len(processors) for count in counts):
        raise ValueError(f"--threads: expected numbers from 1 to {len(processors)}, got {text}")
    return sorted(set(counts))


def groups(problems: Sequence[Problem]) -> Iterator[list[Problem]]:
    """The problems in their order, those that are timed together in one list: neighbours that differ only in the
    format of their cache."""
    for _, of in itertools.groupby(enumerate(problems), lambda item: item[1].but(cache="") if item[1].cache else item):
        yield [problem for _, problem in of]


class Session:
    """One run: its peers and its results, which are saved to a file after each line."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.names = available_peers(arguments.only)
        self.threads = thread_counts(arguments.threads)
        files = arguments.shapes or [FOLDER / "shapes.txt", FOLDER / "caches.txt"]
        self.problems = [problem for path in files for problem in read_problems(path, note)]
        self.run = report.Run(
            machine.description(),
            report.today(),
            arguments.quick,
            processor=processors.this_name(),
            commit=machine.commit(),
        )
        self.timed = self.busy = 0.0  # seconds, and processor seconds of other processes meanwhile
        if arguments.resume:
            self.resume()

    def resume(self) -> None:
        """Takes over the lines of an earlier run.

        :raises ValueError: if it was of something else.
        """
        path = self.arguments.out / "results.json"
        if not path.exists():
            return
        earlier = report.Run.from_json(json.loads(path.read_text()))
        for name in ("machine", "quick", "processor", "commit"):
            was, now = getattr(earlier, name), getattr(self.run, name)
            if was != now:
                raise ValueError(f"--resume: {path} has {name} {was!r}, not {now!r}")
        self.run.lines = [line for line in earlier.lines if line.problem in self.problems]
        self.timed, self.busy = earlier.timed, earlier.others * earlier.timed

    def measure(self) -> report.Run:
        """Measures everything, with the fewest threads first."""
        has = {(line.problem, line.threads) for line in self.run.lines}
        wanted = [
            (p, threads) for threads in self.threads for p in self.problems_of(threads) if (p, threads) not in has
        ]
        done = 0
        for threads in self.threads:
            peers, quiet = self.start_peers(threads), Quiet(threads)
            for loop in (loop for line in self.run.lines if line.threads == threads for loop in line.loops):
                quiet.see(loop)
            for together in groups([problem for problem, of in wanted if of == threads]):
                lines = self.lines_of(together, threads, peers, quiet)
                self.run.lines += lines
                self.save()
                for line in lines:
                    done += 1
                    note(f"[{done}/{len(wanted)}] {_progress(line, self.run.titles)}")
            for peer in peers.values():
                peer.stop()
        # In the order of the shape file, with all numbers of threads of a problem together.
        order = {problem: i for i, problem in enumerate(self.problems)}
        self.run.lines.sort(key=lambda line: (order[line.problem], line.threads))
        self.save()
        return self.run

    def problems_of(self, threads: int) -> list[Problem]:
        """The loop runs with the fewest threads only, curves and memory with the most only."""
        fewest, most = self.threads[0], self.threads[-1]
        return [
            problem
            for problem in self.problems
            if threads == (fewest if problem.kind == "loop" else most if problem.curve or problem.memory else threads)
        ]

    def start_peers(self, threads: int) -> Mapping[str, PeerProcess]:
        """The peers that can be started here; reports and leaves out the others."""
        own = machine.processors()[:threads]
        peers = {}
        for name in self.names:
            peer = PeerProcess(name, threads, own, self.arguments.out / f"{name}.log", self.arguments.loop)
            try:
                about = peer.ask("about")
            except Failed as error:
                note(f"{name} is left out: {error}")
                continue
            peers[name] = peer
            self.run.titles.setdefault(name, about["title"])
            self.run.versions.update(about["versions"])
            self.run.isa = about["details"].get("isa", self.run.isa)
        if "saccade" not in peers:
            raise ValueError("saccade itself does not start")
        return peers

    def lines_of(
        self, problems: Sequence[Problem], threads: int, peers: Mapping[str, PeerProcess], quiet: Quiet
    ) -> list[Line]:
        """The lines of problems that are timed together."""
        if problems[0].memory:
            return [Line(problem, threads, memory(problem, peers)) for problem in problems]
        lines = [Line(problem, threads, {}) for problem in problems]
        prepared = [prepare(problem, peers, beside=i > 0) for i, problem in enumerate(problems)]
        self.fill_in(lines, prepared, peers, quiet)
        return lines

    def fill_in(
        self, lines: Sequence[Line], prepared: Sequence[Prepared], peers: Mapping[str, PeerProcess], quiet: Quiet
    ) -> None:
        """Times the lines, which have the same number of threads."""
        threads = lines[0].threads
        own = [peer.process.pid for peer in peers.values() if peer.process]
        before = self.limits(threads)
        neighbours = machine.Neighbours(own)
        samples = take_turns(prepared, peers, QUICK if self.arguments.quick else USUAL, quiet)
        wall, busy = neighbours.seconds()
        after = self.limits(threads)
        self.timed, self.busy = self.timed + wall, self.busy + busy
        for line, of, taken in zip(lines, prepared, samples):
            # Other programs on the machine can only lower the measured limits.
            line.limits = before and {name: max(before[name], after[name]) for name in before}
            line.cells, line.loops = of.cells, [float(f"{sample.loop:.4g}") for sample in taken]
            line.clocks = [float(f"{sample.clock:.4g}") for sample in taken]

    def limits(self, threads: int) -> dict[str, float] | None:
        return measured_limits(self.arguments.command, threads, machine.processors()[:threads])

    def save(self) -> None:
        self.run.timed, self.run.others = self.timed, self.busy / self.timed if self.timed else 0.0
        (self.arguments.out / "results.json").write_text(json.dumps(self.run.to_json(), indent=1) + "\n")


def _progress(line: Line, titles: Mapping[str, Any]) -> str:
    rival, ratio = line.best_rival(), line.ratio()
    text = f"{line.threads} thread{'s' * (line.threads != 1)}, {line.problem.title()}: "
    text += f"saccade {report.amount_text(line, 'saccade') or 'does not take part'}"
    reasons = line.cells["saccade"].reasons if line.amount("saccade") is None else {}
    text += "".join(f" ({reason})" for reason in reasons.values())
    if rival:
        text += f", best of the others {titles[rival]} {report.amount_text(line, rival)}"
    return text + (f", {ratio:.2f} times as much" if ratio else "")


def main() -> None:
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        if arguments.results:
            run = report.Run.from_json(json.loads(arguments.results.read_text()))
        else:
            run = Session(arguments).measure()
    except (OSError, ValueError) as error:
        sys.exit(f"script/bench: {error}")
    page = arguments.pages / f"{processors.file_name(run.processor)}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(report.markdown(run, plots.draw(curves.curves_of(run), page.with_suffix(""))))
    pages.update(arguments.pages, arguments.readme)
    for section in report.SECTIONS:
        lines = [line for line in report.table_lines(run) if report.section_of(line.problem) == section]
        if lines:
            print(f"\n{section}\n\n" + "\n".join(report.table(run, lines)))
            if lines[0].problem.cache:
                print("\n" + "\n".join(report.caches_table(run, lines)))
    print(f"\n{report.summary(run)}\n{page}")


if __name__ == "__main__":
    main()
