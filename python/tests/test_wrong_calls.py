"""Random wrong calls of every public name, a number of them: see fuzz_arguments.py."""

import pathlib
import subprocess
import sys

import pytest
import saccade

FUZZ = pathlib.Path(__file__).with_name("fuzz_arguments.py")


@pytest.mark.skipif(sys.platform == "win32", reason="limits memory as Unix does")
@pytest.mark.skipif(not hasattr(saccade._core, "look"), reason="this build cannot read models")
def test_wrong_calls_are_refused_and_do_no_harm():
    run = subprocess.run([sys.executable, FUZZ, "--calls", "2000"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
