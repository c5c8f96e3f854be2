"""`script/test` forgives what passes alone, and says so where it can not be overlooked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "script" / "test"

SHAKY = """
from pathlib import Path

def test_steady():
    pass

def test_shaky():
    seen = Path("seen")
    again = seen.exists()
    seen.touch()
    assert again
"""
BROKEN = """
def test_broken():
    assert False
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own with this script; what sets it up has been done."""
    for folder in ("script", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "script" / "test")
    for path, command in [("script/setup", "true"), (".venv/bin/python", f'exec "{sys.executable}" "$@"')]:
        (tmp_path / path).write_text(f"#!/bin/sh\n{command}\n")
        (tmp_path / path).chmod(0o755)
    return tmp_path


def run(project: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    for n, text in enumerate(tests):
        (project / f"test_{n}.py").write_text(text)
    env = os.environ | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
    }  # only what it needs: it starts eight processes
    command = ["bash", project / "script" / "test", "-p", "xdist"]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=100)


def test_what_passes_alone_is_named_at_the_very_end(project: Path) -> None:
    done = run(project, SHAKY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.strip().splitlines()[-2].startswith("==> 1 passed only when tried again")
    assert done.stderr.strip().splitlines()[-1] == "test_0.py::test_shaky"


def test_what_fails_twice_has_failed(project: Path) -> None:
    done = run(project, SHAKY, BROKEN)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("test_0.py::test_shaky")
    assert "test_broken" not in done.stderr
