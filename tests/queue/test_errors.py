"""Failures with one cause form one group, and a group can be retried."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.leader.pruner import Pruner
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import NotFound
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member
from shiftboss.operations import Operations
from shiftboss.worker.executor import describe

BOSS = Principal("boss", Role.ADMIN)


def shelf(number: int) -> None:
    raise ValueError(f"no shelf {number}")


def till(number: int) -> None:
    raise ValueError(f"no till {number}")


def raised(call: Any, number: int) -> str:
    try:
        call(number)
    except ValueError as error:
        return describe(error)
    raise AssertionError


TRACEBACK = """ProviderError: no model
Traceback (most recent call last):
  File "/srv/shop/{own}.py", line 7, in {own}
  File "/venv/lib/python3.11/site-packages/shiftboss/extensions/ai/fallback.py", line 30, in _first
"""


async def test_the_place_of_an_error_is_in_the_callers_code(db: Database) -> None:
    for own in ("summary", "title"):
        place = await db.value(str, "SELECT shiftboss.error_place(%s)", [TRACEBACK.format(own=own)])
        assert place == f"shop/{own}.py in {own}"
    inside = TRACEBACK.replace("/srv/shop/{own}.py", "/srv/shiftboss/worker.py").replace("{own}", "run")
    assert await db.value(str, "SELECT shiftboss.error_place(%s)", [inside]) == "ai/fallback.py in _first"


async def fail(
    db: Database, worker: str, errors: Sequence[str | None], outcome: str = "failed", version: str = "1.0"
) -> list[UUID]:
    """Tasks that fail so on this worker."""
    await db.workers.register(Member(id=worker, version=version))
    await db.tasks.enqueue([NewTask(task_type=f"of {worker}", max_attempts=1) for _ in errors])
    claimed = await db.tasks.claim(worker, len(errors))
    held = [(task.id, task.lease) for task in claimed]
    await db.tasks.fail(held, list(errors), [outcome] * len(errors))  # type: ignore[arg-type]
    return [task.id for task in claimed]


async def test_a_group_is_a_type_at_a_place(db: Database) -> None:
    await fail(db, "w1", [raised(shelf, 1), raised(shelf, 22), raised(till, 1)], version="1.0")
    last = await fail(db, "w2", [raised(shelf, 3)], version="1.1")
    await Pruner(db).fold()
    await fail(db, "w1", ["its worker is gone"], "lost")
    await fail(db, "w1", ["connection 17 refused by host", "connection 4 refused by host", None])
    await Pruner(db).fold()
    groups = {(row["error_type"], row["place"]): row for row in await db.insights.errors.groups()}
    assert {key: row["count"] for key, row in groups.items()} == {
        ("ValueError", "queue/test_errors.py in shelf"): 3,
        ("ValueError", "queue/test_errors.py in till"): 1,
        ("lost", None): 1,
        ("connection # refused by host", None): 2,
        ("unknown", None): 1,
    }
    shelves = groups["ValueError", "queue/test_errors.py in shelf"]
    assert shelves["first_seen"] < shelves["last_seen"]
    assert shelves["message"] == "ValueError: no shelf 3"
    assert shelves["task_id"] == last[0]
    assert (shelves["workers"], shelves["versions"]) == (["w1", "w2"], ["1.0", "1.1"])
    assert shelves["task_types"] == ["of w1", "of w2"]
    assert await db.insights.errors.group(shelves["id"][:6]) == shelves
    with pytest.raises(NotFound, match="no error group"):
        await db.insights.errors.group("xyz")


async def test_failures_are_listed_before_and_after_the_leader_counts_them(db: Database) -> None:
    async def seen() -> dict[str, int]:
        return {row["message"]: row["count"] for row in await db.insights.errors.groups()}

    await fail(db, "w1", [raised(shelf, 1), raised(till, 1)])
    [first, second] = await db.insights.errors.groups()
    assert {first["count"], second["count"]} == {1}
    assert first == await db.insights.errors.group(first["id"])
    assert len(await db.insights.errors.open_groups()) == 2
    await Pruner(db).fold()
    assert [first, second] == await db.insights.errors.groups()
    await fail(db, "w2", [raised(shelf, 2)])
    before = await db.insights.errors.groups()
    assert await seen() == {"ValueError: no shelf 2": 2, "ValueError: no till 1": 1}
    await Pruner(db).fold()
    assert before == await db.insights.errors.groups()
    assert await db.value(int, "SELECT shiftboss.fold_errors()") == 0


async def test_a_group_is_retried_by_what_ended_its_tasks(db: Database) -> None:
    ended = await fail(db, "w1", [raised(shelf, n) for n in range(3)])
    others = await fail(db, "w1", [raised(till, 1)])
    await Pruner(db).fold()
    group = next(row for row in await db.insights.errors.groups() if row["count"] == 3)
    operations = Operations(db, Settings.load())
    assert set(await operations.retry_errors(BOSS, group["id"])) == set(ended)
    rows = await db.fetch("SELECT id FROM tasks WHERE status = 'Queued'")
    assert {row["id"] for row in rows} == set(ended)
    # One of them ends otherwise this time, and is no longer the group's.
    [task] = await db.tasks.claim("w1", 1)
    await db.tasks.fail([(task.id, task.lease)], [raised(till, 2)])
    assert await db.insights.errors.members(group["id"]) == []
    other = next(row for row in await db.insights.errors.groups() if row["count"] == 2)
    assert set(await db.insights.errors.members(other["id"])) == {task.id, *others}


async def test_groups_are_bounded_and_forgotten(db: Database) -> None:
    await db.execute(
        "INSERT INTO shiftboss.error_groups (id, error_type, first_seen, last_seen, count)"
        " SELECT n::text, 'E', now(), now() - n * interval '1 minute', 1 FROM generate_series(1, 1100) n"
    )
    await db.execute("SELECT shiftboss.tidy_errors('7 days')")
    assert len(await db.insights.errors.groups(limit=2000)) == 1000
    await db.execute("SELECT shiftboss.tidy_errors('10 minutes 30 seconds')")
    assert len(await db.insights.errors.groups(limit=2000)) == 10
    names = [f"w{n}" for n in range(30)]
    row = await db.fetch_one("SELECT shiftboss.latest_names(%s, '{w0,new}') AS names", [names])
    assert row == {"names": names[:20]}


async def test_the_command_line(
    db: Database, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def said(*args: str) -> str:
        capsys.readouterr()
        assert await asyncio.to_thread(main, ["errors", *args]) == 0
        return capsys.readouterr().out

    ended = await fail(db, "w1", [raised(shelf, n) for n in range(2)])
    await Pruner(db).fold()
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    [group] = json.loads(await said("list", "--since", "1h", "--json"))
    assert f"{group['id']}\t2\t" in await said("list")
    shown = await said("show", group["id"][:8])
    assert "error type    ValueError" in shown
    assert str(ended[0]) in shown
    assert await said("retry", group["id"]) == "2 tasks will run again\n"
    assert await said("retry", group["id"]) == "0 tasks will run again\n"
