"""EnqueueTask, and the schemas that workers bring."""

from __future__ import annotations

from typing import Any

import grpc
import orjson
import pytest

from shiftboss.db import Database
from shiftboss.extensions.grpc.auth import DatabaseTokens
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.model.access import Role
from tests.extensions.grpc.conftest import StartCoordinator, refusal, registration

SCHEMA = {"type": "object", "properties": {"image_id": {"type": "integer"}}, "required": ["image_id"]}


def schema(text: str) -> pb.TaskSchema:
    return pb.TaskSchema(task_type="img.thumbnail", schema_json=text, version="1")


async def test_a_registration_publishes_and_a_task_is_checked(db: Database, stub: Any) -> None:
    error = await refusal(stub.RegisterWorker(registration(schemas=[schema('{"type": "nonsense"}')])))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    await stub.RegisterWorker(registration(schemas=[schema(orjson.dumps(SCHEMA).decode())]))
    error = await refusal(
        stub.EnqueueTask(pb.EnqueueTaskRequest(task_type="img.thumbnail", params_json='{"image_id": "abc"}'))
    )
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert 'image_id: "abc" does not fit, integer is expected' in (error.details() or "")
    made = await stub.EnqueueTask(
        pb.EnqueueTaskRequest(task_type="img.thumbnail", params_json='{"image_id": 7}', priority=10)
    )
    row = await db.tasks.get(made.task_id)
    assert row is not None
    assert (row["params"], row["priority"], made.warning) == ({"image_id": 7}, 10, "")
    unknown = await stub.EnqueueTask(pb.EnqueueTaskRequest(task_type="img.thumbnial"))
    assert "did you mean img.thumbnail?" in unknown.warning
    assert [one["action"] for one in await db.tokens.audit()] == ["task.enqueue"] * 3


@pytest.mark.parametrize(
    ("role", "code"),
    [
        (None, grpc.StatusCode.UNAUTHENTICATED),
        (Role.WORKER, grpc.StatusCode.PERMISSION_DENIED),
        (Role.VIEWER, grpc.StatusCode.PERMISSION_DENIED),
        (Role.OPERATOR, None),
    ],
)
async def test_only_an_operator_enqueues(
    db: Database, start: StartCoordinator, role: Role | None, code: grpc.StatusCode | None
) -> None:
    coordinator = await start(DatabaseTokens(db), require_token=True)
    token = await db.tokens.create_token("t", role) if role else "nonsense"
    async with grpc.aio.insecure_channel(coordinator.address) as channel:
        stub: Any = fleet_pb2_grpc.FleetStub(channel)  # type: ignore[no-untyped-call]
        call = stub.EnqueueTask(
            pb.EnqueueTaskRequest(task_type="a.b"), metadata=[("authorization", f"Bearer {token}")]
        )
        if code is None:
            assert (await call).created
        else:
            assert (await refusal(call)).code() is code
