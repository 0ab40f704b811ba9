"""Every parameter of a public function, class and method is described in its docstring, as ``:param NAME:``, and every
field of a public class by a text below it or as ``:ivar NAME:``. Reads the sources, so that it needs no library that
they need."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Union

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "python/saccade/__init__.py",
    "python/saccade/nn.py",
    "python/saccade/distributed.py",
    "python/saccade/onnx.py",
    "python/saccade/torch/__init__.py",
    "python/saccade/torch/distributed.py",
    "python/saccade/transformers/__init__.py",
    "packages/jax/saccade_jax/__init__.py",
    "packages/onnxruntime/saccade_onnxruntime/__init__.py",
)
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _public_names(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise AssertionError("the module has no __all__")


def _source_of(node: ast.ImportFrom, path: Path) -> Path | None:
    """The file of this repository that an import takes names from."""
    if node.level == 0 or node.module is None or node.module == "_core":
        return None
    base = path.parents[node.level - 1].joinpath(*node.module.split("."))
    return next((file for file in (base.with_suffix(".py"), base / "__init__.py") if file.exists()), None)


def _definition(name: str, path: Path) -> ast.ClassDef | Function | None:
    """The function or class of this name, also if the module has it from another one."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.ImportFrom) and (file := _source_of(node, path)):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(alias.name, file)
    return None


def _described(text: str, field: str = "param") -> set[str]:
    """The names that ``:param a, b:`` and the like describe with at least a word."""
    found = re.findall(rf":{field} ([\w, *]+):(?=\s*\S)", text)
    return {name.strip(" *") for names in found for name in names.split(",")}


def _parameters(function: Function) -> list[str]:
    """Those that the text has to describe. Options of ``@takes(...)`` have theirs in _options.py."""
    of = function.args
    names = [x.arg for x in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
    names += [x.arg for x in (of.vararg, of.kwarg) if x is not None and not _is_unpacked(x)]
    return [name for name in names if name not in ("self", "cls", "deprecated") and name[0] != "_"]


def _is_unpacked(argument: ast.arg) -> bool:
    return argument.annotation is not None and ast.unparse(argument.annotation).startswith("Unpack[")


def _missing_of_function(function: Function, name: str, text: str = "") -> Iterator[str]:
    described = _described(text + (ast.get_docstring(function) or ""))
    yield from (f"{name}({parameter})" for parameter in _parameters(function) if parameter not in described)


def _fields(of: ast.ClassDef) -> Iterator[tuple[str, bool]]:
    """The public fields of a class, and whether a text follows."""
    for node, after in zip(of.body, [*of.body[1:], None]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield node.target.id, is_text and isinstance(after.value.value, str)


def _missing_of_class(of: ast.ClassDef, name: str) -> Iterator[str]:
    text = ast.get_docstring(of) or ""
    yield from (f"{name}.{field}" for field, has in _fields(of) if not has and field not in _described(text, "ivar"))
    for node in of.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        is_setter = any(ast.unparse(decorator).endswith(".setter") for decorator in node.decorator_list)
        if node.name in ("__init__", "__call__"):
            yield from _missing_of_function(node, f"{name}.{node.name}", text)
        elif not node.name.startswith("_") and not is_setter:
            yield from _missing_of_function(node, f"{name}.{node.name}")


def _missing(definition: ast.ClassDef | Function, name: str) -> list[str]:
    if isinstance(definition, ast.ClassDef):
        return list(_missing_of_class(definition, name))
    return list(_missing_of_function(definition, name))


@pytest.mark.parametrize("module", [module for module in MODULES if (ROOT / module).exists()])
def test_every_parameter_is_described(module: str) -> None:
    path = ROOT / module
    missing: list[str] = []
    for name in _public_names(_parsed(path)):
        if (definition := _definition(name, path)) is not None:
            missing += _missing(definition, name)
    assert not missing, f"{module}: no description of {len(missing)}:\n" + "\n".join(missing)


def test_every_option_is_described() -> None:
    for node in _parsed(ROOT / "python/saccade/_options.py").body:
        if isinstance(node, ast.ClassDef):
            assert [field for field, has in _fields(node) if not has] == [], node.name


def test_a_missing_description_is_found() -> None:
    source = '''
def f(a, b, *, c=1, **options):
    """:param a, c: numbers.
    :param b:
    """

class C:
    """:ivar y: a number."""
    x: int
    y: int
    z: int
    """A number."""
    def __init__(self, x): pass
    def g(self, u):
        """:param u: a number."""
    def h(self, v): pass
'''
    f, c = ast.parse(source).body
    assert isinstance(f, ast.FunctionDef) and isinstance(c, ast.ClassDef)
    assert _missing(f, "f") == ["f(b)", "f(options)"]
    assert _missing(c, "C") == ["C.x", "C.__init__(x)", "C.h(v)"]
