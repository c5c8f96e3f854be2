"""The declared rows of the read model match what its queries return."""

from __future__ import annotations

from datetime import timedelta
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from typing_extensions import is_typeddict

from shiftboss.db import Database
from shiftboss.db.insights import TaskFilter, rows
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

FILLED = """
INSERT INTO shiftboss.error_groups (id, error_type, place, message, first_seen, last_seen, count, task_id)
    VALUES ('abc', 'ValueError', 'shop.py buy', 'no', now(), now(), 2, %(failed)s);
UPDATE shiftboss.past_attempts SET error_group = 'abc';
INSERT INTO shiftboss.steps (task_id, kind, name, ordinal, state, result, attempt, lease, started_at, ended_at)
    VALUES (%(held)s, 'step', 'fetch', 1, 'done', '{"n": 1}', 1, 1, now(), now());
INSERT INTO shiftboss.parts (task_id, seq, lease, attempt, part, at) VALUES (%(held)s, 1, 1, 1, '"a"', now());
INSERT INTO shiftboss.task_logs (task_id, attempt, at, level, logger, message)
    VALUES (%(held)s, 1, now(), 20, 'shop', 'begun');
INSERT INTO shiftboss.work_totals (worker_id, task_type, completed, failed, seconds, buckets, at)
    VALUES ('w', 'buy', 1, 0, 0.5, ARRAY[1]::bigint[], now())
"""


def fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        return value.keys() == hints.keys() and all(fits(value[name], hints[name]) for name in hints)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is list:
        return isinstance(value, list) and all(fits(one, inner[0]) for one in value)
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, origin or hint)


def check(value: Any, kind: Any) -> None:
    """Name what differs: the keys first, then the values."""
    hints = get_type_hints(kind)
    assert value.keys() == hints.keys()
    assert {name: value[name] for name in hints if not fits(value[name], hints[name])} == {}


async def filled(db: Database) -> tuple[UUID, UUID]:
    """Return a running task and a failed one, with everything that the read model can show of them."""
    await db.workers.register(Member(id="w", queues=["default"]))
    made = await db.tasks.enqueue([NewTask(task_type="buy", params={"n": n}, max_attempts=1) for n in (1, 2)])
    failed, held = await db.tasks.claim("w", 2)
    await db.tasks.fail([(failed.id, failed.lease)], ["no"])
    await db.tasks.enqueue([NewTask(task_type="buy", depends_on=[held.id])])
    await db.tasks.set_limit("task_type", "buy", max_running=5, rate=3)
    await db.tasks.pause("queue", "default", "audit")
    await db.health.register_worker("worker:default:0", pid=None)
    for statement in FILLED.split(";"):
        await db.execute(statement, {"failed": failed.id, "held": held.id})
    assert {one.id for one in made} == {failed.id, held.id}
    return held.id, failed.id


async def test_rows_about_the_fleet(db: Database) -> None:
    await filled(db)
    insights = db.insights
    check(await insights.overview.counts(), rows.CountsRow)
    check(await insights.overview.glance(), rows.Glance)
    check((await insights.fleet.workers())[0], rows.WorkerRow)
    check(await insights.fleet.worker("w"), rows.WorkerDetailRow)
    check((await insights.fleet.queues())[0], rows.QueueRow)
    check((await insights.fleet.depths())[0], rows.QueueDepth)
    check((await insights.fleet.types())[0], rows.TaskTypeRow)
    check((await insights.series.throughput(timedelta(hours=1), timedelta(hours=1)))[0], rows.PointRow)
    check(await insights.figures.fleet(), rows.FleetFigures)
    check((await insights.figures.work())[0], rows.WorkFigures)
    check((await insights.figures.queues())[0], rows.QueueFigures)
    check(await insights.condition.server(), rows.ServerState)


async def test_rows_about_alerts(db: Database) -> None:
    await filled(db)
    await db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 hour'")
    check((await db.insights.overview.alerts())[0], rows.AlertRow)


async def test_rows_about_tasks(db: Database) -> None:
    held, failed = await filled(db)
    insights = db.insights
    assert {row["id"] for row in await insights.life.relatives(held)} > {held}
    for listed in (await insights.tasks.page(TaskFilter())).items:
        check(listed, rows.ListedTask)
    check((await insights.life.relatives(held))[0], rows.Relative)
    check((await insights.life.steps(held))[0], rows.StepRow)
    check((await insights.life.parts(held))[0], rows.PartRow)
    check((await insights.life.logs(held, 10))[0], rows.LogRow)
    check(await insights.errors.group("abc"), rows.ErrorGroupRow)
    check((await insights.errors.groups())[0], rows.ErrorGroupRow)
    check((await insights.errors.open_groups())[0], rows.OpenGroup)
    assert await insights.errors.members("abc") == [failed]
