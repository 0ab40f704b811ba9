"""The conclusions of `script/bench --gate` and `--compare` from made-up pairs."""

from __future__ import annotations

import pathlib
import random
import stat
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import pairs  # noqa: E402

FEW = pairs.dataclasses.replace(pairs.GATE, rounds=12)


def made_up(ratio: float, noise: float, seed: int = 1, count: int = 20) -> list[pairs.Pair]:
    """Pairs of a machine whose speed changes from pair to pair, and within a pair by up to `noise`."""
    draw = random.Random(seed)
    speeds = [draw.uniform(1, 3) for _ in range(count)]
    return [pairs.Pair(ratio * speed * (1 + draw.uniform(-noise, noise)), speed) for speed in speeds]


def verdict(ratio: float, noise: float, rule: pairs.Rule = pairs.GATE) -> str:
    return pairs.judge(made_up(ratio, noise), rule.certainty).verdict(rule)


def test_the_rank_is_that_of_the_sign_test() -> None:
    # 2 (1 + 9) / 2^9 = 0.039, with the next term 0.18; 2 (1 + 20 + 190) / 2^20 = 0.0004, with the next one 0.0026
    assert pairs.rank(9, 0.95) == 2
    assert pairs.rank(20, 0.999) == 3
    assert [pairs.rank(n, 0.95) for n in (5, 6)] == [0, 1]
    assert [pairs.rank(n, 0.999) for n in (10, 11)] == [0, 1]
    with pytest.raises(ValueError, match="10 pairs are too few for an interval of 99.9 %"):
        pairs.judge(made_up(1, 0.01, count=10), 0.999)


def test_an_interval_is_of_ratios_in_order() -> None:
    judged = pairs.judge([pairs.Pair(seconds, 2.0) for seconds in (8.0, 2.0, 6.0, 4.0, 10.0, 12.0)], 0.95)
    assert judged == pairs.Judgement(this=7.0, other=2.0, ratio=3.5, low=1.0, high=6.0)


def test_what_is_slower_beyond_the_noise_is_seen() -> None:
    assert verdict(1.05, 0.01) == "SLOWER"
    assert verdict(1.02, 0.005) == "a little slower"
    assert verdict(1.0, 0.05) == "same"
    assert verdict(1.05, 0.3) == "same"  # the noise hides it
    assert verdict(0.95, 0.01) == "faster"
    assert verdict(1.03, 0.005, pairs.COMPARE) == "SLOWER"
    assert verdict(1.01, 0.005, pairs.COMPARE) == "a little slower"


def test_noise_alone_is_hardly_ever_called_slower() -> None:
    judged = [pairs.judge(made_up(1.0, 0.05, seed), pairs.GATE.certainty) for seed in range(1000)]
    assert sum(of.low > 1 for of in judged) <= 3  # 0.2 are expected


def test_the_exit_status_follows_from_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    def status(*ratios: float) -> int:
        found = {f"line {ratio}": pairs.judge(made_up(ratio, 0.002), pairs.GATE.certainty) for ratio in ratios}
        return pairs.report(found, pairs.GATE, "2f4b5af")

    assert status(1.0, 1.02) == 0
    out = capsys.readouterr().out
    assert "slower than 2f4b5af by more than 1 %, beyond the noise: 1 of 2\n" in out
    assert "slower than 2f4b5af by more than 3 %, beyond the noise: 0 of 2\n" in out
    assert status(1.0, 1.02, 1.1) == 1
    assert "by more than 3 %, beyond the noise: 1 of 3\n" in capsys.readouterr().out


def fake_timer(folder: pathlib.Path, name: str, body: str) -> str:
    """A program that runs the Python code `body` for each line."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys, os\nfor line in sys.stdin:\n    {body}\n    sys.stdout.flush()\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_gate_measures_again_what_looks_slower(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    other = fake_timer(tmp_path, "other", "print(1.0)")
    # Slow in the first measurement: 3 samples in each of 12 rounds.
    count = "f = open('count', 'a'); f.write('x'); f.close(); slow = os.path.getsize('count') <= 36"
    this = fake_timer(tmp_path, "this", f"os.chdir({str(tmp_path)!r}); {count}; print(1.1 if slow else 1.0)")
    found = pairs.gate(["a line"], this, other, FEW)
    assert "measuring 1 of 1 again" in capfd.readouterr().err
    assert found["a line"].verdict(FEW) == "same"

    slow = fake_timer(tmp_path, "slow", "print(1.1 if 'one' in line else 1.0)")
    found = pairs.gate(["one", "two"], slow, other, FEW)
    assert [of.verdict(FEW) for of in found.values()] == ["SLOWER", "same"]


def test_a_line_that_cannot_be_timed_ends_the_gate(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = fake_timer(tmp_path, "broken", "print('error: there is no function')")
    lines = tmp_path / "lines.txt"
    lines.write_text("# two lines\nfirst\nsecond # and a remark\n\n")
    assert pairs.read_lines(str(lines)) == ["first", "second"]
    arguments = ["gate", broken, broken, "--revision", "REV", "--lines", str(lines)]
    assert pairs.main(arguments) == 2
    assert "on 'first': error: there is no function" in capfd.readouterr().err
    assert pairs.main([*arguments, "--only", "third"]) == 2
    assert "has no problem in it with 'third'" in capfd.readouterr().err
