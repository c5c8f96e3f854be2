"""Every command of the operators' guide runs, on a fleet with the problems that the guide describes."""

from __future__ import annotations

import asyncio
import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.model.task import NewTask

GUIDE = (Path(__file__).parents[2] / "docs/how-to/operate.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


@pytest.fixture
async def names(db: Database) -> dict[str, str]:
    """What the words in capitals stand for: a task that waits, one that runs, one that failed, and others."""
    await db.fetch("SELECT shiftboss.register('host-7:4711')")
    types = {"hang": "default", "send": "mail", "crash": "default"}
    await db.tasks.enqueue([NewTask(task_type=name, queue=types[name], max_attempts=1) for name in types])
    held = {task.task_type: task for task in await db.tasks.claim("host-7:4711", 10)}
    for name, error in (("send", "SMTPError: no answer"), ("crash", "poison: it took its worker down")):
        text = f'{error}\nTraceback:\n  File "{name}.py", line 3, in {name}'
        await db.fetch("SELECT shiftboss.fail(%s, %s, %s)", [[held[name].id], [held[name].lease], [text]])
    [waiting] = await db.tasks.enqueue([NewTask(task_type="send", queue="mail")])
    [later] = await db.tasks.enqueue([NewTask(task_type="send", delay=timedelta(hours=1))])
    await db.fetch("SELECT shiftboss.fold_errors()")
    [group] = await db.fetch(
        "SELECT error_group AS id FROM shiftboss.past_attempts WHERE task_id = %s", [held["send"].id]
    )
    return {
        "why": str(waiting.id),
        "run-now": str(later.id),
        "cancel": str(held["hang"].id),
        "retry": str(held["crash"].id),
        "show": str(held["crash"].id),
        "GROUP": str(group["id"]),
        "WORKER": "host-7:4711",
    }


def words(line: str, names: dict[str, str]) -> list[str]:
    """The arguments of a command, without what the shell would do with its output."""
    given = shlex.split(line, comments=True)
    given = given[: given.index(">")] if ">" in given else given
    assert given[0] == "shiftboss"
    task = next((names[word] for word in given if word in names), "")
    return [
        task if word == "TASK" else names.get(word, word) if word.isupper() else word for word in given[1:]
    ]


async def test_every_command_works(
    database_url: str,
    names: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("SHIFTBOSS_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    said: dict[str, tuple[Any, str]] = {}
    for line in COMMANDS:
        capfd.readouterr()
        code = await asyncio.to_thread(main, words(line, names))
        said[line] = code, "".join(capfd.readouterr())
    failed = {line: answer for line, answer in said.items() if answer[0] != 0 and "doctor" not in line}
    assert not failed
    assert all(code in (0, 1) for code, _ in said.values())
    assert len(said) >= 30
    answers = {line.partition("  ")[0]: answer for line, (_, answer) in said.items()}
    assert "SMTPError" in answers["shiftboss errors show GROUP"]
    assert "poison" in answers["shiftboss tasks show TASK"]
    assert names["cancel"] in answers["shiftboss tasks list --status running"]
    assert (tmp_path / "scale.png").exists()


def test_every_rule_is_explained() -> None:
    from shiftboss.leader.rules import CORE

    for rule in CORE:
        if rule.name not in (
            "worker_restarts",
            "all_workers_crashed",
        ):  # both lead to the page's part on slots
            assert f"`{rule.name}`" in GUIDE
