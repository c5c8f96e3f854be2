"""The health table and its API: which component may write which state, and in which order."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import nullcontext
from uuid import UUID, uuid4

import pytest

from shiftboss.db import Database
from shiftboss.model.errors import DatabaseError, UsageError
from shiftboss.model.slot import SlotStatus
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

SLOT = "worker:processing:0"


async def status_of(db: Database, component: str = SLOT) -> str | None:
    row = await db.health.get_worker(component)
    return None if row is None else row["status"]


async def bring_to(db: Database, status: str, component: str = SLOT) -> None:
    """Walk a new row to a state by legal steps."""
    await db.health.register_worker(component=component, pid=7, status="starting")
    paths = {
        "starting": [],
        "healthy": ["healthy"],
        "stopping": ["healthy", "stopping"],
        "crashed": ["crashed"],
        "failed": ["crashed", "failed"],
    }
    for step in paths[status]:
        await db.health.update_status(component=component, status=step)
    await db.execute("UPDATE health SET restart_count = 2 WHERE component = %s", [component])


async def test_the_documented_round(db: Database) -> None:
    before = time.time()
    await db.health.register_worker(component=SLOT, pid=4711, status="starting")
    row = await db.health.get_worker(SLOT)
    assert row is not None
    assert row.keys() == {
        *("component", "last_seen", "status", "pid", "current_job", "details_json"),
        *("restart_count", "last_restart", "created_at"),
    }
    assert (row["status"], row["pid"], row["restart_count"], row["last_restart"]) == (
        "starting",
        4711,
        0,
        None,
    )
    assert abs(row["last_seen"] - before) < 60
    assert row["created_at"] == pytest.approx(row["last_seen"], abs=5)

    job = await claimed(db, SLOT)
    await db.health.update_heartbeat(component=SLOT, status="healthy", current_job=job)
    assert [worker["status"] for worker in await db.health.get_all_workers()] == ["healthy"]
    await db.health.update_status(component=SLOT, status="crashed")
    assert await db.health.increment_restart_count(SLOT) == 1
    await db.health.update_status(component=SLOT, status="starting", pid=4712)
    again = await db.health.get_worker(SLOT)
    assert again is not None
    assert (again["pid"], again["restart_count"], again["current_job"]) == (4712, 1, None)
    assert again["created_at"] == row["created_at"]
    await db.health.update_heartbeat(component=SLOT, status="healthy", current_job=None)
    await db.health.update_status(component=SLOT, status="stopping")
    assert await db.health.remove_worker(component=SLOT)
    assert await db.health.get_worker(SLOT) is None


async def test_leaving_the_current_job_is_not_clearing_it(db: Database) -> None:
    job = await claimed(db, SLOT)
    await db.health.register_worker(SLOT, 1)
    await db.health.update_heartbeat(SLOT, current_job=job)
    await db.health.update_heartbeat(SLOT)
    row = await db.health.get_worker(SLOT)
    assert row is not None
    assert row["current_job"] == job
    await db.health.update_heartbeat(SLOT, current_job=None)
    row = await db.health.get_worker(SLOT)
    assert row is not None
    assert row["current_job"] is None


async def claimed(db: Database, worker_id: str) -> UUID:
    """A task that this worker holds."""
    await db.workers.register(Member(id=worker_id))
    await db.tasks.enqueue([NewTask(task_type="t")])
    [task] = await db.tasks.claim(worker_id)
    return task.id


async def test_the_current_job_is_a_task_that_the_slots_worker_holds(db: Database) -> None:
    component = await db.health.open_slot("here", "q")
    own, others = await claimed(db, f"here/{component}"), await claimed(db, "somebody else")

    async def told(job: UUID | None) -> UUID | None:
        assert await db.health.update_heartbeat(component, current_job=job) is not None
        row = await db.health.get_worker(component)
        assert row is not None
        told: UUID | None = row["current_job"]
        return told

    assert await told(own) == own
    assert await told(others) is None
    assert await told(uuid4()) is None
    assert await told(own) == own
    await db.execute("SELECT public.func_mark_task_complete(%s)", [own])
    assert await told(own) is None
    await db.execute("UPDATE health SET current_job = %s", [others])
    row = await db.health.get_worker(component)
    assert row is not None
    assert row["current_job"] is None


ARROWS = {
    ("starting", "healthy"),
    ("starting", "crashed"),
    ("healthy", "stopping"),
    ("healthy", "crashed"),
    ("stopping", "crashed"),
    ("crashed", "starting"),
    ("crashed", "failed"),
}
"""The documented ones; a failed slot becomes another only by a manual restart."""


async def test_only_the_documented_transitions_are_allowed(db: Database) -> None:
    for number, (old, new) in enumerate(itertools.permutations(SlotStatus, 2)):
        slot = f"worker:arrows:{number}"
        await bring_to(db, old, slot)
        allowed = (old, new) in ARROWS
        with nullcontext() if allowed else pytest.raises(DatabaseError):
            await db.health.update_status(slot, new)
        assert await status_of(db, slot) == (new if allowed else old)


@pytest.mark.parametrize("status", ["healthy", "stopping", "crashed", "failed"])
async def test_a_row_begins_as_starting(db: Database, status: str) -> None:
    with pytest.raises(DatabaseError, match="must be starting"):
        await db.execute("INSERT INTO health (component, status) VALUES (%s, %s)", [SLOT, status])
    assert await db.health.get_all_workers() == []


async def test_failed_ends_only_by_hand_and_then_the_count_begins_anew(db: Database) -> None:
    await bring_to(db, "failed")
    with pytest.raises(DatabaseError, match="manual restart"):
        await db.health.register_worker(SLOT, 8)
    with pytest.raises(DatabaseError, match="failed"):
        await db.health.increment_restart_count(SLOT)
    # the documented way through a database shell
    await db.execute(
        "UPDATE health SET status = 'crashed', restart_count = 0, last_restart = NULL WHERE component = %s",
        [SLOT],
    )
    assert await status_of(db) == "crashed"


async def test_a_worker_writes_only_its_own_row_and_never_its_end(db: Database) -> None:
    other = "worker:processing:1"
    await bring_to(db, "healthy")
    await bring_to(db, "healthy", other)
    health = db.health
    for forbidden in (
        health.update_status(SLOT, "crashed", by=SLOT),
        health.update_status(SLOT, "stopping", by=other),
        health.update_heartbeat(SLOT, by=other),
        health.update_details(SLOT, {"paused": True}, by=other),
        health.remove_worker(SLOT, by=other),
        health.register_worker(SLOT, 9, by=other),
    ):
        with pytest.raises(DatabaseError, match="may not"):
            await forbidden
    async with db.transaction() as conn:
        await conn.execute("SELECT set_config('shiftboss.writer', %s, true)", [SLOT])
        with pytest.raises(Exception, match="restart count"):
            await conn.execute("UPDATE health SET restart_count = 0 WHERE component = %s", [SLOT])
    row = await health.get_worker(SLOT)
    assert row is not None
    assert (row["status"], row["restart_count"], row["details_json"]) == ("healthy", 2, None)
    await health.update_status(SLOT, "stopping", by=SLOT)
    assert await health.remove_worker(SLOT, by=SLOT)


async def test_the_writer_of_one_call_is_not_the_writer_of_the_next(db: Database) -> None:
    await bring_to(db, "healthy")
    async with db.transaction() as conn:
        await conn.execute("SELECT * FROM shiftboss.update_heartbeat(%s, p_by => %s)", [SLOT, SLOT])
        await conn.execute("SELECT shiftboss.update_status(%s, 'crashed')", [SLOT])
    assert await status_of(db) == "crashed"


async def test_details_are_patched_and_no_key_is_lost(db: Database) -> None:
    await db.health.register_worker(SLOT, 1, details={"queue_type": "processing", "batch_size": 8})
    await db.health.update_details(SLOT, json.dumps({"paused": True}))
    await db.health.update_details(SLOT, {"note": "x"}, by=SLOT)
    row = await db.health.get_worker(SLOT)
    assert row is not None
    assert json.loads(row["details_json"]) == {
        "queue_type": "processing",
        "batch_size": 8,
        "paused": True,
        "note": "x",
    }
    for wrong in ("[1]", "no json"):
        with pytest.raises(UsageError, match="JSON"):
            await db.health.update_details(SLOT, wrong)


async def test_a_beat_of_a_former_process_does_not_land(db: Database) -> None:
    await db.health.register_worker(SLOT, 1)
    assert await db.health.update_heartbeat(SLOT, pid=1) is not None
    await db.health.register_worker(SLOT, 2)
    assert await db.health.update_heartbeat(SLOT, pid=1) is None
    assert not await db.health.remove_worker(SLOT, pid=1)
    assert await status_of(db) == "starting"


async def test_unknown_components_are_an_error_that_says_so(db: Database) -> None:
    for call in (
        db.health.update_status("worker:x:0", "healthy"),
        db.health.update_details("worker:x:0", {}),
        db.health.increment_restart_count("worker:x:0"),
        db.health.pause_workers(["worker:x:0"]),
        db.health.restart_workers(queue="x"),
    ):
        with pytest.raises(DatabaseError, match=r"no worker|no workers"):
            await call
    assert await db.health.update_heartbeat("worker:x:0") is None
    assert not await db.health.remove_worker("worker:x:0")


async def test_hosts_get_different_slots_and_keep_theirs(db: Database) -> None:
    ours = [await db.health.open_slot("a", "q") for _ in range(2)]
    theirs = [await db.health.open_slot("b", "q") for _ in range(2)]
    assert ours + theirs == ["worker:q:0", "worker:q:1", "worker:q:2", "worker:q:3"]
    with pytest.raises(DatabaseError, match="slot of host a"):
        await db.health.register_worker("worker:q:0", 1, host="b")
    assert [row["component"] for row in await db.health.survey("b")] == theirs
    await db.health.remove_worker("worker:q:1")
    assert await db.health.open_slot("b", "q") == "worker:q:1"


async def test_a_slot_opened_again_keeps_its_name_and_history(db: Database) -> None:
    await db.health.open_slot("a", "q")
    slot = await db.health.open_slot("a", "q")
    await db.health.update_status(slot, "crashed")
    await db.health.increment_restart_count(slot)
    await db.health.pause_workers([slot])
    former = next(row for row in await db.health.survey("a") if row["component"] == slot)["former"]
    await db.health.remove_worker(slot)
    await db.health.remove_worker("worker:q:0")
    assert await db.health.open_slot("a", "q", former) == slot
    row = await db.health.get_worker(slot)
    assert row is not None
    assert (row["restart_count"], row["created_at"]) == (1, json.loads(former)["created_at"])
    assert json.loads(row["details_json"])["paused"] is True


async def running_task(db: Database, member: str) -> str:
    await db.workers.register(Member(id=member, queues=["q"]))
    await db.tasks.enqueue([NewTask(task_type="t", queue="q")])
    [claimed] = await db.tasks.claim(member)
    return str(claimed.id)


async def test_a_crash_puts_the_task_back_at_once_with_its_reason_and_the_second_is_poison(
    db: Database,
) -> None:
    slot = await db.health.open_slot("a", "q")
    member = f"a/{slot}"
    task = await running_task(db, member)
    assert await db.health.mark_crashed(slot, "killed by SIGKILL")
    assert not await db.health.mark_crashed(slot, "killed by SIGKILL")
    row = await db.fetch_one("SELECT status, crashes, attempts FROM tasks WHERE id = %s", [task])
    assert row == {"status": "Queued", "crashes": 1, "attempts": 1}
    past = await db.fetch("SELECT outcome, error FROM shiftboss.past_attempts WHERE task_id = %s", [task])
    assert past == [{"outcome": "crashed", "error": "killed by SIGKILL"}]

    await db.health.update_status(slot, "starting", pid=2)
    await db.workers.register(Member(id=member, queues=["q"]))
    assert await db.tasks.claim(member)
    await db.health.mark_crashed(slot, "killed by SIGSEGV")
    row = await db.fetch_one("SELECT status, error_message FROM tasks WHERE id = %s", [task])
    assert row is not None
    assert row["status"] == "Failed"
    assert "poison" in row["error_message"]
    assert "SIGSEGV" in row["error_message"]


async def test_who_beat_meanwhile_is_not_marked(db: Database) -> None:
    slot = await db.health.open_slot("a", "q")
    [row] = await db.health.watch_list()
    await db.health.update_heartbeat(slot)
    assert not await db.health.mark_crashed(slot, "silent", last_seen=row["last_seen"])
    assert await status_of(db, slot) == "healthy"


async def test_pause_reaches_the_registry_and_those_who_join_later(db: Database) -> None:
    slots = [await db.health.open_slot("a", queue) for queue in ("q", "q", "r")]
    first, second, other = (f"a/{slot}" for slot in slots)
    await db.workers.register(Member(id=first, queues=["q"]))
    assert await db.health.pause_workers(queue="q") == slots[:2]
    await db.workers.register(Member(id=second, queues=["q"]))
    await db.workers.register(Member(id=other, queues=["r"]))
    paused = await db.fetch("SELECT id FROM workers WHERE paused ORDER BY id")
    assert [row["id"] for row in paused] == [first, second]
    await db.tasks.enqueue([NewTask(task_type="t", queue="q")])
    assert await db.tasks.claim(first) == []
    assert await db.health.resume_workers() == slots
    assert len(await db.tasks.claim(first)) == 1


async def test_a_manual_restart_resets_the_count_and_is_an_order_to_its_own_supervisor(db: Database) -> None:
    await db.health.begin_supervisor("a", 1, {"q": 1})
    slot = await db.health.open_slot("a", "q")
    orphan = await db.health.open_slot("b", "q")
    for component in (slot, orphan):
        await db.health.update_status(component, "crashed", reason="boom")
        await db.health.increment_restart_count(component)
        await db.health.update_status(component, "failed")
    assert {alert["alert"] for alert in await db.health.alerts()} == {"worker_failed", "all_workers_crashed"}
    orders = {row["component"]: row for row in await db.health.restart_workers()}
    assert orders[slot]["ordered"] is True
    assert orders[orphan]["ordered"] is False
    assert "on b" in orders[orphan]["note"]
    [row] = await db.health.survey("a")
    assert (row["status"], row["restart_count"], row["restart_ordered"]) == ("crashed", 0, True)
    assert await db.health.take_restart_order(slot)
    assert not await db.health.take_restart_order(slot)


async def test_slots_are_set_on_one_supervisor(db: Database) -> None:
    with pytest.raises(DatabaseError, match="no supervisor"):
        await db.health.set_slots("q", 2)
    await db.health.begin_supervisor("a", 1, {"q": 1})
    assert await db.health.set_slots("q", 3) == "a"
    await db.health.begin_supervisor("b", 1, {})
    with pytest.raises(DatabaseError, match="a, b"):
        await db.health.set_slots("q", 2)
    assert await db.health.set_slots("r", 1, host="b") == "b"
    assert await db.health.wanted_slots("a") == {"q": 3}
    with pytest.raises(DatabaseError, match="0 to 1000"):
        await db.health.set_slots("q", -1, host="a")


async def test_metrics_and_alerts(db: Database) -> None:
    metrics = await db.health.metrics()
    assert metrics["seconds_since_last_crash"] is None
    slots = [await db.health.open_slot("a", "q") for _ in range(2)]
    for _ in range(4):
        await db.health.update_status(slots[0], "crashed")
        await db.health.increment_restart_count(slots[0])
        await db.health.update_status(slots[0], "starting")
    await db.health.update_heartbeat(slots[1])
    metrics = await db.health.metrics()
    assert (metrics["restarts_total"], metrics["crashes_total"], metrics["restart_count"]) == (4, 4, 4)
    assert (metrics["starting"], metrics["healthy"], metrics["failed"]) == (1, 1, 0)
    assert metrics["seconds_since_last_crash"] < 60
    assert [alert["alert"] for alert in await db.health.alerts()] == ["worker_restarts"]
    for slot in slots:
        await db.health.remove_worker(slot)
    assert (await db.health.metrics())["crashes_total"] == 4
    kinds = [event["kind"] for event in await db.events.latest(limit=500, component=slots[0])]
    assert kinds.count("slot.crashed") == kinds.count("slot.restarted") == 4
    assert kinds[0] == "slot.removed"
