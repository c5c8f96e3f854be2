"""A fleet keeps every guarantee that the chaos runner checks, and each planted violation is found."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.extensions.chaos import ledger
from shiftboss.extensions.chaos.checks import _text, _wrong, check, promises
from shiftboss.extensions.chaos.cleaning import clean, install, require_alone
from shiftboss.extensions.chaos.plan import ChaosPlan
from shiftboss.extensions.chaos.tasks import QUEUE, app
from shiftboss.model.errors import UsageError
from shiftboss.model.task import NewTask
from tests.servers import direct

C = "shiftboss_chaos"
QUICK = "(SELECT t.id FROM tasks t WHERE task_type = 'chaos.quick' AND status = 'Complete' AND depends_on IS NULL AND NOT has_dependants ORDER BY id LIMIT 1)"
CLAIM = f"INSERT INTO {C}.changes (task, before, after, new_lease) VALUES"

#: What breaks each promise.
BROKEN = {
    "every task has ended": "INSERT INTO tasks (task_type) VALUES ('chaos.quick')",
    "no task is deleted": f"DELETE FROM tasks WHERE id = {QUICK}",
    "no task completes twice": f"INSERT INTO {C}.changes (task, before, after) VALUES ({QUICK}, 'In Progress', 'Complete')",
    "a finished task changes only if it is retried": f"UPDATE tasks SET status = 'Queued' WHERE id = {QUICK}",
    "no lease is issued twice": f"{CLAIM} ({QUICK}, 'Queued', 'In Progress', (SELECT lease FROM tasks WHERE id = {QUICK}))",
    "every claim has exactly one end in the history": f"{CLAIM} ({QUICK}, 'Queued', 'In Progress', 42)",
    "a result comes from the attempt that held the lease": f"UPDATE tasks SET result_data = '{{\"lease\": 1}}' WHERE id = {QUICK}",
    "an error comes from the attempt that held the lease": "UPDATE shiftboss.past_attempts SET error = 'as planned, lease 1' WHERE outcome = 'failed'",
    "no handler runs without a claim, or twice for one claim": f"INSERT INTO {C}.ledger (id, task, lease, what) SELECT gen_random_uuid(), task, lease, what FROM {C}.ledger LIMIT 1",
    "no task completes without having run": f"DELETE FROM {C}.ledger WHERE task = {QUICK}",
    "a recorded step never runs again": f"INSERT INTO {C}.changes (task, before, after, new_lease) SELECT DISTINCT task_id, 'Queued', 'In Progress', 42 FROM shiftboss.steps WHERE name = 's0';"
    f"INSERT INTO {C}.ledger (id, task, lease, what) SELECT gen_random_uuid(), task_id, 42, 's0' FROM shiftboss.steps WHERE name = 's0'",
    "a recorded step never changes": "UPDATE shiftboss.steps SET ended_at = now() WHERE kind = 'step'",
    "a step is recorded by the attempt that ran it": "UPDATE shiftboss.steps SET result = '1' WHERE kind = 'step'",
    "a task gets the results of its recorded steps": "UPDATE tasks SET result_data = jsonb_set(result_data, '{steps}', '[1]') WHERE task_type = 'chaos.stepped'",
    "no more tasks run at a time than the limit allows": "SELECT shiftboss.set_limit('task_type', 'chaos.limited', 0)",
    "no more tasks with one key run at a time than the limit allows": f"SELECT shiftboss.set_limit('task_type', 'chaos.limited', 100, 1); {CLAIM}"
    "((SELECT max(id::text)::uuid FROM tasks WHERE task_type = 'chaos.limited'), 'Queued', 'In Progress', 42),"
    "((SELECT max(id::text)::uuid FROM tasks WHERE task_type = 'chaos.limited'), 'Queued', 'In Progress', 43)",
    "only one live task has a unique key": f"INSERT INTO {C}.changes (task, before, after) SELECT id, 'Complete', 'Queued' FROM tasks, generate_series(1, 2) WHERE dedup_key IS NOT NULL",
    "a dependant starts after its parents have ended": f"INSERT INTO {C}.changes (seq, task, before, after, new_lease) SELECT 0, id, 'Queued', 'In Progress', 42 FROM tasks WHERE depends_on IS NOT NULL LIMIT 1",
    "a dependant follows its failure policy": "UPDATE tasks SET on_dependency_failure = 'cancel' WHERE depends_on IS NOT NULL; UPDATE tasks SET status = 'Failed' WHERE has_dependants",
    "a delayed task does not start early": "UPDATE tasks SET metadata = '{\"delay\": 1000}'",
    "a task gets each event once, in order": "UPDATE tasks SET result_data = jsonb_set(result_data, '{events}', '[1, 1]') WHERE task_type = 'chaos.waiting'",
    "a parent gets the results of its children": "UPDATE tasks SET result_data = jsonb_set(result_data, '{children}', '[1]') WHERE task_type = 'chaos.nesting'",
    "a task fails only for an expected reason": f"UPDATE tasks SET status = 'Failed' WHERE id = {QUICK}",
    "an attempt fails only if its handler does": "UPDATE shiftboss.past_attempts SET error = 'no connection' WHERE outcome = 'failed'",
    "a task is cancelled only on request": f"UPDATE tasks SET status = 'Cancelled' WHERE id = {QUICK}",
}


@pytest.mark.session
async def test_each_promise_is_kept_and_can_be_broken(
    db: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ChaosPlan("checks", size=80, quick=0.3)
    monkeypatch.setenv(ledger.URL, database_url)
    await install(db)
    await _run(db, plan)
    assert BROKEN.keys() == promises().keys()
    async with await psycopg.AsyncConnection.connect(direct(database_url)) as conn:
        for promise, query in promises().items():
            await conn.execute(BROKEN[promise])
            await conn.execute(_text("prepare.sql"))
            assert await (await conn.execute(query)).fetchall(), f"nobody noticed: {promise}"
            await conn.rollback()
    # One batch more than there was: all of it is missing, and nothing else is wrong.
    found = {one.promise: one.broken async for one in check(db, plan, 2, set())}
    assert {promise: n for promise, n in found.items() if n} == {"every task that was enqueued is there": 80}
    await clean(db)
    await require_alone(db)
    left = "SELECT (SELECT count(*) FROM tasks) + (SELECT count(*) FROM shiftboss.steps) + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'chaos%') AS n"
    assert (await db.fetch(left))[0]["n"] == 0


async def _run(db: Database, plan: ChaosPlan) -> None:
    """One batch, done by a worker of this process."""
    await app.use(db)
    await db.tasks.enqueue(plan.batch(0))
    for event in plan.events(0):
        await db.steps.send_event(event.key, event.payload, id=event.id)
    live = "SELECT count(*) AS n FROM tasks WHERE status IN ('Queued', 'In Progress')"
    async with app.worker(queues=[QUEUE]):
        while (await db.fetch(live))[0]["n"]:
            await asyncio.sleep(0.05)
    await app.close()


@pytest.mark.parametrize(
    ("stream", "wrong"),
    [
        ([[1, False, 0, 7, 1], [2, False, 1, 7, 2]], None),
        (
            [
                [1, False, 0, 7, 1],
                [2, True, {"discard": [1]}, 8, None],
                [3, False, 0, 8, 1],
                [4, False, 1, 8, 2],
            ],
            None,
        ),
        ([[1, False, 0, 7, 1], [3, False, 1, 7, 2]], "numbers"),
        ([[1, False, 0, 7, 1], [2, False, 1, 7, 1]], "repeated or out of order"),
        ([[1, False, 0, 7, 1]], "a reader gets [0]"),
        ([[1, False, 0, 7, 1], [2, False, 0, 8, 1], [3, False, 1, 8, 2]], "a reader gets [0, 0, 1]"),
    ],
)
def test_streams(stream: list[list[object]], wrong: str | None) -> None:
    found = list(_wrong(stream, 2))
    assert not found if wrong is None else any(wrong in one for one in found)


async def test_a_database_that_is_in_use_is_refused(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="mail")])
    with pytest.raises(UsageError, match="1 other tasks and 0 other workers"):
        await require_alone(db)


async def test_two_runs_at_once_are_refused(db: Database) -> None:
    await install(db)
    with pytest.raises(UsageError, match="another run"):
        await install(db)
