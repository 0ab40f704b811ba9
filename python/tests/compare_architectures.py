"""Compares attn_implementation="saccade" with "eager" on tiny models: what test_transformers_architectures.py tests.

``python python/tests/compare_architectures.py [MODEL_TYPE...]`` prints a line for each.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import warnings
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Callable, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported

import saccade.transformers  # noqa: E402
import tiny_models as tiny  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch import Tensor  # noqa: E402

SECONDS = 60  # of processor time, for one architecture
MEMORY = 5 * 2**30  # of a process
BATCH = 100  # architectures for the same processes: the memory they free is fragmented, and MEMORY counts it
TOLERANCE = 1e-4  # of the largest number; what is f32's rounding is amplified by two layers of large random weights
_COMPUTING = ("torch_attention", "attention_varlen", "scaled_dot_product_attention")


class Outcome(NamedTuple):
    kind: str  #: "compared", "own attention", "refused", "no tiny model" or "wrong"
    text: str = ""  #: why, or which weights are missing
    calls: int = 0  #: of attention that saccade computed in a forward pass
    done: tuple[str, ...] = ()  #: what was compared


class Wrong(Exception):
    """Results that differ, or an error that does not name saccade."""


def compare(model_type: str) -> Outcome:
    """Compares a model type; does not raise."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return _compare(model_type)
    except tiny.NoTinyModel as error:
        return Outcome("no tiny model", str(error))
    except Wrong as error:
        return Outcome("wrong", str(error))
    except Exception as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}"[:500])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(*_: Any) -> None:
    raise tiny.NoTinyModel(f"takes longer than {SECONDS} seconds")


def _compare(model_type: str) -> Outcome:
    reasons = []
    for class_name in tiny.class_names(model_type)[:2]:
        for config in tiny.tiny_configs(model_type):
            try:
                theirs, given = _working_model(class_name, config)
            except (tiny.NoTinyModel, TimeoutError):
                raise
            except Exception as error:
                reasons.append(tiny.first_line(error))
                continue
            try:
                return _Comparison(class_name, config, theirs, given).outcome()
            except Wrong:  # perhaps another choice between two as good as equal: not in f64
                found = _Comparison(class_name, config, theirs, given, torch.float64)
                try:
                    outcome = found.outcome()
                except Wrong:
                    outcome = None
                if outcome is None or "forward" not in outcome.done:  # some models have no f64
                    raise
                return outcome
    raise tiny.NoTinyModel(reasons[0] if reasons else "no class")


def _working_model(class_name: str, config: Any) -> tuple[Any, dict[str, Any]]:
    """A model with "eager" and inputs that it takes."""
    if isinstance(config, Exception):
        raise config
    count = tiny.parameters_of(class_name, config)
    if count > tiny.MOST_PARAMETERS:
        raise ValueError(f"{count / 1e6:.0f} million parameters")
    model = tiny.make(class_name, config, "eager")
    errors = []
    for given in tiny.candidates(model):
        try:
            with torch.no_grad():
                found = tiny.results(_call(model, given))
        except tiny.NoTinyModel:
            raise
        except Exception as error:
            errors.append(tiny.first_line(error))
            continue
        if found and all(bool(x.isfinite().all()) for x in found.values()):
            return model, given
        errors.append("no finite results")
    raise ValueError(errors[0] if errors else f"no inputs known for {model.main_input_name}")


def _call(model: Any, given: dict[str, Any], **options: Any) -> Any:
    torch.manual_seed(11)
    return model(**given, **options)


class _Comparison:
    def __init__(
        self, class_name: str, config: Any, theirs: Any, given: dict[str, Any], dtype: torch.dtype = torch.float32
    ) -> None:
        self.theirs = theirs.to(dtype)
        self.given = {name: x.to(dtype) if x.is_floating_point() else x for name, x in given.items()}
        self.done: list[str] = []
        self.refusals: list[str] = []
        self.notes: list[str] = []
        self.make: Callable[[], Any] = lambda: tiny.make(class_name, config, "saccade").to(dtype)

    def outcome(self) -> Outcome:
        try:
            self.ours = self.make()
        except Exception as error:
            self._refused("", error)
            return Outcome("refused", "; ".join(self.refusals))
        with _Counted() as counted:
            plain = self._forward("", self.given)
        self._forward("another last token", tiny.changed(self.given))
        self._backward("", self.given, None)
        for side in ("left", "right"):
            self._padded(side)
        if plain is not None:
            self._weights()
        if self.refusals:
            return Outcome("refused", "; ".join(dict.fromkeys(self.refusals)), counted.calls, tuple(self.done))
        kind = "compared" if counted.calls else "own attention"
        return Outcome(kind, "; ".join(self.notes), counted.calls, tuple(self.done))

    def _forward(self, what: str, given: dict[str, Any], seen: Tensor | None = None) -> Any:
        try:
            with torch.no_grad():
                theirs = tiny.results(_call(self.theirs, given))
        except Exception:
            return None  # eager does not do it either
        try:
            with torch.no_grad():
                ours = tiny.results(_call(self.ours, given))
        except Exception as error:
            return self._refused(what, error)
        if {name for name in ours if "attentions" not in name} != {name for name in theirs if "attentions" not in name}:
            raise Wrong(f"{what}: results {sorted(ours)} instead of {sorted(theirs)}")
        for name, x in theirs.items():
            if "attentions" in name:
                continue
            self._require_close(f"forward {what} {name}", ours[name], x, seen)
        self.done.append(f"forward {what}".strip())
        return ours

    def _require_close(self, what: str, ours: Tensor, theirs: Tensor, seen: Tensor | None = None) -> None:
        if ours.shape != theirs.shape:
            raise Wrong(f"{what}: shape {list(ours.shape)} instead of {list(theirs.shape)}")
        if seen is not None:
            if theirs.dim() < 3 or theirs.shape[:2] != seen.shape:
                return
            ours, theirs = ours[seen], theirs[seen]
        ours, theirs = ours.double(), theirs.double()
        finite = theirs.isfinite()
        if not torch.equal(finite, ours.isfinite()):
            raise Wrong(f"{what}: finite elsewhere")
        largest = float(theirs[finite].abs().max()) if finite.any() else 0.0
        error = float((ours - theirs)[finite].abs().max()) if finite.any() else 0.0
        if not error <= TOLERANCE * largest + 1e-9:
            raise Wrong(f"{what}: differs by {error:.2g} where the largest number is {largest:.2g}")

    def _backward(self, what: str, given: dict[str, Any], seen: Tensor | None) -> None:
        found = []
        for model in (self.theirs, self.ours):
            try:
                found.append(_gradients(model, given, seen))
            except Exception as error:
                if not found:
                    return
                self._refused(f"backward {what}", error)
                return
        theirs, ours = found
        if not theirs:
            return
        if theirs.keys() != ours.keys():
            raise Wrong(f"backward {what}: gradients of other parameters: {sorted(theirs.keys() ^ ours.keys())[:3]}")
        flat = [torch.cat([x[name].flatten() for name in theirs]) for x in (ours, theirs)]
        self._require_close(f"backward {what}", *flat)
        self.done.append(f"backward {what}".strip())

    def _padded(self, side: str) -> None:
        given = tiny.padded(self.theirs, self.given, side)
        if given is None:
            return
        seen = given["attention_mask"].bool()
        if self._forward(f"padded {side}", given, seen) is not None:
            self._backward(f"padded {side}", given, seen)

    def _weights(self) -> None:
        """As many weights as eager returns, with the same numbers."""
        found = []
        for model in (self.theirs, self.ours):
            try:
                with torch.no_grad():
                    output = _call(model, self.given, output_attentions=True)
                found.append({name: x for name, x in tiny.results(output).items() if "attentions" in name})
            except Exception as error:
                if not found:
                    return
                self._refused("weights", error)
                return
        theirs, ours = found
        if not theirs:
            return
        if ours.keys() != theirs.keys():
            self.notes.append(f"{len(ours)} instead of {len(theirs)} weights")
            return
        for name, x in theirs.items():
            try:
                self._require_close(f"weights {name}", ours[name], x)
            except Wrong:  # some leave a sink out of the weights that they return: the rows' sums differ
                self._require_close(f"weights {name}", ours[name] / ours[name].sum(-1, keepdim=True), x)
        self.done.append("weights")

    def _refused(self, what: str, error: Exception) -> None:
        if isinstance(error, tiny.NoTinyModel):
            raise error
        if "saccade" not in str(error):
            raise Wrong(f"{what}: {type(error).__name__}: {error}"[:400]) from error
        self.refusals.append(f"{what}: {error}" if what else str(error))


def _gradients(model: Any, given: dict[str, Any], seen: Tensor | None) -> dict[str, Tensor]:
    model.zero_grad()
    loss = torch.zeros((), dtype=torch.float64)
    for i, (name, x) in enumerate(tiny.results(_call(model, given)).items()):
        if not x.requires_grad or "attentions" in name:  # some models return weights unasked
            continue
        probe = torch.randn(x.shape, generator=torch.Generator().manual_seed(5 + i))
        if seen is not None:
            if x.dim() < 3 or x.shape[:2] != seen.shape:
                continue
            x, probe = x[seen], probe[seen]
        finite = x.isfinite()
        loss = loss + (x[finite] * probe[finite]).sum().double()
    if not loss.requires_grad:
        return {}
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


class _Counted:
    """Counts the calls of attention that saccade computes."""

    def __enter__(self) -> _Counted:
        self.calls = 0
        self.module = saccade.transformers._attention
        self.own = {name: getattr(self.module, name) for name in _COMPUTING}
        for name, function in self.own.items():
            setattr(self.module, name, self._counting(function))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self.own.items():
            setattr(self.module, name, function)

    def _counting(self, function: Any) -> Any:
        def counting(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            return function(*arguments, **options)

        return counting


def compare_all(model_types: list[str]) -> dict[str, Outcome]:
    """In as many processes as there are processors."""
    outcomes = {}
    for start in range(0, len(model_types), BATCH):
        batch = model_types[start : start + BATCH]
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), initializer=_prepare) as pool:
            found = {name: pool.submit(compare, name) for name in batch}
            outcomes |= {name: _result(future) for name, future in found.items()}
    return outcomes


def _result(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool:  # what the others have done counts
        return Outcome("wrong", "a process ended")


def _prepare() -> None:
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))  # more is an error, and the architecture not tiny
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    saccade.transformers.register()


if __name__ == "__main__":
    _prepare()
    for name in sys.argv[1:] or tiny.architectures():
        outcome = compare(name)
        print(name, outcome.kind, outcome.calls, ", ".join(outcome.done), outcome.text, sep=" | ", flush=True)
