"""The version of the package is the library's, as Python writes it."""

from __future__ import annotations

import importlib.metadata
import re

import pytest
import saccade


def test_a_version_before_a_release_sorts_before_it():
    library = saccade.info()["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", saccade.__version__)
    assert saccade.__version__ == library.replace("-dev", ".dev0")


def test_it_is_that_of_the_installed_package():
    try:
        installed = importlib.metadata.version("saccade")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("saccade is not installed here, but imported from a build")
    assert saccade.__version__ == installed
