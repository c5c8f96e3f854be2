"""EnqueueTask: enqueue a task as an operator, validated and audited as over HTTP."""

from __future__ import annotations

from typing import Any

import grpc

from shiftboss.db import Database
from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.auth import Authenticator, bearer
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.refusals import Context, Refused, invalid
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.task import NewTask
from shiftboss.operations import Operations

HOW_TO_ENTER = "this call needs the token of an operator: `shiftboss token create NAME --role operator`"


class Enqueuing:
    """Enqueues tasks. Without an authenticator, the coordinator serves only this machine and any caller."""

    def __init__(self, db: Database, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator
        self._operations = Operations(db, Settings.load())

    async def enqueue(self, request: pb.EnqueueTaskRequest, context: Context) -> pb.EnqueueTaskResponse:
        who = await self._caller(context)
        try:
            made = await self._operations.enqueue(who, _task(request))
        except UsageError as error:
            raise invalid(f"{error.message}; {error.hint}" if error.hint else error.message) from None
        return pb.EnqueueTaskResponse(task_id=str(made.id), created=made.created, warning=made.warning or "")

    async def _caller(self, context: Context) -> Principal:
        if self._authenticator is None:
            return Principal("grpc", Role.OPERATOR, source=context.peer())
        metadata: Any = context.invocation_metadata() or ()
        token = bearer(metadata)
        usable = token is not None and len(token) <= 1000 and token.isprintable()
        who = await self._authenticator.principal(token) if token is not None and usable else None
        if who is None:
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, HOW_TO_ENTER)
        if not who.may(Role.OPERATOR):
            raise Refused(grpc.StatusCode.PERMISSION_DENIED, f"{who.name} is a {who.role}; {HOW_TO_ENTER}")
        return who._replace(source=context.peer())


def _task(request: pb.EnqueueTaskRequest) -> NewTask:
    """Return the validated task of a request. Empty fields get the defaults of the database."""
    return NewTask(
        task_type=codec.name(request.task_type, "task_type"),
        params=codec.json_object(request.params_json, "params_json"),
        queue=codec.name(request.queue, "queue") if request.queue else None,
        priority=request.priority if request.HasField("priority") else None,
        dedup_key=codec.name(request.dedup_key, "dedup_key") if request.dedup_key else None,
        run_at=codec.moment(_micros(request.run_at_us)) if request.run_at_us else None,
        max_attempts=request.max_attempts or None,
        tenant=codec.name(request.tenant, "tenant") if request.tenant else None,
    )


def _micros(us: int) -> int:
    return int(codec.number(us, "run_at_us", 0, 4e15))
