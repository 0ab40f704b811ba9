"""No module of the package imports itself by way of others: what two modules share is in a third."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import saccade

ROOT = Path(saccade.__file__).parent


def _modules() -> dict[str, Path]:
    names = {}
    for path in ROOT.rglob("*.py"):
        parts = ("saccade", *path.relative_to(ROOT).with_suffix("").parts)
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def _on_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: not the bodies of functions, nor what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from _on_import(other)
            continue
        yield child
        yield from _on_import(child)


def _imports(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in _on_import(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from . import x` takes the module x, which may be compiled; else a name of the package itself.
            of_package = [f"{base}.{alias.name}" for alias in node.names]
            found |= {
                one if one in modules or alias.name == "_core" else base for one, alias in zip(of_package, node.names)
            }
    return found & modules.keys() - {name}


def test_the_imports_form_no_circle() -> None:
    modules = _modules()
    open_modules = {name: _imports(name, path, modules) for name, path in modules.items()}
    assert open_modules["saccade"], "the package imports its modules"
    while done := [name for name, others in open_modules.items() if not others & open_modules.keys()]:
        for name in done:
            del open_modules[name]
    assert not open_modules
