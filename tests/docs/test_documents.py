"""The tutorial and the README's first task run, and the site builds without a warning."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shiftboss.db.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A stranger's machine: `shiftboss` on the path, a data directory of its own, nothing set."""
    shim = tmp_path / "bin" / "shiftboss"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shiftboss "$@"\n')
    shim.chmod(0o755)
    paths = {"PATH": f"{shim.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    yield os.environ | paths | {"SHIFTBOSS_DATA_DIR": str(tmp_path / "data")}
    EmbeddedServer(tmp_path / "data").stop()


@pytest.mark.timeout(300)
def test_the_tutorial(tmp_path: Path, environment: dict[str, str]) -> None:
    folder, house, said = tmp_path, None, {}
    try:
        for language, code in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text()):
            if "shiftboss up" in code:
                house = start(code, folder, environment)
                continue
            command = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
            said[code] = output(command, folder, environment)
            if "cd shop" in code:
                folder = tmp_path / "shop"
    finally:
        if house is not None:
            house.send_signal(signal.SIGINT)
            house.wait(60)
    answers = list(said.values())
    assert "no capable worker" in answers[3]
    assert "Hello, Ann" in answers[4]
    assert '"pages": 3' in answers[6]
    assert "['Hello, Ann', 'Hello, Bob', 'Hello, Cleo']" in answers[7]
    assert house is not None
    assert house.returncode == 0


def start(code: str, folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    words = code.split()
    house = subprocess.Popen(
        [sys.executable, "-m", "shiftboss", *words[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert house.stdout is not None
    for line in house.stdout:
        if line.startswith("ready"):
            return house
    raise AssertionError("it did not get ready")


def output(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("document", ["README.md", "docs/index.md"])
def test_ten_lines_to_a_first_result(document: str, tmp_path: Path, environment: dict[str, str]) -> None:
    [code] = [code for language, code in BLOCK.findall((ROOT / document).read_text()) if language == "python"]
    assert sum(1 for line in code.splitlines() if line.strip()) <= 10
    assert output([sys.executable, "-c", code], tmp_path, environment) == "Hello, World\n"


def test_the_example_of_durable_work(tmp_path: Path, environment: dict[str, str]) -> None:
    text = (ROOT / "docs" / "how-to" / "durable-work.md").read_text()
    code = next(code for language, code in BLOCK.findall(text) if language == "python")
    assert output([sys.executable, "-c", code], tmp_path, environment) == "searching\nAnn approves 2 drafts\n"


def test_the_example_project_passes_its_own_tests(tmp_path: Path, environment: dict[str, str]) -> None:
    output(["shiftboss", "init", "shop"], tmp_path, environment)
    again = subprocess.run(
        ["shiftboss", "init", "shop"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    said = output(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path / "shop", environment
    )
    assert "2 passed" in said


def test_the_site_builds_and_asks_nobody_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="?(https?:|//)')
    assert not [page for page in tmp_path.rglob("*.html") if fetched.search(page.read_text())]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        built = (tmp_path / page.relative_to(ROOT / "docs")).with_suffix(".html")
        assert f"{built.relative_to(tmp_path).as_posix()}" in (tmp_path / "index.html").read_text()
    commands = (tmp_path / "reference" / "cli.html").read_text()
    assert "shiftboss queues limit" in commands
    assert "--per-key" in commands
    settings = (tmp_path / "reference" / "settings.html").read_text()
    assert "SHIFTBOSS_WORKER_CONCURRENCY" in settings


def test_the_reference_is_what_the_code_says() -> None:
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'script'}:{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-m", "manual", "--check"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
