"""Wheels of Shiftboss with some extensions taken out, each installed into an environment of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXTENSIONS = ("admin", "agents", "ai", "bots", "chaos", "grpc", "journal", "ray", "runs", "vectorizer")
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("SHIFTBOSS_", "PYTHON"))
}


class Installation:
    """An environment with a wheel in it; `run` calls its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.environment = ENVIRONMENT | {"VIRTUAL_ENV": str(folder / "venv")}

    def install(self, *what: str) -> None:
        uv = Path(sys.executable).with_name("uv")
        command = [
            str(uv),
            "pip",
            "install",
            "--quiet",
            "--constraint",
            str(ROOT / "requirements.lock"),
            *what,
        ]
        subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)

    def run(
        self, *words: str, data_dir: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        environment = self.environment | ({"SHIFTBOSS_DATA_DIR": str(data_dir)} if data_dir else {})
        command = [str(self.bin / words[0]), *words[1:]]
        done = subprocess.run(
            command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


def build_wheel(source: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., Installation]:
    """`installed(without=("journal",), extras=("admin",))`."""

    def make(without: tuple[str, ...] = (), extras: tuple[str, ...] = ("embedded",)) -> Installation:
        copy = tmp_path / "source"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", copy / "src", ignore=ignore)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        for name in without:
            shutil.rmtree(copy / "src" / "shiftboss" / "extensions" / name)
        wheel = build_wheel(copy, tmp_path / "dist")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
        installation = Installation(tmp_path)
        chosen = f"[{','.join(extras)}]" if extras else ""
        installation.install(f"shiftboss{chosen} @ {wheel.as_uri()}")
        return installation

    return make


def commands_of(help: str) -> list[str]:
    """The commands that `shiftboss --help` lists."""
    listed = help.partition("Commands:")[2].partition("Options")[0]
    return re.findall(r"^  (\w+)", listed, re.MULTILINE)
