"""A claimed task has the same fields in the SQL type, the Python class and the message."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc import messages
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.model.task import Claimed

FULL = """
INSERT INTO tasks (task_type, params, queue, priority, tenant, timeout, deadline, run_id, metadata, crashes, run_at)
VALUES ('t', '{"n": 1}', 'q', 7, 'acme', '90 seconds', '2100-01-01', gen_random_uuid(), '{"m": [2]}', 1, now() - interval '1 h')
RETURNING id
"""


async def test_type_class_and_message_have_the_same_fields(db: Database) -> None:
    rows = await db.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'shiftboss.claimed_task'::regclass ORDER BY attnum"
    )
    assert tuple(row["attname"] for row in rows) == Claimed._fields
    said = dict(zip(Claimed._fields, Claimed._fields, strict=True)) | {
        "id": "task_id",
        "params": "params_json",
        "metadata": "metadata_json",
        "timeout": "timeout_seconds",
        "deadline": "deadline_us",
        "created_at": "created_us",
        "ready_at": "ready_us",
        "started_at": "started_us",
    }
    assert {field.name for field in pb.Assignment.DESCRIPTOR.fields} == set(said.values())


async def test_whatever_gives_out_tasks_gives_that_type(db: Database) -> None:
    rows = await db.fetch(
        "SELECT proname FROM pg_proc WHERE prorettype = 'shiftboss.claimed_task'::regtype"
        " OR 'shiftboss.claimed_task'::regtype = ANY (proallargtypes)"
    )
    known = {"as_claimed", "take", "claim", "claim_aged", "assign", "assign_each"}
    assert {row["proname"] for row in rows} == known


PLAIN = """
UPDATE tasks SET tenant = NULL, timeout = NULL, deadline = NULL, run_id = NULL, metadata = NULL, crashes = 0
"""


@pytest.mark.parametrize("full", [True, False])
async def test_every_way_to_a_task_gives_the_same(db: Database, full: bool) -> None:
    """Claimed, assigned, or assigned with others and through a limit; with all options and without."""
    row = await db.fetch_one(FULL)
    assert row is not None
    if not full:
        await db.execute(PLAIN)
    for worker in ("w1", "w2"):
        await db.execute("SELECT shiftboss.admit(%s)", [worker])

    async def given() -> Claimed:
        [fields] = await db.family(FleetStore).assign_each([str(row["id"])], ["w2"])
        assert fields.pop("worker_id") == "w2"
        return messages.claimed(pb.Assignment(**fields))

    async def again(task: Claimed) -> dict[str, Any]:
        await db.tasks.defer([(task.id, task.lease)], [timedelta(0)], ["once more"])
        await db.execute("UPDATE tasks SET run_at = %s", [task.ready_at])
        return {key: value for key, value in task._asdict().items() if key not in ("lease", "started_at")}

    [task] = await db.tasks.claim("w1", 1)
    assert all(value not in (None, 0, "", {}) for value in task) is full
    first = await again(task)
    assert await again((await db.tasks.assign([row["id"]], "w1"))[0]) == first
    assert await again(await given()) == first
    await db.tasks.set_limit("queue", "q", max_running=5)
    assert await again(await given()) == first
