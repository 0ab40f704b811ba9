"""The parts of `script/bench --peers`: problems as text, the f64 reference, and the page that it writes."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import processors  # noqa: E402
from peers import curves, machine, pages, peer, plots, process, report, saccade_peer, timing, worker  # noqa: E402
from peers.__main__ import groups  # noqa: E402
from peers.inputs import draw  # noqa: E402
from peers.problem import Problem, parse_problems, read_problems  # noqa: E402
from peers.reference import difference, expected_results  # noqa: E402

SHAPES = tuple(ROOT / "bench" / "peers" / name for name in ("shapes.txt", "caches.txt"))


def problems(*paths: pathlib.Path) -> list[Problem]:
    return [problem for path in paths or SHAPES for problem in read_problems(path, lambda text: None)]


@pytest.fixture
def few_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of a problem read 1 MiB of caches by turns, however large this processor's own is."""
    monkeypatch.setattr(peer, "MOST_BYTES", 2**20)


def small(problem: Problem) -> Problem:
    """The same with short sequences."""
    if problem.kind == "loop":
        return problem
    window = tuple(min(side, 20) for side in problem.window)
    seqlen_q, seqlen_k = (max(1, min(length // 16, 100)) for length in (problem.seqlen_q, problem.seqlen_k))
    return problem.but(
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        window=window,
        documents=min(problem.documents, 3),
        num_heads=4,
        num_kv_heads=4 * problem.num_kv_heads // problem.num_heads,
    )


def small_problems() -> list[Problem]:
    shrunk = [small(problem.but(curve=False, memory=False)) for problem in problems()]
    return list(dict.fromkeys(shrunk))


def test_every_kind_of_line_is_in_the_shape_file() -> None:
    of = problems()
    assert {problem.kind for problem in of} == {"forward", "backward", "train", "loop"}
    for field in ("module", "memory", "curve", "decode", "lengths", "documents", "softcap", "dropout_p", "has_window"):
        assert any(getattr(problem, field) for problem in of), field
    assert {problem.mask for problem in of} == {None, "bool", "f32"}
    assert {problem.cache for problem in of} == {None, "bf16", "int8", "int4"}


def test_a_list_of_lengths_is_a_curve() -> None:
    points = parse_problems("h=2 s=8,16 d=4 causal=top_left")
    assert [(p.seqlen_q, p.seqlen_k, p.curve) for p in points] == [(8, 8, True), (16, 16, True)]
    assert parse_problems("s=8") == [Problem(seqlen_q=8, seqlen_k=8)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h=0", "h=0: expected a whole number from 1 on"),
        ("dtype=f8", "dtype=f8: expected one of f32, bf16, f16"),
        ("foo", "foo: expected one of the words"),
        ("window=3", "window=3: expected two whole numbers"),
        ("dropout=1", "dropout=1: expected a probability below 1"),
        ("h=3 hkv=2", "h=3 is no multiple of hkv=2"),
        ("docs=2 b=2 s=8", "docs= makes the batch"),
        ("module h=2 s=8 causal=top_left", "module goes with"),
        ("sq=1 sk=8 cache=int9", "cache=int9: expected one of bf16, int8, int4"),
        ("sq=2 sk=8 causal=bottom_right decode cache=int8", "cache= goes with"),
    ],
)
def test_wrong_words_are_named(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_problems(line)


def test_the_shapes_of_the_command_are_read_but_for_what_nobody_else_has(tmp_path: pathlib.Path) -> None:
    notes: list[str] = []
    assert read_problems(ROOT / "bench" / "shapes.txt", notes.append)
    assert notes and all("not compared with other libraries" in note for note in notes)
    (tmp_path / "shapes").write_text("# nothing\n\ns=8\ns=-1\n")
    with pytest.raises(ValueError, match=r"shapes:4: s=-1"):
        problems(tmp_path / "shapes")


@pytest.mark.parametrize(
    "line",
    [
        "s=40 causal=top_left",
        "s=40 window=5,2",
        "sq=7 sk=20 causal=bottom_right",
        "s=64 docs=5",
        "s=64 docs=5 causal=top_left",
        "b=3 s=16 lengths",
    ],
)
def test_operations_are_those_of_the_visible_pairs(line: str) -> None:
    (problem,) = parse_problems("h=2 d=8 " + line)
    rule = draw(problem).hidden_rule()
    pairs = np.broadcast_to(rule, (problem.batch, 1, problem.seqlen_q, problem.seqlen_k)).sum()
    assert problem.flops() == 4.0 * 2 * 8 * pairs
    assert problem.but(kind="train").flops() == 3.5 * problem.flops()


@pytest.mark.usefixtures("few_caches")
@pytest.mark.parametrize("problem", small_problems(), ids=Problem.title)
def test_saccade_agrees_with_the_reference(problem: Problem) -> None:
    of = problem.but(dropout_p=0.0)
    if of.inside:
        pytest.importorskip(f"saccade_{of.inside}")
    inputs, compared = draw(of), 0
    for way in saccade_peer.ways(of):
        call = way.prepare(inputs)
        with call.context():
            results = call.results(call.run())
        for name, expected in expected_results(inputs):
            assert difference(results[name], expected, of.dtype, of.needs_gradients) <= 1, (way.name, name)
            wrong = results[name].astype(np.float64) + 0.2
            assert difference(wrong, expected, of.dtype, of.needs_gradients) > 1
            compared += 1
    assert compared >= len({name for name, _ in expected_results(inputs)})


@pytest.mark.parametrize(("cache", "share"), [("bf16", 0.02), ("int8", 0.04), ("int4", 0.4)])
def test_results_over_caches_may_be_off_by_the_rounding_of_their_format(cache: str, share: float) -> None:
    (problem,) = parse_problems(f"h=2 sq=1 sk=40 d=16 causal=bottom_right decode cache={cache}")
    for _, expected in expected_results(draw(problem)):
        out = np.zeros((1, 2, 1, 16), np.float32)
        for factor, agrees in ((1.0, True), (1 + share, True), (1 + 2 * share, False), (np.nan, False)):
            out[expected.where] = factor * expected.reference
            assert (difference(out, expected, "f32", False) <= 1) == agrees, factor


def test_calls_read_several_caches_by_turns_that_exceed_the_last_level_cache() -> None:
    called: list[int] = []
    run = peer.by_turns([functools.partial(called.append, i) for i in range(3)])
    for _ in range(4):
        run()
    assert called == [0, 1, 2, 0]
    (problem,) = parse_problems("h=2 sq=1 sk=65536 d=128 causal=bottom_right decode cache=int8")
    assert problem.kv_bytes() == 2 * 2 * 65536 * 132
    count, most = peer.cache_count(problem), min(4 * machine.last_level_cache(), peer.MOST_BYTES)
    assert count >= 2 and count * problem.kv_bytes() >= most


def test_formats_of_a_cache_are_timed_together() -> None:
    words = ["cache=bf16", "cache=int8", "", "cache=int4"]
    of = [parse_problems(f"h=2 sq=1 sk=40 d=16 causal=bottom_right decode {word}")[0] for word in words]
    longer = of[3].but(seqlen_k=41)
    assert list(groups([*of, longer, of[2], of[2]])) == [of[:2], [of[2]], [of[3]], [longer], [of[2]], [of[2]]]
    cells = [{"saccade": timing.Cell(), "torch": timing.Cell()} for _ in "ab"]
    prepared = [
        timing.Prepared(cells[0], {("saccade", "a"): 0.2, ("torch", "a"): 0.2}),
        timing.Prepared(cells[1], {("saccade", "b"): 0.2}),
    ]
    made_up = MadeUpPeer(samples_of([1.0, 1.05]))
    samples = timing.take_turns(prepared, {"saccade": made_up, "torch": made_up}, timing.USUAL, timing.Quiet(1))
    assert [len(taken) for taken in samples] == [10, 5]
    assert (cells[0]["saccade"].way, cells[1]["saccade"].way) == ("a", "b")
    assert cells[0]["saccade"].best == 0.2 and cells[0]["torch"].best == pytest.approx(0.21)
    assert cells[1]["torch"].seconds is None


@pytest.mark.usefixtures("few_caches")
def test_a_worker_keeps_what_is_timed_together(tmp_path: pathlib.Path) -> None:
    of = worker.Worker(saccade_peer)
    for cache in ("bf16", "int8"):
        (problem,) = parse_problems(f"h=4 hkv=2 sq=1 sk=40 d=16 causal=bottom_right decode cache={cache}")
        (tmp_path / cache).write_bytes(pickle.dumps(list(expected_results(draw(problem)))))
        answer = of.prepare(dataclasses.asdict(problem), str(tmp_path / cache), beside=cache == "int8")
        assert answer == {"ways": [f"KvCache of {cache}"], "left_out": {}}
    assert list(of.calls) == ["KvCache of bf16", "KvCache of int8"]
    of.forget(["KvCache of bf16"])
    assert list(of.calls) == ["KvCache of int8"]


def test_a_worker_times_what_agrees_and_says_what_does_not(tmp_path: pathlib.Path) -> None:
    (problem,) = parse_problems("h=2 s=16 d=8")
    expected = list(expected_results(draw(problem)))
    (tmp_path / "right").write_bytes(pickle.dumps(expected))
    wrong = [(name, of._replace(reference=of.reference + 1, naive=of.naive + 1)) for name, of in expected]
    (tmp_path / "wrong").write_bytes(pickle.dumps(wrong))
    of = worker.Worker(saccade_peer)
    answer = of.prepare(dataclasses.asdict(problem), str(tmp_path / "right"))
    assert answer == {"ways": ["scaled_dot_product_attention", "attention"], "left_out": {}}
    assert of.time("attention", 2, warm=True)["seconds"] > 0
    answer = of.prepare(dataclasses.asdict(problem), str(tmp_path / "wrong"))
    assert not answer["ways"] and all("times what is allowed" in reason for reason in answer["left_out"].values())


def test_a_process_that_dies_is_named_and_started_again(tmp_path: pathlib.Path) -> None:
    peer = process.PeerProcess("saccade", 1, machine.processors()[:1], tmp_path / "log")
    assert peer.ask("about")["title"] == "saccade"
    peer.process.kill()
    with pytest.raises(process.Failed, match="its process ended with status -9; see .*log"):
        peer.ask("about")
    assert peer.ask("about")["title"] == "saccade"
    with pytest.raises(process.Failed, match="its process ended with status 1"):
        peer.ask("nonsense")
    peer.stop()


def fixed_loop(folder: pathlib.Path) -> pathlib.Path:
    """The library of fixed_loop.cpp."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    options = ["-std=c++20", "-O2", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-Wall", "-Werror"]
    source, library = ROOT / "bench" / "peers" / "fixed_loop.cpp", folder / "libfixed_loop.so"
    subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
    return library


def test_a_sample_comes_with_a_fixed_loop_on_each_processor(tmp_path: pathlib.Path) -> None:
    own = machine.processors()[:2]
    seconds, clock = worker.FixedLoop(str(fixed_loop(tmp_path)), own).run()
    assert 1e-6 < seconds < 1
    assert clock == 0 or 1e8 < clock < 1e10
    assert worker.FixedLoop("", own).run() == (0.0, 0.0)
    if hasattr(os, "sched_getaffinity"):
        assert set(own) <= os.sched_getaffinity(0)  # only the loop's threads were bound to one


def test_the_busy_time_of_a_processor_grows_while_it_computes() -> None:
    own = machine.processors()
    if machine.busy_seconds() == 0:
        pytest.skip("the system does not count the busy time of processors")
    before, start = machine.busy_seconds(own), time.process_time()
    while time.process_time() - start < 0.2:
        pass
    assert machine.busy_seconds(own) - before >= 0.15
    assert machine.busy_seconds([]) == 0


def test_a_process_measures_its_loop_and_how_long_it_ran(tmp_path: pathlib.Path) -> None:
    library = fixed_loop(tmp_path)
    peer = process.PeerProcess("saccade", 1, machine.processors()[:1], tmp_path / "log", library)
    assert peer.ask("about")["details"] == {"isa": saccade_peer.saccade.info()["active_isa"]}
    (problem,) = parse_problems("h=2 s=16 d=8")
    (tmp_path / "expected").write_bytes(pickle.dumps(list(expected_results(draw(problem)))))
    peer.ask("prepare", problem=dataclasses.asdict(problem), expected=str(tmp_path / "expected"))
    sample = timing.Sample(calls=100, **peer.ask("time", way="attention", calls=100))
    peer.stop()
    assert sample.seconds > 0 and sample.loop > 0 and 0 < sample.running < 1.5 and sample.others >= 0


def samples_of(loops: list[float], running: float = 1.0) -> list[timing.Sample]:
    """Samples of 0.2 seconds, longer by as much as their loops."""
    return [timing.Sample(0.2 * loop, 1, running=running, loop=loop) for loop in loops]


def test_disturbed_samples_are_known_by_the_loop_and_by_the_processor() -> None:
    quiet = timing.Quiet(1)
    samples = samples_of([1.0, 1.05, 1.2, 3.0]) + samples_of([1.0], running=0.9)
    for sample in samples:
        quiet.see(sample.loop)
    assert quiet.undisturbed(samples) == samples[:2]
    # A library that waits does so without a disturbance, and several threads may wait for each other.
    waiting = samples_of([1.0, 1.0], running=0.5)
    assert quiet.undisturbed(waiting) == waiting
    two = timing.Quiet(2)
    two.see(1.0)
    assert two.undisturbed(samples) == samples[:2] + samples[4:]
    # Ticks of 10 ms say little about 0.03 s; 0.1 s are more than a twentieth of a second and three ticks.
    beside = [timing.Sample(seconds, 1, others=others, loop=1.0) for seconds in (0.05, 1.0) for others in (0.03, 0.1)]
    assert two.undisturbed(beside) == [beside[0], beside[2]]
    unknown = samples_of([0.0, 0.0])
    assert timing.Quiet(1).undisturbed(unknown) == unknown


class MadeUpPeer:
    """Answers requests for times with samples, one after the other, the last for ever."""

    def __init__(self, samples: list[timing.Sample]) -> None:
        self.samples, self.asked = samples, 0

    def ask(self, do: str, **arguments: object) -> dict[str, float]:
        assert do == "time"
        sample = self.samples[min(self.asked, len(self.samples) - 1)]
        self.asked += 1
        return {name: value for name, value in sample._asdict().items() if name != "calls"}


@pytest.mark.parametrize(
    ("loops", "asked", "disturbed", "median", "is_noisy"),
    [
        ([1.0], 5, 0, 0.2, False),
        ([1.0, 3.0, 3.0, 3.0, 1.0], 8, 3, 0.2, False),  # three more turns
        ([1.0, 3.0], 10, 9, 0.6, True),  # twice as many are too few: all count
    ],
)
def test_disturbed_samples_are_replaced(
    loops: list[float], asked: int, disturbed: int, median: float, is_noisy: bool
) -> None:
    peer, cell = MadeUpPeer(samples_of(loops)), timing.Cell()
    prepared = timing.Prepared({"saccade": cell}, {("saccade", "way"): 0.2})
    (samples,) = timing.take_turns([prepared], {"saccade": peer}, timing.USUAL, timing.Quiet(1))
    assert (len(samples), peer.asked, cell.samples) == (asked, asked, asked)
    assert (cell.disturbed, cell.is_noisy, cell.way) == (disturbed, is_noisy, "way")
    assert cell.seconds == pytest.approx(median)


def made_up_run() -> report.Run:
    """saccade twice as fast as PyTorch, except in one line."""
    run = report.Run("a machine", "2026-01-01", False, titles={"saccade": "saccade", "torch": "PyTorch", "jax": "JAX"})
    run.processor, run.isa, run.commit = "AMD Zen 9", "avx4096", "abc1234"
    run.versions = {"saccade": "1", "torch": "2"}
    limits = {"peak_gflops": 100.0, "bf16_peak_gflops": 200.0, "read_gbytes": 30.0, "loops_per_second": 4e6}
    for i, problem in enumerate(problems()):
        seconds = problem.flops() / 90e9
        cells = {
            "saccade": timing.Cell(seconds, 0.9 * seconds, bytes=2**20, samples=10, disturbed=2),
            "torch": timing.Cell(
                2 * seconds if i else seconds / 2, 1.5 * seconds, ways={"this way": 3 * seconds}, bytes=2**30
            ),
            "jax": timing.Cell(reasons={"": "no reason"}),
        }
        run.lines.append(timing.Line(problem, 1, cells, None if problem.memory else limits))
    run.lines[0].loops, run.lines[0].clocks = [1e-4, 1.1e-4, 3e-4], [3.0e9, 4e9, 4e9]
    run.lines[1].cells["torch"].is_noisy = True
    return run


def test_the_page_has_a_line_for_each_problem_and_names_where_saccade_is_behind() -> None:
    run = made_up_run()
    page = report.markdown(run, ["amd-zen-9-speed.svg"])
    first = run.lines[0].problem
    assert "**Processor:** AMD Zen 9, instruction set level avx4096." in page
    assert "**Threads:** times with 1; memory with 1." in page
    assert "**Date:** 2026-01-01, commit abc1234." in page
    count = len(run.lines)
    assert f"{2 * count} of {10 * count} samples were disturbed and left out, except in 1 figures, marked ~" in page
    assert (
        "took (median, longest) 1.10, 3.00 times its best. Clock (lowest, median, highest): 3.00, 4.00, 4.00 GHz"
        in page
    )
    assert "1 thread: 100 GFLOP/s of f32 multiply-adds, 200 of bf16 pairs, 30 GB/s read" in page
    assert (
        f"saccade takes the least on {len(report.table_lines(run)) - 1} of {len(report.table_lines(run))} lines" in page
    )
    assert f"It does not on: {first.title()}, 1 thread (PyTorch, 0.50)" in page
    assert f"| {first.title()} | 1 | 23.9 ms | 0.900 | 11.9 ms | 0.50 | **behind** |" in page
    second = run.lines[1].problem
    assert f"| {second.title()} | 1 | 382 ms | 0.900 | 764 ms ~ | 2.00 | ahead |" in page
    assert "dropout 0.1, forward and backward, called once | 1 | 1.00 MiB | 1.00 GiB | 1024.00 | ahead |" in page
    assert "![" in page and "(amd-zen-9-speed.svg)" in page and "*no reason*" in page
    assert "(3.0 times saccade's). In C++ an iteration of saccade's loop takes 250 ns" in page
    assert "| cache | threads | saccade | PyTorch |" in page
    assert "| int8 | 1 | 5.37 ms, 5.97 ms | 8.95 ms, 11.9 ms: 2.00 times |" in page
    for problem in problems():
        assert problem.curve or f"| {problem.title()} |" in page


def test_a_page_can_be_read_again() -> None:
    run = made_up_run()
    page = pages.read_page("amd-zen-9.md", report.markdown(run, []))
    lines = report.table_lines(run)
    assert page[:5] == ("amd-zen-9.md", "AMD Zen 9", "avx4096", "2026-01-01", "abc1234")
    assert page.noise.endswith("samples were disturbed and left out")
    assert {(row.problem, row.threads) for row in page.rows} == {
        (line.problem.title() + ", called once" * line.problem.memory, 1) for line in lines
    }
    assert page.lead() == (len(lines) - 1, len(lines))
    ahead, behind = page.row(lines[1].problem.title()), page.row(lines[0].problem.title())
    assert ahead.amounts == {"saccade": "382 ms", "PyTorch": "764 ms ~"} and ahead.best_other() == "PyTorch"
    assert (ahead.ratio, behind.ratio) == (2.0, 0.5)
    with pytest.raises(ValueError, match="x.md: no processor"):
        pages.read_page("x.md", "# A page\n")


def test_the_table_of_processors_has_the_lower_time_in_bold() -> None:
    rows = [
        pages.Row("heads 8, seqlen 4096, head_dim 64, causal", 1, {"saccade": "2.00 ms", "JAX": "1.00 ms"}, 0.5),
        pages.Row("heads 8, seqlen 2048, head_dim 128, bf16", 1, {"saccade": "2.00 ms", "JAX": "1.00 s"}, 500.0),
        pages.Row("a short one", 2, {"saccade": "2.00 µs", "JAX": "900 ns", "NumPy": "3.00 µs ~"}, 0.45),
    ]
    one = pages.Page("a-1.md", "A 1", "avx2", "2026-01-01", "abc", "no noise", rows)
    other = pages.Page("b-2.md", "B 2", "neon", "2026-01-02", "def", "no noise", [])
    table = pages.processors_table([one, other], pages.ENGLISH, "pages/")
    assert table[0] == "| one thread, from Python | A 1 | B 2 |"
    assert "| causal, 4096 tokens, 8 heads of 64, f32 | 2.00 ms; **JAX 1.00 ms** |  |" in table
    assert "| 2048 tokens, 8 heads of 128, bf16 | **2.00 ms**; JAX 1.00 s |  |" in table
    assert table[-1] == "| saccade is ahead on | [1 of 3 lines](pages/a-1.md) | [0 of 0 lines](pages/b-2.md) |"
    assert rows[2].best_other() == "JAX"


def test_the_pages_of_all_processors_are_in_the_list_and_in_the_readmes() -> None:
    folder = ROOT / "docs" / "benchmarks"
    of = pages.read_pages(folder)
    assert "AMD Zen 4" in [page.processor for page in of]
    assert (folder / "README.md").read_text() == pages.index(of), "script/bench --peers --update writes it"
    for name, words in (("README.md", pages.ENGLISH), ("README.zh-CN.md", pages.CHINESE)):
        text = (ROOT / name).read_text()
        table = pages.processors_table(of, words, "docs/benchmarks/")
        assert pages.filled(text, table) == text, f"script/bench --peers --update fills {name}"
    for page in of:
        assert page.file == processors.file_name(page.processor) + ".md"
        behind = (folder / page.file).read_text().count(report.BEHIND + " |")
        assert page.lead()[0] == page.lead()[1] - behind


def test_the_pictures_are_those_of_the_pages_tables_and_small(tmp_path: pathlib.Path) -> None:
    folder = ROOT / "docs" / "benchmarks"
    of = pages.read_pages(folder)
    for page in of:
        text = (folder / page.file).read_text()
        made = plots.draw(curves.read_curves(text), tmp_path / page.file.removesuffix(".md"))
        assert [name.split("-")[-1] for name in made] == ["speed.svg", "share.svg", "memory.svg"]
        for name in made:
            assert f"]({name})" in text
            assert (folder / name).read_text() == (tmp_path / name).read_text(), "script/bench --redraw draws it"
    for name, words in (("README.md", pages.ENGLISH), ("README.zh-CN.md", pages.CHINESE)):
        chart = (ROOT / "docs" / "pictures" / words.chart).read_text()
        assert chart == pages.processors_chart(of, words), "script/bench --redraw draws it"
        readme = (ROOT / name).read_text()
        assert f"](docs/pictures/{words.chart})" in readme
        for page in of:
            for problem in words.problems:
                assert f">{page.row(problem).amounts['PyTorch']}</text>" in chart
                own = page.row(problem).amounts["saccade"]
                assert f">{own}</text>" in chart and own in readme
    for path in [*folder.glob("*.svg"), *(ROOT / "docs" / "pictures").glob("speed*.svg")]:
        assert path.stat().st_size < 30_000
        xml.etree.ElementTree.parse(path)


def test_curves_survive_their_tables() -> None:
    run = made_up_run()
    found = curves.curves_of(run)
    read = curves.read_curves("\n".join(curves.tables(found)))
    assert [curve[:3] for curve in read] == [curve[:3] for curve in found] and len(found) == 6
    assert [curve.kind for curve in found] == ["Speed"] * 4 + ["Memory"] * 2
    for curve, original in zip(read, found):
        assert curve.values.keys() == original.values.keys() == {"saccade", "PyTorch"}
        assert curve.values["saccade"] == pytest.approx(original.values["saccade"], rel=1e-3)
        assert curve.peaks == pytest.approx(original.peaks, rel=1e-3)
    assert read[0].shares("saccade") == pytest.approx([0.9] * 7, rel=1e-3)
    assert read[0].best_others() == pytest.approx([0.45] * 7, rel=1e-3)


def test_a_figure_that_a_library_lacks_leaves_a_gap() -> None:
    curve = curves.Curve("Memory", "heads 1, 1 thread", [1, 2], {"saccade": [1.0, 2.0], "JAX": [None, 3.0]}, [])
    assert curves.read_curves("\n".join(curves.tables([curve]))) == [curve]
    with_peaks = curve._replace(kind="Speed", peaks=[4.0, 4.0])
    assert with_peaks.best_others() == [None, 0.75]


def run_of_saccade_alone(folder: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    names = {"--shapes": "shapes", "--out": ".", "--pages": "pages"}
    arguments = [text for name, value in names.items() for text in (name, str(folder / value))]
    path = [str(ROOT / "bench"), str(pathlib.Path(saccade_peer.saccade.__file__).parents[1])]
    return subprocess.run(
        [sys.executable, "-m", "peers", "--quick", "--threads", "1", "--only", "saccade", *arguments, *options],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_run_of_saccade_alone_writes_its_page_and_can_be_resumed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "shapes").write_text("h=2 s=16 d=8\nmemory h=1 s=16,32 d=8\n")
    outcome = run_of_saccade_alone(tmp_path)
    assert "[3/3] 1 thread, heads 1, seqlen 32, head_dim 8: saccade " in outcome.stderr
    assert "| heads 2, seqlen 16, head_dim 8 | 1 | " in outcome.stdout
    page = tmp_path / "pages" / f"{processors.file_name(processors.this_name())}.md"
    assert "heads 1, seqlen 32, head_dim 8, called once | 1 | " in page.read_text()
    assert f"[{processors.this_name()}]({page.name})" in (page.parent / "README.md").read_text()

    (tmp_path / "shapes").write_text("h=2 s=16 d=8\nh=3 s=16 d=8\nmemory h=1 s=16,32 d=8\n")
    first = pages.read_page(page.name, page.read_text()).rows[0]
    outcome = run_of_saccade_alone(tmp_path, "--resume")
    assert "[1/1] 1 thread, heads 3, seqlen 16, head_dim 8: saccade " in outcome.stderr
    rows = pages.read_page(page.name, page.read_text()).rows
    assert rows[0] == first
    assert [row.problem.split(",")[0] for row in rows] == ["heads 2", "heads 3", "heads 1"]

    results = tmp_path / "results.json"
    results.write_text(results.read_text().replace(f'"{processors.this_name()}"', '"another"'))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        run_of_saccade_alone(tmp_path, "--resume")
    assert "results.json has processor 'another', not" in refused.value.stderr


def test_results_survive_their_file() -> None:
    run = made_up_run()
    assert report.Run.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.284e-7, "128 ns"), (4.2e-6, "4.20 µs"), (9.996e-4, "1.00 ms"), (0.0394, "39.4 ms"), (2.0, "2.00 s")],
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert report.time_text(seconds) == text
