"""A MemoryError changes nothing, whichever allocation of a call fails: see failing_allocations.py.

SACCADE_FAULT_LIBRARY names the library that makes them fail (tests/faults/fault_library.cpp)."""

import os
import pathlib
import subprocess
import sys

import pytest
from failing_allocations import OPERATIONS

LIBRARY = os.environ.get("SACCADE_FAULT_LIBRARY")
PROGRAM = pathlib.Path(__file__).with_name("failing_allocations.py")


@pytest.mark.skipif(not LIBRARY, reason="SACCADE_FAULT_LIBRARY names no library")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_memory_error_changes_nothing(operation):
    command = [sys.executable, PROGRAM, LIBRARY, operation]
    run = subprocess.run(command, env={**os.environ, "LD_PRELOAD": LIBRARY}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
