"""Takes turns between PyTorch and saccade in one process, each with threads of its own run-time library of OpenMP.

Prints both times of a call alone and by turns; fails if results change, or if a turn takes twice as long.
"""

import pathlib
import statistics
import sys
import time

import numpy as np
import saccade
import torch

x = np.random.default_rng(0).standard_normal((1, 8, 1024, 64), dtype=np.float32)
y = torch.from_numpy(x[0, 0]).repeat(1, 16)


def timed(function) -> float:
    begin = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - begin)


def attend():
    return saccade.attention(x, x, x, causal="top_left")


def multiply():
    return y @ y.T


wanted, product = attend(), multiply()
alone = [statistics.median(timed(function) for _ in range(30)) for function in (attend, multiply)]
turns = [(timed(attend), timed(multiply)) for _ in range(60)]
together = [statistics.median(times) for times in zip(*turns)]
for name, before, after in zip(("saccade.attention", "torch's product"), alone, together):
    print(f"{name}: {before:.2f} ms alone, {after:.2f} ms by turns")
libraries = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "gomp" in line}
print(f"run-time libraries of OpenMP in the process: {len(libraries)}")
same = np.array_equal(attend(), wanted) and torch.equal(multiply(), product)
sys.exit(not same or len(libraries) < 2 or together[0] > 2 * alone[0] or together[1] > 2 * alone[1])
