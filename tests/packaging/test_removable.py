"""The core works without extensions, and with those of other people."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.packaging.conftest import EXTENSIONS, ROOT, Installation, build_wheel, commands_of

Installed = Callable[..., Installation]

APP = """
from shiftboss import App

app = App("shop")


@app.task()
async def greet(name: str) -> str:
    return f"Hello, {name}"
"""
# What the core's tests need beyond the core itself.
TEST_TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis")


@contextmanager
def fleet(installation: Installation, data_dir: Path, *words: str) -> Iterator[None]:
    """`shiftboss up` until the block ends."""
    command = [str(installation.bin / "shiftboss"), "up", *words, "--workers", "1"]
    environment = installation.environment | {"SHIFTBOSS_DATA_DIR": str(data_dir)}
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=installation.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("ready:"):
                break
        else:
            pytest.fail("".join(said))
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def check_commands(installation: Installation, data_dir: Path) -> None:
    """Every command shows its help, or names the extra to install."""
    for name in commands_of(installation.run("shiftboss", "--help").stdout):
        done = installation.run("shiftboss", name, "--help", data_dir=data_dir, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or "pip install 'shiftboss[" in done.stderr, (name, done.stderr)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("without", [("journal", "bots"), EXTENSIONS], ids=["no applications", "core only"])
def test_what_is_left_works(installed: Installed, tmp_path: Path, without: tuple[str, ...]) -> None:
    installation, data = installed(without), tmp_path / "data"
    (tmp_path / "shop.py").write_text(APP)
    listed = commands_of(installation.run("shiftboss", "--help").stdout)
    assert "journal" not in listed
    assert "bot" not in listed
    check_commands(installation, data)
    with fleet(installation, data, "shop:app"):
        greeted = installation.run("shiftboss", "submit", "shop.greet", "name=World", "--wait", data_dir=data)
        assert greeted.stdout.strip() == '"Hello, World"'
        assert "1 worker" in installation.run("shiftboss", "status", data_dir=data).stdout
        installation.run("shiftboss", "doctor", data_dir=data)


@pytest.mark.timeout(400)
def test_the_cores_tests_pass_without_extensions(installed: Installed, tmp_path: Path) -> None:
    installation = installed(EXTENSIONS)
    installation.install(*TEST_TOOLS)
    chosen = ["tests/queue/test_contract.py", "tests/model", "tests/lifecycle", "tests/db/test_migrate.py"]
    done = installation.run(
        "python", "-m", "pytest", "-q", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"),
        "-o", "pythonpath=", *(str(ROOT / name) for name in chosen), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.timeout(400)
def test_an_extension_of_other_people(installed: Installed, tmp_path: Path) -> None:
    installation, data = installed(extras=("embedded", "admin")), tmp_path / "data"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    installation.environment["SHIFTBOSS_ADMIN_PORT"] = str(port)
    wheel = build_wheel(ROOT / "examples" / "extension", tmp_path / "notes")
    installation.install("--no-deps", str(wheel))
    with fleet(installation, data):
        assert (
            installation.run("shiftboss", "notes", "add", "count these four words", data_dir=data).stdout
            == "1\n"
        )
        waited = installation.run("shiftboss", "submit", "notes.count", "id=1", "--wait", data_dir=data)
        assert waited.stdout.strip() == "4"
        assert (
            "4\tcount these four words"
            in installation.run("shiftboss", "notes", "list", data_dir=data).stdout
        )
        with urlopen(f"http://127.0.0.1:{port}/notes") as answer:  # the page, in the frame of the dashboard
            page = answer.read().decode()
        assert "<title>Notes" in page
        assert "count these four words" in page
        assert "notes wait to be counted" in installation.run("shiftboss", "doctor", data_dir=data).stdout
    long = installation.run("shiftboss", "notes", "add", "x" * 2000, data_dir=data, check=False)
    assert long.returncode == 2
    assert "notes.longest" in long.stderr
