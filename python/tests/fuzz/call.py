"""One call of the library, and the same with arguments that may not fit."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import numpy as np
import saccade

from .values import Guarded, Values

OPTIONS = tuple(saccade.AttentionOptions.__annotations__)


class Call(NamedTuple):
    """One call: the function, its arguments and the allowed outcomes."""

    text: str
    function: Callable[..., Any]
    arguments: dict[str, Any]
    fits: bool = True  # it must succeed
    check: Callable[[Any], None] = lambda result: None  # raises AssertionError for a wrong result of a call that fits
    guards: tuple[Guarded, ...] = ()
    may_raise: tuple[type[BaseException], ...] = ()
    extra: tuple[str, ...] = OPTIONS  # what **options may be


Case = Iterator[Call]  # receives the result of each call, or its exception


def parameters_of(call: Call) -> list[str]:
    """The names of all arguments that the call could have."""
    try:
        parameters = inspect.signature(call.function).parameters.values()
    except ValueError:  # a function of the extension module
        return list(call.arguments)
    names = [[parameter.name] if parameter.kind != parameter.VAR_KEYWORD else call.extra for parameter in parameters]
    if "deprecated" in inspect.signature(call.function).parameters:  # old names of arguments, and no options
        names = names[:-1]
    return [name for group in names for name in group]


def spoiled(values: Values, call: Call) -> Call:
    """The call as it is or, more often, with one or two arguments that may not fit."""
    if values.chance(0.35):
        return call
    arguments, may_raise = dict(call.arguments), call.may_raise
    for _ in range(values.pick(1, 1, 1, 2)):
        names = (*arguments, *arguments, *parameters_of(call))
        if names:
            name = values.pick(*names)
            arguments[name] = values.odd(arguments.get(name))
    if values.chance(0.05):
        arguments[values.pick("is_causal_", "kvlengths", "\ud800", "")] = 1
        may_raise = (*may_raise, TypeError)
    guards = tuple(guard for guard in call.guards if any(guard.array is value for value in arguments.values()))
    return call._replace(arguments=arguments, fits=False, guards=guards, may_raise=may_raise, check=sound)


def sound(result: Any) -> None:
    """Checks that the numbers of any result can be read."""
    for value in result if isinstance(result, tuple) else result.values() if isinstance(result, dict) else [result]:
        if isinstance(value, np.ndarray):
            value.tobytes()


def assert_shape(array: Any, shape: tuple[int, ...]) -> None:
    assert array.shape == shape, f"the result has shape {array.shape}, not {shape}"
