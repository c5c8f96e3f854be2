from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = ["app.app", "app.calls", "app.task", "app.sync", "kit"]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_the_docstrings(name: str) -> None:
    result = doctest.testmod(import_module(f"shiftboss.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
