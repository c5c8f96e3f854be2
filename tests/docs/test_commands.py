"""Every command block of the manual is run, or listed with the reason; every command and option exists."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiftboss.cli.tree import tree
from shiftboss.db import Database
from tests.docs import blocks as listed
from tests.docs.blocks import NOT_RUN, blocks, fences

RUN = [block for block in blocks() if block.reason is None and block.page in listed.RUN]
EVERYWHERE = {"--database-url", "--data-dir", "--config", "--debug", "--help"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", sorted(listed.RUN))
def test_the_commands_of_a_page_run(page: str, db: Database, database_url: str, tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "shiftboss"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shiftboss "$@"\n')
    shim.chmod(0o755)
    env = os.environ | {
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "SHIFTBOSS_DATABASE_URL": database_url,
        "SHIFTBOSS_DATA_DIR": str(tmp_path / "data"),
    }
    for block in (block for block in RUN if block.page == page):
        words = ["sh", "-ec", block.script]
        done = subprocess.run(
            words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{block.script}\n{done.stdout}\n{done.stderr}"


def test_every_block_is_run_or_listed_with_the_reason() -> None:
    forgotten = [block for block in blocks() if block.reason is None and block.page not in listed.RUN]
    assert not forgotten, "name them in tests/docs/blocks.py"


def test_every_block_names_its_language() -> None:
    """A block of commands without a language, or with an unusual one, would be overlooked."""
    known = listed.COMMANDS | listed.OTHERS
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
