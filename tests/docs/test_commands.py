"""Every command block of the manual is run, or listed with the reason; every command and option exists."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from shiftboss.cli.tree import tree
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.programs import programs
from tests.docs.blocks import COMMANDS, NOT_RUN, OTHERS, ROOT, blocks, fences
from tests.docs.stages import STAGES, TASKS
from tests.extensions.ai.conftest import ProtocolServer, _running_server, protocol_server_installed, server
from tests.servers import free_port

__all__ = ["_running_server", "protocol_server_installed", "server"]  # fixtures

EVERYWHERE = {"--database-url", "--data-dir", "--config", "--debug", "--help"}
PAGES = sorted({block.page for block in blocks() if block.reason is None})
SHIMS = {
    "shiftboss": f'exec "{sys.executable}" "{Path(__file__).with_name("staying.py")}" "$@"',
    "python": f'exec "{sys.executable}" "$@"',
    "problems": '"$@" || [ $? = 1 ]',
    "endless": 'timeout 3 "$@"; [ $? = 124 ]',  # the command does not end by itself
}
STOP_SECONDS = 60


@pytest.fixture
def machine(
    tmp_path: Path, database_url: str, empty_database_url: str, login: str
) -> Iterator[dict[str, str]]:
    """The environment of a reader: programs on the path, a home, free ports, and names for what pages name."""
    for folder in ("bin", "home", "stage", "work"):
        (tmp_path / folder).mkdir()
    for name, command in SHIMS.items():
        shim = tmp_path / "bin" / name
        shim.write_text(f"#!/bin/sh\n{command}\n")
        shim.chmod(0o755)
    (tmp_path / "work" / "tasks.py").write_text(TASKS)
    admin, coordinator, other = free_port(), free_port(), free_port()
    yield os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}:{programs()}",
        "HOME": str(tmp_path / "home"),
        "STAGE": str(tmp_path / "stage"),
        "SHIFTBOSS_DATABASE_URL": database_url,
        "SHIFTBOSS_DATA_DIR": str(tmp_path / "data"),
        "SHIFTBOSS_ADMIN_PORT": str(admin),
        "SHIFTBOSS_COORDINATOR_PORT": str(coordinator),
        "SHIFTBOSS_BOTS_SOURCE": str(ROOT / "src/shiftboss/extensions/bots/config/sample.geojson"),
        "ADMIN": f"http://127.0.0.1:{admin}",
        "COORDINATOR_PORT": str(coordinator),
        "OTHER_PORT": str(other),
        "EMPTY_DATABASE_URL": empty_database_url,
        "ROLE": urlsplit(login).username or "",
        "EXAMPLES": str(ROOT / "examples"),
        "SAMPLE": str(ROOT / "src/shiftboss/extensions/journal/sample"),
    }
    EmbeddedServer(tmp_path / "data").stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(
    page: str, machine: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if page == "docs/how-to/ai.md":
        provider: ProtocolServer = request.getfixturevalue("server")
        provider.answers("Minka", to="cat")
        provider.answers({"sentiment": "positive"})
        machine |= {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{provider.url}/v1"}
    try:
        done = subprocess.run(
            ["sh", "-euxc", script_of(page)],
            cwd=tmp_path / "work",
            env=machine,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    finally:
        ended = stop(tmp_path / "stage")
    assert set(ended.values()) <= {"0", "143"}, ended  # uvicorn ends by the signal that it got


def script_of(page: str) -> str:
    """The commands of a page in one shell, without those that install packages."""
    before, replaced = STAGES.get(page, ("", {}))
    text = "\n".join(block.script for block in blocks() if (block.page, block.reason) == (page, None))
    text = re.sub(r"^pip install .*$", "", text, flags=re.MULTILINE)
    for words, run in replaced.items():
        assert words in text, f"{page} does not say {words!r}"
        text = text.replace(words, run)
    return before + text


def stop(stage: Path) -> dict[str, str]:
    """Stop the commands that stay, the last one first, and return what they printed with their exit status."""
    ended = {}
    for file in sorted(stage.glob("*.pid"), reverse=True):
        output = file.with_suffix("")
        status = Path(f"{output}.status")
        if not status.exists():
            os.kill(int(file.read_text()), signal.SIGTERM)
        ends = time.monotonic() + STOP_SECONDS
        while not (status.exists() and status.read_text()) and time.monotonic() < ends:
            time.sleep(0.05)
        ended[output.read_text()] = status.read_text().strip() if status.exists() else "still running"
    return ended


def test_every_block_is_run_or_listed_with_the_reason() -> None:
    forgotten = [block for block in blocks() if block.reason is None and block.page not in STAGES]
    assert not forgotten, "name them in tests/docs/blocks.py"


def test_every_block_names_its_language() -> None:
    """A block of commands without a language, or with an unusual one, would be overlooked."""
    known = COMMANDS | OTHERS
    assert [(page, code) for page, language, code in fences() if language not in known] == []


def test_no_reason_is_out_of_date() -> None:
    given = {(page, begins) for page, reasons in NOT_RUN.items() for begins in reasons}
    used = {
        (block.page, begins)
        for block in blocks()
        for begins in NOT_RUN.get(block.page, {})
        if block.code.startswith(begins)
    }
    assert given == used


def commands(text: str) -> Iterator[list[str]]:
    """The words of each call of `shiftboss`, without what the shell does around it."""
    for line in text.replace("\\\n", " ").splitlines():
        for found in re.finditer(
            r"(?:^|[\s(`])shiftboss (?!:)((?:(?!\$\()[^`|;&)>])*)", line.split("  #")[0]
        ):
            try:
                yield shlex.split(found[1], comments=True)
            except ValueError:
                yield found[1].split()


def problem(words: list[str]) -> str | None:
    nodes: dict[str, Any] = {node.name: node for node in tree()}
    node = nodes.get(words[0])
    if words[0] in ("bot", "notes"):  # each bot has its own options; `notes` is the example of an extension
        return None
    if node is None:
        return f"there is no command {words[0]}"
    command, rest = node.command, words[1:]
    inner = {child.name: child for child in node.children}
    if rest and rest[0] in inner:
        command, rest = inner[rest[0]].command, rest[1:]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | EVERYWHERE
    wrong = [word for word in rest if re.match(r"--[a-z]", word) and word.split("=")[0] not in known]
    return f"{' '.join(words)}: there is no {wrong[0]}" if wrong else None


@pytest.mark.parametrize("page", sorted({block.page for block in blocks()}))
def test_every_command_and_option_exists(page: str) -> None:
    scripts = [block.script for block in blocks() if block.page == page]
    found = [words for script in scripts for words in commands(script) if words]
    assert [wrong for words in found if (wrong := problem(words))] == []
