"""Unusual input is refused, and one unusual row does not hide the others."""

from __future__ import annotations

import httpx
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc import codec
from shiftboss.model.errors import DatabaseError

RUN = "/api/v1/admin/workers/run"
TASKS = "/api/v1/admin/tasks"
SCHEDULE = "/api/v1/admin/schedules/s"
DEEP = '{"a":' * 2000 + "1" + "}" * 2000


@pytest.mark.parametrize("value", ["1" + "0" * 30, "1e400", '"\\ud800"', '"\\u0000"', DEEP, "NaN"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", TASKS, '{"task_type": "t", "params": {"v": %s}}'),
        ("PUT", SCHEDULE, '{"cron": "* * * * *", "task_type": "t", "params": {"v": %s}}'),
        ("PUT", SCHEDULE, '{"cron": "* * * * *", "task_type": "t", "requires": {"features": %s}}'),
        ("POST", RUN, '{"bot": "discovery", "params": {"source": %s}}'),
        ("POST", RUN, '{"bot": "monitor", "params": {"stale_days": %s}}'),
    ],
)
async def test_no_value_is_a_server_error(
    api: httpx.AsyncClient, method: str, path: str, body: str, value: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await api.request(method, path, content=body % value, headers=headers)
    assert answer.status_code < 500, answer.text
    for read in (TASKS, "/api/v1/admin/schedules", "/api/v1/admin/workers/runs", "/metrics"):
        assert (await api.get(read)).status_code == 200


@pytest.mark.parametrize(
    "odd",
    ["capabilities = '[]'", "resource_usage = '[]'", "resource_limits = '5'", "last_heartbeat = 'infinity'"],
)
async def test_a_worker_that_nobody_could_read_is_refused(db: Database, odd: str) -> None:
    await db.execute("SELECT func_update_worker_heartbeat('odd')")
    with pytest.raises(DatabaseError, match="must be JSON objects"):
        await db.execute(f"UPDATE public.workers SET {odd}")


async def test_one_odd_worker_does_not_hide_the_others(api: httpx.AsyncClient, db: Database) -> None:
    await db.execute("SELECT func_update_worker_heartbeat('good'), func_update_worker_heartbeat('odd')")
    await db.execute(
        """UPDATE public.workers SET capabilities = '{"max_concurrent_tasks": "many"}',"""
        """ resource_usage = '{"cpu_percent": "x", "memory_mb": null, "task_count": -1}' WHERE id = 'odd'"""
    )
    paths = ("workers", "worker-health", "overview", "metrics/snapshot", "queues", "alerts")
    got = {path: (await api.get(f"/api/v1/admin/{path}")).status_code for path in paths}
    assert got == dict.fromkeys(paths, 200)
    assert [codec.health(row).worker_id for row in await db.workers.health()] == ["good", "odd"]
    await db.autoscale.load("default")
