"""Rules of an enqueue that no other test would miss. Each was found by a mutant."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError
from tests.queue.test_claim_rules import holding, impatient
from tests.queue.test_queue import enqueue
from tests.queue.test_sessions import _has, in_a_session
from tests.queue.test_small_rules import status


async def test_ten_years_are_not_too_long(db: Database) -> None:
    await db.execute(
        "INSERT INTO tasks (task_type, timeout, backoff_max) VALUES ('t', '10 years', '10 years')"
    )
    for column in ("timeout", "backoff_max"):
        with pytest.raises(DatabaseError, match=f"{column} is longer than 10 years"):
            await db.execute(f"INSERT INTO tasks (task_type, {column}) VALUES ('t', '10 years 1 day')")


async def test_the_smallest_payload_limit(db: Database) -> None:
    await db.fetch("SELECT shiftboss.set_payload_limit(64)")
    with pytest.raises(DatabaseError, match="63 bytes is too small"):
        await db.fetch("SELECT shiftboss.set_payload_limit(63)")
    await enqueue(db, params={"a": 1})
    with pytest.raises(DatabaseError, match="exceed the limit of 64 bytes"):
        await enqueue(db, params={"a": "b" * 100})


async def test_terms_are_checked_when_they_change(db: Database) -> None:
    await enqueue(db)
    for change in ("deadline = 'infinity'", "timeout = '11 years'", "dedup_key = repeat('x', 1001)"):
        with pytest.raises(DatabaseError, match=change.partition(" ")[0]):
            await db.execute(f"UPDATE tasks SET {change}")


async def test_a_parent_is_updated_once_in_a_transaction(db: Database) -> None:
    parent = await enqueue(db)
    where = "SELECT ctid::text AS place, has_dependants FROM tasks WHERE id = %s"
    child = "INSERT INTO tasks (task_type, depends_on) VALUES ('t', ARRAY[%s]::uuid[])"
    places = set()
    async with db.dedicated() as conn:
        await conn.execute("BEGIN")
        for _ in range(3):
            await conn.execute(child, [parent])
            row = await (await conn.execute(where, [parent])).fetchone()
            assert row is not None
            assert row["has_dependants"]
            places.add(row["place"])
        await conn.execute("COMMIT")
    assert len(places) == 1


async def test_an_empty_type_is_refused_by_the_name_of_its_rule(db: Database) -> None:
    async with db.dedicated() as conn:
        with pytest.raises(psycopg.errors.CheckViolation) as error:
            await conn.execute("INSERT INTO tasks (task_type) VALUES ('')")
    assert error.value.diag.constraint_name == "tasks_type_named"
    assert error.value.diag.table_name == "tasks"


async def test_enqueue_refuses_a_task_without_a_type(db: Database) -> None:
    for task in ({"params": {}}, {"task_type": None}):
        with pytest.raises(DatabaseError, match="a task has no task_type"):
            await db.fetch("SELECT * FROM shiftboss.enqueue(%s)", [json.dumps([{"task_type": "a"}, task])])
    assert await db.fetch("SELECT id FROM tasks") == []


async def test_only_a_type_makes_an_unusable_task_usable(db: Database) -> None:
    old, other = await enqueue(db), await enqueue(db)
    await db.execute("ALTER TABLE tasks DISABLE TRIGGER announce_lane")
    await db.execute("UPDATE tasks SET task_type = '', hold = 'unusable'")
    await db.execute("ALTER TABLE tasks ENABLE TRIGGER announce_lane")
    await db.execute("UPDATE tasks SET priority = 7 WHERE id = %s", [old])
    assert (await status(db, old))["hold"] == "unusable"
    await db.execute("UPDATE tasks SET task_type = 'render' WHERE id = %s", [old])
    assert [(await status(db, id))["hold"] for id in (old, other)] == [None, "unusable"]


async def twin_that_ends(db: Database) -> None:
    """A task with the key k, which ends as soon as another enqueue has found it."""
    twin = await enqueue(db, dedup_key="k")
    await db.execute(
        "CREATE FUNCTION end_twin() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN UPDATE public.tasks SET status = 'Complete' WHERE id = '{twin}'; RETURN NULL; END$$"
    )
    await db.execute(
        "CREATE TRIGGER end_twin AFTER INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION end_twin()"
    )


async def test_a_task_whose_twin_ends_meanwhile_is_made_after_all(db: Database) -> None:
    await twin_that_ends(db)
    tasks = [{"task_type": "a"}, {"task_type": "b", "dedup_key": "k"}, {"task_type": "c"}]
    made = await db.fetch("SELECT id, created FROM shiftboss.enqueue(%s)", [json.dumps(tasks)])
    assert [row["created"] for row in made] == [True, True, True]
    assert [(await status(db, row["id"]))["task_type"] for row in made] == ["a", "b", "c"]


async def test_a_task_whose_twins_end_again_and_again_is_given_up(db: Database) -> None:
    await twin_that_ends(db)
    with pytest.raises(DatabaseError, match="start and end too quickly"):
        await db.fetch(
            "SELECT * FROM shiftboss.enqueue(%s, 1)", [json.dumps([{"task_type": "b", "dedup_key": "k"}])]
        )


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_each_task_of_a_batch_with_its_own_window_is_made(db: Database, count: int) -> None:
    tasks = [{"task_type": "t", "dedup_key": f"k{n}", "dedup_for": "1 hour"} for n in range(count)]
    for created in (True, False):
        made = await db.fetch("SELECT created FROM shiftboss.enqueue(%s)", [json.dumps(tasks)])
        assert made == [{"created": created}] * count


async def test_a_delay_counts_from_now_on(db: Database) -> None:
    task = json.dumps([{"task_type": "t", "delay": "1 hour"}])
    await db.fetch("SELECT shiftboss.enqueue(%s)", [task])
    rows = await db.fetch("SELECT run_at - updated_at = interval '1 hour' AS right FROM tasks")
    assert rows == [{"right": True}]


@pytest.mark.session
async def test_all_parents_are_locked_first_and_by_age(
    db: Database, eventually: Callable[..., Awaitable[Any]]
) -> None:
    older, younger = await enqueue(db), await enqueue(db)
    tasks = json.dumps([{"task_type": "t", "depends_on": [str(id)]} for id in (younger, older)])
    async with holding(db, "SELECT FROM tasks WHERE id = %s FOR UPDATE", older):
        adding = asyncio.create_task(in_a_session(db, f"SELECT * FROM shiftboss.enqueue('{tasks}')"))
        await eventually(lambda: _has(db, 1))
        await impatient(db, "SELECT FROM tasks WHERE id = %s FOR UPDATE NOWAIT", younger)
    assert len(await adding) == 2


@pytest.mark.parametrize(
    ("origin", "priority", "stored"),
    [("user_requested", 9, 9), ("user_requested", 5, 5), ("user_requested", None, 10), (None, 9, 9)],
)
async def test_the_priority_of_an_origin_is_a_default(
    db: Database, origin: str | None, priority: int | None, stored: int
) -> None:
    await db.fetch(
        "SELECT shiftboss.enqueue(%s)",
        [json.dumps([{"task_type": "t", "origin": origin, "priority": priority}])],
    )
    assert await db.fetch("SELECT priority FROM tasks") == [{"priority": stored}]


async def test_a_priority_that_is_right_already_is_not_written_again(db: Database) -> None:
    task = json.dumps([{"task_type": "t", "origin": "batch_processing", "priority": 5}])
    await db.fetch("SELECT shiftboss.enqueue(%s)", [task])
    assert await db.fetch("SELECT ctid::text AS place FROM tasks") == [{"place": "(0,1)"}]


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ('["gpu"]', "requires must be a JSON object, not array"),
        ('{"gpu": 1}', 'requires: "gpu" must be of type boolean, not number'),
        ('{"gqu": true}', 'requires: unknown key "gqu"'),
    ],
)
async def test_requirements_are_refused_in_their_own_words(db: Database, requires: str, said: str) -> None:
    with pytest.raises(DatabaseError, match=said):
        await db.execute("INSERT INTO tasks (task_type, requires) VALUES ('t', %s)", [requires])


@pytest.mark.parametrize("end", ["Failed", "Cancelled"])
@pytest.mark.parametrize(("policy", "become"), [(None, "Cancelled"), ("fail", "Failed"), ("run", "Queued")])
async def test_a_child_of_a_task_that_has_failed(db: Database, end: str, policy: Any, become: str) -> None:
    parent = await enqueue(db)
    await db.execute("UPDATE tasks SET status = %s", [end])
    child = await status(db, await enqueue(db, depends_on=[parent], on_dependency_failure=policy))
    assert child["status"] == become
    if become != "Queued":
        assert child["error_message"] == f"dependency {parent} is {end}"
        assert child["generation_processed_at"] is not None
    assert child["hold"] is None


@pytest.mark.parametrize("tasks", ["{}", "null", "7"])
async def test_what_is_no_list_of_tasks_is_a_wrong_value(db: Database, tasks: str) -> None:
    with pytest.raises(DatabaseError, match="must be a JSON array of tasks") as error:
        await db.fetch("SELECT * FROM shiftboss.enqueue(%s::jsonb)", [tasks])
    assert error.value.sqlstate == "22023"
