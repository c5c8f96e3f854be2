"""`script/test` runs every test once: in parallel, and what measures time alone."""

from __future__ import annotations

import os
import re
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
SERIAL = """
import os
import pytest

@pytest.mark.serial
def test_alone():
    assert "PYTEST_XDIST_WORKER" not in os.environ

def test_beside_others():
    assert "PYTEST_XDIST_WORKER" in os.environ
"""
DEADLY = """
import os
import pytest

@pytest.mark.parametrize("n", range(40))
def test_it(n):
    if n < 3:
        os._exit(1)
"""
HOOKS = "from tests.conftest import pytest_handlecrashitem, pytest_xdist_make_scheduler\n"


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
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # only what it needs: it starts four processes
    command = ["bash", project / "script" / "test", "-p", "xdist"]
    return subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=100)


def test_a_failure_is_a_failure(project: Path) -> None:
    """A test that would pass the second time has failed."""
    done = run(project, SHAKY)
    assert done.returncode == 1
    assert done.stdout.count("test_shaky") >= 1


def test_what_measures_time_runs_alone(project: Path) -> None:
    done = run(project, SERIAL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("1 passed") == 2


def test_tests_that_end_their_process_are_named_and_the_others_run(project: Path) -> None:
    (project / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {str(SCRIPT.parents[1])!r})\n{HOOKS}"
    )
    done = run(project, DEADLY)
    assert (done.returncode, "3 failed, 37 passed" in done.stdout) == (1, True), done.stdout + done.stderr
    assert [f"test_it[{n}] took its process down" in done.stderr for n in range(3)] == [True] * 3


def test_no_tests_at_all_is_said(project: Path) -> None:
    assert run(project).returncode == 5


def test_another_python_gets_an_environment_of_its_own(project: Path) -> None:
    interpreter = project / "bin" / "python9.9"
    interpreter.parent.mkdir()
    interpreter.write_text("#!/bin/sh\n")  # whatever it is asked, it is that version
    interpreter.chmod(0o755)
    (project / ".venv" / "bin" / "python").write_text("#!/bin/sh\necho $0 $* >>calls; exit 5\n")
    setup = 'mkdir -p "$SHIFTBOSS_VENV" && cp -r .venv/bin "$SHIFTBOSS_VENV" && echo "$PYTHON" >python'
    (project / "script" / "setup").write_text(f"#!/bin/sh\n{setup}\n")
    env = os.environ | {"PATH": f"{interpreter.parent}:{os.environ['PATH']}"}
    command = ["bash", project / "script" / "test", "--python", "9.9", "tests/db"]
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 5, done.stdout + done.stderr
    assert (project / "python").read_text().strip() == str(interpreter)
    calls = (project / "calls").read_text().splitlines()
    assert [call.startswith(f"{project}/.venv-9.9/bin/python -m pytest") for call in calls] == [True, True]
    assert all(call.endswith("tests/db") for call in calls)


def test_a_python_that_cannot_be_had_is_said(project: Path) -> None:
    command = ["bash", project / "script" / "test", "--python", "9.8"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=100)
    assert (done.returncode, "Python 9.8 was not found" in done.stderr) == (2, True)


def test_no_function_of_a_script_hides_the_program_that_it_looks_for() -> None:
    """`command -v name` finds a function of that name, so nothing would be installed."""
    for script in SCRIPT.parent.iterdir():
        lines = script.read_text().splitlines() if script.is_file() else []
        functions = {line.removesuffix("() {") for line in lines if line.endswith("() {")}
        wanted = {name for line in lines for name in re.findall(r"command -v \"?([\w-]+)", line)}
        assert not functions & wanted, script
