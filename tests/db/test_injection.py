"""SQL injection by names of roles, queues, types, workers and events; for tables, see the vectorizer's tests."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from shiftboss.db import Database
from shiftboss.db.roles import Kind, grants
from shiftboss.model.task import NewTask
from tests.conftest import as_superuser

EVIL = (
    'x"; DROP TABLE public.tasks; --',
    "x'; DROP TABLE public.tasks; --",
    "$$; DROP TABLE public.tasks; $$",
    "%s {role} %(a)s \\",
    'a.b"."c',
    "semi;colon -- comment /* block",
)


@pytest.mark.parametrize("name", EVIL)
async def test_a_role(database_url: str, name: str) -> None:
    name += database_url[-6:]
    with psycopg.connect(as_superuser(database_url), autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(name)))
        try:
            for kind in Kind:
                await grants(database_url, kind, name, apply=True)
            query = "SELECT has_table_privilege(%s, 'public.tasks', 'SELECT')"
            assert conn.execute(query, [name]).fetchone() == (True,)
        finally:
            conn.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(sql.Identifier(name)))


@pytest.mark.parametrize("name", EVIL)
async def test_a_queue_a_type_a_worker_an_event_a_schedule(db: Database, name: str) -> None:
    keys = {"tenant": name, "dedup_key": name, "concurrency_key": name}
    [made] = await db.tasks.enqueue([NewTask(task_type=name, queue=name, **keys)])
    await db.tasks.pause("queue", name, name)
    await db.tasks.resume("queue", name)
    await db.tasks.set_limit("queue", name, max_running=5)
    await db.events.note("test", worker_id=name, component=name)
    await db.steps.send_event(name, {"a": 1})
    await db.health.register_worker(f"worker:{name}:0", pid=None)
    [task] = await db.tasks.claim(name, 1)
    assert (task.id, task.queue, task.task_type) == (made.id, name, name)
    assert await db.tasks.fail([(task.id, task.lease)], [name]) == []
    assert (await db.tasks.why(made.id))[0].reason
