"""Scripts and benchmarks import only what there is."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [*(ROOT / "script").glob("*.py"), *(ROOT / "bench").glob("*.py")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_imported_of_the_package_exists(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "shiftboss":
            for name in node.names:
                _import(node.module or "", name.name)


def _import(module: str, name: str) -> None:
    """An attribute of the module, or a module below it."""
    if not hasattr(import_module(module), name):
        import_module(f"{module}.{name}")
