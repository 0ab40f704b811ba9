"""Every option of the library's table has its keyword in the signatures, in the documentation and in the fuzzer."""

from __future__ import annotations

import inspect

import saccade
import saccade._attention
from fuzz.problem import Problem
from saccade import _core

RESULTS = {"return_lse", "return_weights"}
KEYWORDS = {python for _, python, _, _ in _core.option_names()} - {""}
PACKED = {"cu_seqlens_q", "cu_seqlens_k"}


def keywords_of(function) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_signature_has_every_option():
    assert keywords_of(saccade.attention) == KEYWORDS - PACKED - {"score_mod_backward"} | {"out"}


def test_every_option_is_passed_on(monkeypatch):
    passed = {}
    monkeypatch.setattr(saccade._attention, "_attend", lambda *arguments: passed.update(arguments[-1]))
    names = keywords_of(saccade.attention) - RESULTS - {"out"}
    saccade.attention(None, None, None, **{name: name for name in names})
    assert passed == {name: name for name in names}


def test_type_checkers_know_every_option():
    assert set(saccade.BackwardOptions.__annotations__) == KEYWORDS - RESULTS
    assert set(saccade.AttentionOptions.__annotations__) == keywords_of(saccade.attention) - RESULTS - {"out"}


def test_the_fuzzer_draws_every_option():
    drawn = {*Problem.FIRST, *Problem.OTHERS}
    beside = {"block_mask_size", "block_table", "layout", "seed", "score_mod_backward", "weights_after_dropout"}
    assert drawn | beside == KEYWORDS - RESULTS - PACKED
