"""Prints how many milliseconds `import saccade` takes beyond `import numpy`: best of ten new processes of each."""

import subprocess
import sys
import time


def fastest(code: str) -> float:
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - begin)
    return min(times)


print(round(1000 * (fastest("import numpy, saccade") - fastest("import numpy"))))
