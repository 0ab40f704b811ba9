"""What help(), editors and type checkers see: every public name has a docstring, and functions a signature
whose types can be resolved."""

import inspect
import sys
import typing

import pytest
import saccade


def public():
    """All public functions, classes, methods and properties, with their names."""
    for module in (saccade, saccade.nn, saccade.distributed):
        for name in module.__all__:
            thing = getattr(module, name)
            yield f"{module.__name__}.{name}", thing
            if inspect.isclass(thing):
                for member, value in vars(thing).items():
                    if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                        yield f"{module.__name__}.{name}.{member}", value


@pytest.mark.parametrize("name, thing", list(public()))
def test_has_a_docstring(name, thing):
    assert inspect.getdoc(thing), name


@pytest.mark.skipif(sys.version_info < (3, 11), reason="typing.Unpack came with Python 3.11")
@pytest.mark.parametrize("name, thing", [pair for pair in public() if inspect.isfunction(pair[1])])
def test_has_types(name, thing):
    hints = typing.get_type_hints(thing)
    assert {*inspect.signature(thing).parameters, "return"} - {"self"} == set(hints), name


@pytest.mark.parametrize("name", ["info", "manual_seed", "get_num_threads", "release_workspaces", "set_num_threads"])
def test_functions_of_the_machine_are_functions(name):
    assert inspect.isfunction(getattr(saccade, name))
