"""Checks the documentation: every ```python block of README*.md and docs/ runs and, if a ```text block follows
directly, prints exactly that. Blocks that import a library which is not installed are skipped;
those of docs/tutorial are parts of larger programs, which test_tutorial.py runs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n*```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
OPTIONAL = ("torch", "transformers", "onnx", "saccade_jax", "saccade_onnxruntime", "mpi4py")


def blocks():
    readmes = [*sorted(ROOT.glob("README*.md")), ROOT / "packaging/wheel/README.md"]
    for path in [*readmes, *sorted((ROOT / "docs").rglob("*.md"))]:
        if path.is_relative_to(ROOT / "docs/tutorial"):
            continue
        text = path.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            needs = "".join(f"-needs-{library}" for library in libraries_of(match[1]))
            yield pytest.param(*match.groups(), id=f"{path.relative_to(ROOT)}:{line}{needs}")


def libraries_of(program):
    """The optional libraries that a block names; script/snippets runs the blocks that have one."""
    return [library for library in OPTIONAL if re.search(rf"\b{library}\b", program)]


@pytest.mark.parametrize("program, output", list(blocks()))
def test_block_runs(program, output, tmp_path):
    for library in libraries_of(program):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stderr
    if output is not None:
        assert result.stdout == output


def test_the_readme_has_a_block():
    assert any(parameter.id.startswith("README.md") for parameter in blocks())
