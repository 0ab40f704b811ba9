"""Every option of the library's table stands in python/saccade/_options.py with its default and a text, and in the
signatures and texts that follow from it; and in the fuzzer."""

from __future__ import annotations

import inspect

import pytest
import saccade
import saccade._attention
from fuzz.problem import Problem
from saccade import _core, _options, distributed

RESULTS = {"return_lse", "return_weights"}
TABLE = {python: default for _, python, _, _, default in _core.option_table() if python}
KEYWORDS = set(TABLE)
PACKED = {"cu_seqlens_q", "cu_seqlens_k"}

FORWARD = (saccade.attention, saccade.decode, saccade.attention_varlen, saccade.inspect, distributed.decode)
METHODS = (saccade.KvCache.attention, saccade.KvCache.decode)
BACKWARD = (saccade.attention_backward, saccade.attention_flops, distributed.attention)


def keywords_of(function) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_table_of_python_has_every_option():
    assert set(saccade.BackwardOptions.__annotations__) == KEYWORDS - RESULTS
    assert set(saccade.AttentionOptions.__annotations__) == KEYWORDS - RESULTS - PACKED - {"score_mod_backward"}


def test_its_defaults_are_those_of_the_library():
    defaults = {name: TABLE[name] for name in KEYWORDS - RESULTS - {"seed"}}  # without a seed, one is drawn
    assert {name: default for name, default in defaults.items() if default is not None} == _options.DEFAULTS


def test_every_option_has_a_text():
    assert _options.texts().keys() == saccade.BackwardOptions.__annotations__.keys()
    assert all(text.endswith(".") for text in _options.texts().values())


@pytest.mark.parametrize("function", [*FORWARD, *METHODS, *BACKWARD], ids=lambda function: function.__qualname__)
def test_signatures_and_texts_have_every_option(function):
    options = saccade.BackwardOptions if function in BACKWARD else saccade.AttentionOptions
    parameters = inspect.signature(function).parameters
    for name in options.__annotations__:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == _options.DEFAULTS.get(name)
        assert function.__doc__.count(f":param {name}: ") == 1


def test_the_signature_has_no_other_keywords():
    assert keywords_of(saccade.attention) == KEYWORDS - PACKED - {"score_mod_backward"} | {"out"}


def test_a_function_describes_an_option_in_its_own_words():
    @_options.takes(_options.ThreadOptions)
    def function(q, *, last=1, **options):
        """Does something.

        :param num_threads: how many.
        """
        return q, last, options

    assert str(inspect.signature(function)) == "(q, *, num_threads: int = 0, last=1)"
    assert function.__doc__.count("num_threads") == 1
    assert function(1, num_threads=2) == (1, 1, {"num_threads": 2})


def test_every_option_is_passed_on(monkeypatch):
    passed = {}
    monkeypatch.setattr(saccade._attention, "_attend", lambda *arguments: passed.update(arguments[-1]))
    names = keywords_of(saccade.attention) - RESULTS - {"out"}
    saccade.attention(None, None, None, **{name: name for name in names})
    assert passed == {name: name for name in names}


@pytest.mark.parametrize("name", ["casual", "score_mod_backward", "cu_seqlens_q"])
def test_what_is_no_option_of_attention_is_refused(name):
    with pytest.raises(TypeError, match=f"attention.. got an unexpected keyword argument '{name}'"):
        saccade.attention(None, None, None, **{name: None})


def test_the_fuzzer_draws_every_option():
    drawn = {*Problem.FIRST, *Problem.OTHERS}
    beside = {"block_mask_size", "block_table", "layout", "seed", "score_mod_backward", "weights_after_dropout"}
    beside |= {"k_scale", "v_scale", "k_rotated", "v_rotated"}  # of quantized keys and values
    assert drawn | beside == KEYWORDS - RESULTS - PACKED
