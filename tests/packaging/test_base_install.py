"""Every command of a plain `pip install shiftboss` works, or names the extra to install."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.packaging.conftest import Installation
from tests.servers import SUPERUSER, direct, until

APP = """
from shiftboss import App

app = App("shop")


@app.task()
async def greet(name: str) -> str:
    return f"Hello, {name}"
"""
# Prints every command with the names of its required arguments. One whose packages are missing is a command as well.
LIST = """
import json
from shiftboss.cli import commands, load_command, _brought

def leaves(path, command):
    inner = getattr(command, "commands", None)
    if inner:
        for name, each in inner.items():
            yield from leaves([*path, name], each)
    else:
        yield path, [p.name for p in command.params if p.required and p.param_type_name == "argument"]

found = [(full.split(), []) for full in _brought() if " " in full]
for name, command in commands().items():
    try:
        found += leaves([name], load_command(name, command))
    except ModuleNotFoundError:
        found.append(([name], []))
print(json.dumps(found))
"""
SAMPLES = {
    "target": "shop:app",
    "app": "shop:app",
    "cron": "* * * * *",
    "wanted": "default=1",
    "values": "default=1",
    "assignments": "default=1",
    "id": "00000000-0000-7000-8000-000000000001",
    "task": "00000000-0000-7000-8000-000000000001",
    "role": "viewer",
    "shell": "bash",
    "directory": "made",
    "count": "1",
}
# These go on until they are stopped: the first line that they say tells whether they work.
LASTING = ("up", "worker", "supervise", "admin", "coordinator", "vectorizer work", "top")
# These go on as well, and print nothing here: this query tells that they have begun to work.
SILENT = {"tasks tail": "AS params_preview", "vectorizer feed": "ai._vectorizers_enqueue"}


@pytest.mark.timeout(900)
def test_every_command_works_or_names_its_extra(
    installed: Callable[..., Installation], tmp_path: Path, database_url: str
) -> None:
    installation = installed(extras=())
    (tmp_path / "shop.py").write_text(APP)
    listed = installation.run("python", "-c", LIST).stdout
    commands = [[*path, *(SAMPLES.get(name, "1") for name in needed)] for path, needed in json.loads(listed)]
    assert len(commands) > 60
    environment = installation.environment | {"SHIFTBOSS_DATABASE_URL": direct(database_url)}
    with ThreadPoolExecutor(3) as pool:
        said = list(pool.map(lambda words: run(installation, words, environment, tmp_path), commands))
    wrong = {" ".join(words): end for words, end in zip(commands, said, strict=True) if not fine(*end)}
    assert wrong == {}
    extras = {
        " ".join(words) for words, (_, text) in zip(commands, said, strict=True) if "pip install" in text
    }
    assert len(extras) < len(commands) / 2, "most commands need no extra"


def run(
    installation: Installation, words: list[str], environment: dict[str, str], folder: Path
) -> tuple[int | None, str]:
    """Exit code and what it said; of a command that goes on, None and its first words."""
    command = " ".join(words)
    own = {"SHIFTBOSS_DATA_DIR": str(folder / "data"), "COLUMNS": "200", "PGAPPNAME": command}
    process = subprocess.Popen(
        [str(installation.bin / "shiftboss"), *words],
        env=environment | own,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    if query := SILENT.get(command):
        until(lambda: process.poll() is not None or asks(command, query), f"{command} does nothing")
    elif command.startswith(LASTING):
        select.select([process.stdout], [], [], 60)
    else:
        text, _ = process.communicate(timeout=120)
        return process.returncode, text.decode()
    process.terminate()
    text, _ = process.communicate(timeout=60)
    return None, text.decode()


def asks(command: str, query: str) -> bool:
    """Whether the command has asked the database for this."""
    done = "SELECT FROM pg_stat_activity WHERE application_name = %s AND state = 'idle' AND query LIKE %s"
    with psycopg.connect(os.environ[SUPERUSER]) as conn:
        return conn.execute(done, [command, f"%{query}%"]).fetchone() is not None


def fine(code: int | None, text: str) -> bool:
    """It ended well, or with an error of ours; what is missing is named by the extra that brings it."""
    if "Traceback" in text or ("No module named" in text and "pip install" not in text):
        return False
    found = text.startswith("ok\tinstalled")  # doctor exits with 1 if it found something
    return code in (0, None) or found or "error:" in text.lower() or "Usage:" in text


def test_what_counts_as_fine() -> None:
    assert fine(0, "ok")
    assert fine(2, "error: needs numpy\nhint: pip install 'shiftboss[ai]'")
    assert not fine(1, "Traceback (most recent call last): ...")
    assert not fine(1, "error: No module named 'yaml'")
