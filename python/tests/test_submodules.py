"""The modules of saccade load on first use: after `import saccade` alone, each that its libraries are there for."""

from __future__ import annotations

import importlib.util
import pkgutil
import subprocess
import sys

import pytest
import saccade

# Of each public module: a name that it has, the packages that it needs, and what an error calls them.
MODULES = {
    "distributed": ("attention", [], ""),
    "nn": ("MultiHeadAttention", [], ""),
    "onnx": ("run_model", ["onnx"], "saccade.onnx needs the package onnx"),
    "torch": ("patch", ["torch"], "saccade.torch needs PyTorch"),
    "transformers": ("register", ["torch", "transformers"], "saccade.transformers needs Hugging Face transformers"),
}


def run(program: str) -> str:
    """What a fresh interpreter prints for it."""
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def is_there(packages: list[str]) -> bool:
    return all(importlib.util.find_spec(package) for package in packages)


def test_the_list_is_whole():
    found = {module.name for module in pkgutil.iter_modules(saccade.__path__)}
    assert {name for name in found if not name.startswith("_")} == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_imported_when_it_is_asked_for(name):
    member, packages, _ = MODULES[name]
    if not is_there(packages):
        pytest.skip(f"needs {' and '.join(packages)}")
    program = f"""
import sys
import saccade
assert not {packages} or "saccade.{name}" not in sys.modules
assert "{name}" in dir(saccade)
assert callable(saccade.{name}.{member})
assert saccade.{name} is sys.modules["saccade.{name}"]
"""
    run(program)


@pytest.mark.parametrize("name", [name for name, (_, packages, _) in MODULES.items() if packages])
def test_without_its_library_an_import_error_names_it(name):
    _, packages, message = MODULES[name]
    if not is_there(packages[:-1]):
        pytest.skip(f"needs {packages[0]}")
    program = f"""
import pydoc, sys
import saccade
sys.modules["{packages[-1]}"] = None
assert "{name}" not in dir(saccade)
assert "Exact attention on the CPU" in pydoc.render_doc(saccade)  # help() looks at everything that dir() has
try:
    saccade.{name}
except ImportError as error:
    print(error)
"""
    assert message in run(program)


def test_nothing_is_imported_before():
    program = """
import sys
import saccade
dir(saccade)
print(sorted({"distributed", "torch", "transformers", "onnx"} & {name.split(".")[-1] for name in sys.modules}))
"""
    assert run(program) == "[]\n"


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'saccade' has no attribute 'torhc'"):
        saccade.torhc()
