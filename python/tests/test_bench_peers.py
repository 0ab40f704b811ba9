"""The parts of `script/bench --peers`: problems as text, the f64 reference, and the page that it writes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("ml_dtypes")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from peers import machine, process, report, saccade_peer, timing, worker  # noqa: E402
from peers.inputs import draw  # noqa: E402
from peers.problem import Problem, parse_problems, read_problems  # noqa: E402
from peers.reference import difference, expected_results  # noqa: E402

SHAPES = ROOT / "bench" / "peers" / "shapes.txt"


def problems(path: pathlib.Path = SHAPES) -> list[Problem]:
    return read_problems(path, lambda text: None)


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


def test_a_list_of_lengths_is_a_curve() -> None:
    points = parse_problems("h=2 s=8,16 d=4 causal=top_left")
    assert [(p.seqlen_q, p.seqlen_k, p.curve) for p in points] == [(8, 8, True), (16, 16, True)]
    assert parse_problems("s=8") == [Problem(seqlen_q=8, seqlen_k=8)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h=0", "h=0: a whole number from 1 on is wanted"),
        ("dtype=f8", "dtype=f8: one of f32, bf16, f16 is wanted"),
        ("foo", "foo: one of the words"),
        ("window=3", "window=3: two whole numbers"),
        ("dropout=1", "dropout=1: a probability below 1 is wanted"),
        ("h=3 hkv=2", "h=3 is no multiple of hkv=2"),
        ("docs=2 b=2 s=8", "docs= makes the batch"),
        ("module h=2 s=8 causal=top_left", "module goes with"),
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


@pytest.mark.parametrize("problem", small_problems(), ids=Problem.title)
def test_saccade_agrees_with_the_reference(problem: Problem) -> None:
    of = problem.but(dropout_p=0.0)
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


def made_up_run() -> report.Run:
    """saccade twice as fast as PyTorch, except in one line."""
    run = report.Run("a machine", "2026-01-01", False, titles={"saccade": "saccade", "torch": "PyTorch", "jax": "JAX"})
    run.versions = {"saccade": "1", "torch": "2"}
    limits = {"peak_gflops": 100.0, "bf16_peak_gflops": 200.0, "read_gbytes": 30.0, "loops_per_second": 4e6}
    for i, problem in enumerate(problems()):
        seconds = problem.flops() / 90e9
        cells = {
            "saccade": timing.Cell(seconds, bytes=2**20),
            "torch": timing.Cell(2 * seconds if i else seconds / 2, ways={"this way": 3 * seconds}, bytes=2**30),
            "jax": timing.Cell(reasons={"": "no reason"}),
        }
        run.lines.append(timing.Line(problem, 1, cells, None if problem.memory else limits))
    return run


def test_the_page_has_a_line_for_each_problem_and_names_where_saccade_is_behind() -> None:
    run = made_up_run()
    page = report.markdown(run, "pictures", ["peers_speed.svg"])
    first = run.lines[0].problem
    assert f"saccade takes least on {len(report.table_lines(run)) - 1} of {len(report.table_lines(run))} lines" in page
    assert f"It does not on: {first.title()}, 1 thread (PyTorch, 0.50)" in page
    assert f"| {first.title()} | 1 | 23.9 ms | 0.900 | 11.9 ms | 0.50 |" in page
    assert "dropout 0.1, forward and backward, called once | 1 | 1.00 MiB | 1.00 GiB | 1024.00 |" in page
    assert "![" in page and "(pictures/peers_speed.svg)" in page and "*no reason*" in page
    assert "(3.0 times saccade's). In C++ a turn of saccade's loop takes 250 ns" in page
    for problem in problems():
        assert problem.curve or f"| {problem.title()} |" in page


def test_a_run_of_saccade_alone_writes_its_page(tmp_path: pathlib.Path) -> None:
    (tmp_path / "shapes").write_text("h=2 s=16 d=8\nmemory h=1 s=16,32 d=8\n")
    names = {"--shapes": "shapes", "--out": ".", "--report": "page.md", "--pictures": "pictures"}
    arguments = [text for name, value in names.items() for text in (name, str(tmp_path / value))]
    path = [str(ROOT / "bench"), str(pathlib.Path(saccade_peer.saccade.__file__).parents[1])]
    outcome = subprocess.run(
        [sys.executable, "-m", "peers", "--quick", "--threads", "1", "--only", "saccade", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[3/3] 1 thread, heads 1, seqlen 32, head_dim 8: saccade " in outcome.stderr
    assert "| heads 2, seqlen 16, head_dim 8 | 1 | " in outcome.stdout
    assert "heads 1, seqlen 32, head_dim 8, called once | 1 | " in (tmp_path / "page.md").read_text()


def test_results_survive_their_file() -> None:
    run = made_up_run()
    assert report.Run.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.284e-7, "128 ns"), (4.2e-6, "4.20 µs"), (9.996e-4, "1.00 ms"), (0.0394, "39.4 ms"), (2.0, "2.00 s")],
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert report.time_text(seconds) == text
