"""Calls all functions of saccade with random arguments, most of them nearly right.

Usage: fuzz_arguments.py SECONDS [CASE]
       fuzz_arguments.py --calls CALLS [CASE]

The number of a case determines its calls. Cases are counted from CASE, by default from a random number, and from 0
where CALLS calls are made, which must be of every public name of the package. Each call

- returns what its documentation says (compared with the reference if the arguments fit), or raises a ValueError
that
  names an argument, a TypeError for an unknown keyword, the exception of a callback, a documented RuntimeError, or
  a MemoryError if there is not enough memory;
- does not crash or hang (cases run in a separate process);
- changes neither its inputs nor the memory around its outputs.

Prints the first call that violates this, with the number of its case, and fails.
"""

from __future__ import annotations

import faulthandler
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from typing import Any

import numpy as np

LIMIT = 20  # seconds that a case may take
MEMORY = 6 << 30  # bytes that the process may map

# Other names of an argument in error messages.
ALSO = {
    "out": "o|y",
    "k": "k|q and k|keys?",
    "window": "window_left|window_right",
    "block_mask_size": "block_mask_q|block_mask_k|block_mask",
    "query_offset": "query_offsets|query offset",
    "return_weights": "weights",
    "return_lse": "lse",
    "return_dmask": "dmask|mask",
    "return_dsinks": "dsinks|sinks",
    "return_dalibi_slopes": "dalibi_slopes|alibi_slopes",
    "query": "x|query",
    "o_a": "o",
    "num_threads": "threads",
    "weights": "heads|rows|columns",
    "from_sequence": "sequence",
    "names": "backend|BackendChoice",
}

# Calls whose result keeps references to their arguments.
MODULES = ("nn.SelfAttention", "nn.CausalAttention", "nn.MultiHeadAttentionWrapper", "nn.MultiHeadAttention")
KEEPS = ("saccade.heatmap", *MODULES)


class Finding(Exception):
    """A call did something that no call may do."""


class Runner:
    """Makes the calls of cases and checks their outcome."""

    def __init__(self, log: Any) -> None:
        self.calls = self.refused = 0
        self.called: set[str] = set()
        self._log = log

    def run(self, number: int) -> None:
        import saccade
        from fuzz import CASES
        from fuzz.values import Values

        saccade.set_num_threads(2)
        saccade.manual_seed(number)
        self._number = number
        values = Values(number)
        case = values.pick(*CASES)(values)
        self._announce("before its first call")
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        outcome = None
        try:
            while True:
                outcome = self._attempt(case.send(outcome), values)
        except StopIteration:
            pass
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _attempt(self, call: Any, values: Any) -> Any:
        """Makes the call; returns its result, or an exception that it may raise."""
        self._announce(f"{call.text}({', '.join(f'{name}={described(x)}' for name, x in call.arguments.items())})")
        self.calls += 1
        self.called.add(call.text)
        inputs = inputs_of(call)
        before, references = [contents(x) for x in inputs], [sys.getrefcount(x) for x in inputs]
        try:
            outcome = call.function(**call.arguments)
        except BaseException as error:  # noqa: B902, checked below
            self._judge(error, call, values)
            self.refused += 1
            error.__cause__ = error.__context__ = None
            outcome = error.with_traceback(None)
        else:
            call.check(outcome)
        for guard in call.guards:
            if not guard.is_intact():
                raise Finding("memory outside of an output was written to")
        if [contents(x) for x in inputs] != before:
            raise Finding("an input was changed")
        if [sys.getrefcount(x) for x in inputs] != references and call.text not in KEEPS:
            raise Finding("an input is referred to by more or fewer than before")
        return outcome

    def _judge(self, error: BaseException, call: Any, values: Any) -> None:
        from fuzz.values import Harm

        if isinstance(error, Harm) and values.is_harmful:
            return
        if call.fits:
            raise Finding("a call that fits was refused") from error
        if isinstance(error, MemoryError) and values.is_huge:
            return
        if isinstance(error, call.may_raise):
            return
        if callable(call.arguments.get("score_mod")) and "takes" in str(error):
            return  # the callback does not accept its arguments
        if values.is_huge and re.search(r"does not fit in memory|2\^40", str(error)):
            return
        if not isinstance(error, ValueError):
            raise Finding(f"{type(error).__name__} is no way to refuse an argument") from error
        if not re.search(words(call), str(error)):
            raise Finding("a ValueError names no argument") from error

    def _announce(self, text: str) -> None:
        self._log.seek(0)
        self._log.truncate()
        self._log.write(f"case {self._number}: {text}\n".encode("utf-8", "backslashreplace"))


def words(call: Any) -> str:
    """A pattern for the names of the call's arguments."""
    from fuzz.call import parameters_of

    names = [*call.arguments, *parameters_of(call)]
    if "state_dict" in names:
        names += call.extra
    patterns = [re.escape(name) for name in names if name] + [ALSO[name] for name in names if name in ALSO]
    return rf"(?<!\w)({'|'.join(patterns)})(?!\w)"


def inputs_of(call: Any) -> list[np.ndarray]:
    """The arrays that the call must not change."""
    outputs = [call.arguments.get(name) for name in ("out", "scores")]
    if call.text == "Rope.rotate" and outputs[0] is not None:
        return []  # x may be the output, also in another array object
    if "score_mod" in call.arguments:
        outputs.append(call.arguments.get("block_table"))  # some functions change it on purpose
    given = call.arguments.values()
    arrays = [x for value in given for x in (value.values() if isinstance(value, dict) else [value])]
    return [x for x in arrays if isinstance(x, np.ndarray) and not any(x is output for output in outputs)]


def contents(array: np.ndarray) -> Any:
    return array.tobytes() if array.size < 1 << 22 else None


def described(value: Any) -> str:
    """The value in a few words."""
    if isinstance(value, np.ndarray):
        words = f"{value.dtype}{list(value.shape)}"
        if not value.flags.c_contiguous:
            words += f" strides {list(value.strides)}"
        return words + ("" if value.flags.writeable else " read-only") + ("" if value.flags.aligned else " unaligned")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {described(x)}" for key, x in value.items()) + "}"
    if isinstance(value, int) and abs(value) > 1 << 80:
        return f"an integer of {value.bit_length()} bits"
    if type(value).__name__ == "Hostile":
        return f"an object with {', '.join(type(value).members)}"
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__} without repr"
    return text if len(text) < 200 else text[:200] + "..."


def uncovered(called: set[str]) -> list[str]:
    """The public names of the package that no call has."""
    import saccade

    results = {"AttentionOptions", "BackwardOptions", "Gradients", "Inspection", "InputGradients"}
    names = {f"saccade.{name}" for name in saccade.__all__} | {f"nn.{name}" for name in saccade.nn.__all__}
    for kind in (saccade.KvCache, saccade.Rope, saccade.Page, saccade.Picture, saccade.nn.Module):
        names |= {f"{kind.__name__}.{name}" for name, x in vars(kind).items() if callable(x) and name[0] != "_"}
        names |= {f"{kind.__name__}.{name}" for name, x in vars(kind).items() if isinstance(x, classmethod)}
    names = {name for name in names if name.split(".")[1] not in results and not name.split(".")[1].startswith("_")}
    # A class is called by its methods, the module by its classes, and what str() of a picture shows by that.
    called = called | {"saccade.nn", "nn.Module", "saccade.Page", "saccade.Picture", "Picture.html"}
    return sorted(names - called)


def lacks_calls(runner: Runner, calls: float) -> bool:
    """Whether there were too few calls, or, up to three times as many, none of some name: a few are drawn rarely."""
    return runner.calls < calls or (runner.calls < 3 * calls and bool(uncovered(runner.called)))


def run_cases(first: int, seconds: float, log_name: str, calls: float = 0) -> None:
    """Runs cases for this many seconds, and for so many calls; called in a separate process."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    if "SACCADE_FUZZ_UNLIMITED" not in os.environ:  # sanitizers map more memory than there is
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    end = time.monotonic() + seconds
    number = first
    with open(log_name, "r+b", buffering=0) as log:
        runner = Runner(log)
        while number == first or time.monotonic() < end or lacks_calls(runner, calls):
            try:
                runner.run(number)
            except BaseException as error:
                traceback.print_exception(type(error), error, error.__traceback__)
                sys.exit(3)
            number += 1
    if calls and (names := uncovered(runner.called)):
        print(f"no call of {', '.join(names)}", file=sys.stderr)
        sys.exit(3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{number - first} cases, {runner.calls} calls of which {runner.refused} were refused, at most {peak} MiB")


def main() -> int:
    arguments = sys.argv[1:]
    if arguments and arguments[0] == "--run":
        run_cases(int(arguments[1]), float(arguments[2]), arguments[3], float(arguments[4]))
        return 0
    counts_calls = bool(arguments) and arguments[0] == "--calls"
    if counts_calls:
        arguments = arguments[1:]
    if not 1 <= len(arguments) <= 2 or not all(re.fullmatch(r"\d+(\.\d+)?", x) for x in arguments):
        print(__doc__, file=sys.stderr)
        return 2
    first = arguments[1] if len(arguments) > 1 else "0" if counts_calls else str(random.SystemRandom().randrange(10**9))
    # A wrong call may write a page under a name that stood for something else: the calls run in a folder of their own.
    with tempfile.NamedTemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            os.path.abspath(__file__),
            "--run",
            first,
            "0" if counts_calls else arguments[0],
            log.name,
        ]
        command.append(arguments[0] if counts_calls else "0")
        child = subprocess.run(command, capture_output=True, cwd=folder)
        said = log.read().decode(errors="replace").strip()
    if child.returncode == 0:
        print(f"python: {child.stdout.decode().strip()}, no finding")
        return 0
    print(child.stderr.decode(errors="replace")[-6000:], file=sys.stderr)
    number = re.match(r"case (\d+)", said)
    print(f"python: a finding (exit status {child.returncode}) in {said}", file=sys.stderr)
    print(f"again: {os.path.relpath(__file__)} 1 {number[1] if number else first}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
