"""The tutorial: its code prints and draws what the pages show, the same in Python and in C++, and computes the numbers
that others printed."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = os.environ.get("SACCADE_TUTORIAL", "")
EXAMPLES = json.loads((ROOT / "cases/data/published_examples.json").read_text())

_spec = importlib.util.spec_from_file_location("tutorial", ROOT / "docs/site/tutorial.py")
tutorial = importlib.util.module_from_spec(_spec)
sys.modules["tutorial"] = tutorial  # where dataclasses look
_spec.loader.exec_module(tutorial)

PAGE = """
```python
print([0.25, 1])
```

<!-- printed: here -->

```text
```
"""


@pytest.mark.skipif(not PROGRAM, reason="the program of its C++ code was not built")
def test_pages_show_what_the_code_prints():
    tutorial.update(Path(PROGRAM), is_check=True)


def beside(tmp_path, printed):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    step = tutorial.read(page).steps[0]
    return tutorial.beside("[0.25, 1]\n", step, {"here": printed}, ("computed", "printed"), "page.md:1")


def test_printed_numbers_are_put_beside_computed_ones(tmp_path):
    assert beside(tmp_path, [0.25, 1.0]) == "computed  | printed\n[0.25, 1] | 0.25 1.00\n"


@pytest.mark.parametrize("printed", [[0.26, 1.0], [0.25, 1.01], [0.25, 1.0, 1.0], [[0.25, 1.0], [0.25, 1.0]]])
def test_wrong_numbers_are_refused(tmp_path, printed):
    with pytest.raises(tutorial.Wrong, match="here"):
        beside(tmp_path, printed)


def test_numbers_of_both_languages_must_be_equal(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    read = tutorial.read(page)
    read.place = lambda step: "page.md:1"
    assert tutorial.output_of(read, 0, {0: "[0.25 1.00]\n"}, {0: "[0.25, 1.00]\n"}) == "[0.25 1.00]\n"
    with pytest.raises(tutorial.Wrong, match="C\\+\\+"):
        tutorial.output_of(read, 0, {0: "[0.25 1.00]\n"}, {0: "[0.26, 1.00]\n"})
