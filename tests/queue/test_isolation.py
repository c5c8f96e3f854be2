"""Two concurrent sessions at every isolation level: each call is right or raises a serialization error."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from shiftboss.db import Database
from shiftboss.model.task import NewTask

P1, P2, CHILD, DEAD, ONE, TWO, HELD, PARKED, KEYED, NEW = (
    f"00000000-0000-0000-0000-00000000000{n}" for n in range(10)
)

#: Two running parents of one child, a cancelled child of the first; a type that may run once, and one that may run once per
#: key, with one running and one waiting; a dead task with a dedup_key.
WORLD = f"""
DELETE FROM public.tasks; DELETE FROM public.workers; DELETE FROM shiftboss.dependencies; DELETE FROM shiftboss.limits;
DELETE FROM shiftboss.pauses; DELETE FROM shiftboss.stats; DELETE FROM shiftboss.past_attempts;
DELETE FROM ai.vectorizer_worker_process;
INSERT INTO ai.vectorizer_worker_process (id, version, expected_heartbeat_interval) VALUES ('{P1}', '1', '1 minute');
SELECT shiftboss.register(w, p_queues => ARRAY[q]) FROM (VALUES ('w', 'default'), ('w1', 'one'), ('wk', 'keyed')) v (w, q);
SELECT shiftboss.set_limit('task_type', 'one', 1), shiftboss.set_limit('task_type', 'keyed', NULL, 1);
INSERT INTO public.tasks (id, task_type, queue, concurrency_key) VALUES ('{P1}', 't', 'default', NULL),
    ('{P2}', 't', 'default', NULL), ('{HELD}', 'keyed', 'keyed', 'k');
SELECT count(*) FROM shiftboss.claim('w', 10);
SELECT count(*) FROM shiftboss.claim('wk', 10);
UPDATE public.tasks SET lease = right(id::text, 1)::bigint + 1 WHERE status = 'In Progress';
INSERT INTO public.tasks (id, task_type, queue, depends_on) VALUES ('{CHILD}', 't', 'default', '{{{P1},{P2}}}'),
    ('{DEAD}', 't', 'default', '{{{P1}}}');
SELECT count(*) FROM shiftboss.cancel('{{{DEAD}}}');
INSERT INTO public.tasks (id, task_type, queue) VALUES ('{ONE}', 'one', 'one'), ('{TWO}', 'one', 'one');
INSERT INTO public.tasks (id, task_type, queue, concurrency_key) VALUES ('{PARKED}', 'keyed', 'keyed', 'k');
INSERT INTO public.tasks (id, task_type, queue, dedup_key, status) VALUES ('{KEYED}', 't', 'other', 'd', 'Failed');
"""

P1_HELD, P2_HELD, KEY_HELD = f"'{{{P1}}}', '{{1}}'", f"'{{{P2}}}', '{{2}}'", f"'{{{HELD}}}', '{{7}}'"
BEAT = '[{"queue": "default", "task_type": "t", "completed": 1, "buckets": [], "beat": 1}]'
CALLS = {
    "complete first parent": f"shiftboss.complete({P1_HELD}, NULL)",
    "complete second parent": f"shiftboss.complete({P2_HELD}, NULL)",
    "complete keyed": f"shiftboss.complete({KEY_HELD}, NULL)",
    "fail": f"shiftboss.fail({P1_HELD}, '{{boom}}', '{{failed}}', '{{false}}')",
    "fail keyed": f"shiftboss.fail({KEY_HELD}, '{{boom}}')",
    "defer": f"shiftboss.defer({P2_HELD}, '{{0}}', '{{later}}')",
    "cancelled": f"shiftboss.cancelled({P1_HELD})",
    "report": f"shiftboss.report('{{w}}', {P1_HELD}, '{{completed}}', '{{null}}', '{{1}}', '{{0}}', '{{false}}')",
    "progress": f"shiftboss.progress({P1_HELD}, '{{5}}', NULL)",
    "extend": f"shiftboss.extend({P1_HELD}, '1 minute')",
    "cancel parent": f"shiftboss.cancel('{{{P1}}}')",
    "cancel child": f"shiftboss.cancel('{{{CHILD}}}')",
    "retry child": f"shiftboss.retry('{{{DEAD}}}')",
    "retry keyed": f"shiftboss.retry('{{{KEYED}}}')",
    "enqueue child": f"""shiftboss.enqueue('[{{"task_type": "t", "depends_on": ["{P1}"]}}]')""",
    "enqueue keyed": """shiftboss.enqueue('[{"task_type": "t", "dedup_key": "d"}]')""",
    "claim one": "shiftboss.claim('w1', 1)",
    "claim keyed": "shiftboss.claim('wk', 1)",
    "claim documented": "public.func_claim_available_task('w1')",
    "assign": f"shiftboss.assign('{{{TWO}}}', 'w1')",
    "assign many": f"shiftboss.assign_each('{{{ONE}}}', '{{w1}}')",
    "watch": f"shiftboss.watch('{{{P1},{CHILD}}}')",
    "register": "shiftboss.register('w')",
    "leave": "shiftboss.leave('w')",
    "beat": f"shiftboss.beat('w', '{{1,2}}', NULL, '{BEAT}')",
    "rescue": "shiftboss.rescue()",
    "lose worker": "shiftboss.lose_worker('{wk}')",
    "pause": "shiftboss.pause('task_type', 'one')",
    "limit": "shiftboss.set_limit('task_type', 'keyed', NULL, 1)",
    "prune": "shiftboss.prune('0')",
    "mark complete": f"public.func_mark_task_complete('{P2}')",
    "mark failed": f"public.func_mark_task_failed('{P2}', 'boom')",
    "reset orphans": "public.func_reset_orphaned_tasks('{w}')",
    "heartbeat": "public.func_update_worker_heartbeat('w', 10, 5)",
    "tracking": f"ai._worker_heartbeat(worker_id => '{P1}', successes => 1, errors => 0, error_message => NULL)",
}
#: Those that come first: what they write, the others read.
PARTNERS = [
    "complete second parent", "complete keyed", "fail", "defer", "cancel parent", "cancel child", "retry child", "retry keyed",
    "enqueue child", "enqueue keyed", "claim one", "claim keyed", "watch", "leave", "beat",
]  # fmt: skip
#: What must never be so, whoever came first.
WRONG = """
SELECT 'held without a dependency' AS wrong FROM public.tasks t WHERE status = 'Queued' AND hold = 'dependency'
    AND NOT EXISTS (SELECT FROM shiftboss.dependencies d WHERE d.child_id = t.id)
UNION ALL SELECT 'an edge from a parent that ended' FROM shiftboss.dependencies d
    WHERE NOT EXISTS (SELECT FROM public.tasks p WHERE p.id = d.parent_id AND p.status IN ('Queued', 'In Progress'))
UNION ALL SELECT 'not held for a live parent' FROM public.tasks t
    WHERE t.status = 'Queued' AND t.hold IS DISTINCT FROM 'dependency' AND EXISTS (SELECT FROM public.tasks p
        WHERE p.id = ANY (t.depends_on) AND p.status IN ('Queued', 'In Progress'))
UNION ALL SELECT 'over max_running' FROM public.tasks WHERE task_type = 'one' AND status = 'In Progress' HAVING count(*) > 1
UNION ALL SELECT 'over max_per_key' FROM public.tasks WHERE task_type = 'keyed' AND status = 'In Progress' HAVING count(*) > 1
UNION ALL SELECT 'parked beside a free key' FROM public.tasks t WHERE t.status = 'Queued' AND t.hold = 'limit'
    AND NOT EXISTS (SELECT FROM public.tasks r WHERE r.status = 'In Progress' AND r.concurrency_key = t.concurrency_key)
UNION ALL SELECT 'a beat counted twice' FROM shiftboss.stats WHERE completed > 1 AND task_type = 't' AND seconds = 0
"""


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("second", CALLS)
async def test_crossing_calls(db: Database, level: str, second: str) -> None:
    async with db.dedicated() as late, db.dedicated() as early:
        for first in PARTNERS:
            await early.execute(WORLD)
            raised = await _cross(late, early, level, CALLS[second], CALLS[first])
            assert raised is None or level != "READ COMMITTED", f"{second} after {first}: {raised}"
            wrong = await (await early.execute(WRONG)).fetchall()
            assert wrong == [], f"{second} after {first}"


async def _cross(late: Any, early: Any, level: str, second: str, first: str) -> str | None:
    """The second call in a transaction whose snapshot is from before the first; again if it could not be serialized."""
    await late.execute(f"BEGIN ISOLATION LEVEL {level}")
    await late.execute("SELECT count(*) FROM public.tasks")
    await early.execute(f"BEGIN ISOLATION LEVEL {level}")
    await early.execute(f"SELECT * FROM {first}")
    await early.execute("COMMIT")
    try:
        await late.execute(f"SELECT * FROM {second}")
        await late.execute("COMMIT")
    except psycopg.errors.SerializationFailure as error:
        await late.execute("ROLLBACK")
        await late.execute(f"SELECT * FROM {second}")
        return str(error)
    return None


@pytest.mark.session  # a dedicated connection goes to the server itself
@pytest.mark.parametrize("pooled", [False, True])
async def test_a_session_of_ours_is_read_committed(
    db: Database, database_url: str, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """Behind a pooler the session's default is left alone, and each statement is a transaction of its own."""
    monkeypatch.setenv("SHIFTBOSS_DATABASE_POOLED", str(pooled))
    name = database_url.rpartition("/")[2]
    await db.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    async with await Database.open(database_url) as other:
        shown = [await other.fetch_one("SHOW transaction_isolation")]
        async with other.transaction() as conn:
            shown.append(await (await conn.execute("SHOW transaction_isolation")).fetchone())
        async with other.dedicated() as conn:
            shown.append(await (await conn.execute("SHOW transaction_isolation")).fetchone())
    assert shown == [{"transaction_isolation": "read committed"}] * 3


async def test_the_rescuer_frees_a_held_task_without_a_dependency(db: Database) -> None:
    await db.tasks.enqueue([NewTask(task_type="t", id=UUID(P1))])
    await db.tasks.enqueue([NewTask(task_type="t", id=UUID(CHILD), depends_on=[UUID(P1)])])
    await db.execute("DELETE FROM shiftboss.dependencies")
    [reason] = [
        row
        for row in await db.fetch("SELECT * FROM shiftboss.why(%s)", [CHILD])
        if row["reason"] == "dependency"
    ]
    assert "none is left" in reason["detail"]
    await db.workers.rescue()
    row = await db.fetch_one("SELECT hold FROM tasks WHERE id = %s", [CHILD])
    assert row == {"hold": None}
