"""The calls for durable work: steps, streams, events, and requests to extensions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import grpc
import orjson

from shiftboss.db import Database
from shiftboss.db.payload import dumps
from shiftboss.extension import load, named
from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.extensions.grpc.refusals import CallRefused, Context, answering, invalid
from shiftboss.extensions.grpc.registry import Registry
from shiftboss.extensions.grpc.session import Held, Session
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.model.codec import current
from shiftboss.model.errors import UsageError
from shiftboss.model.step import Loaded

LONGEST_KEEP = 10 * 366 * 86_400


class DurableCalls(fleet_pb2_grpc.FleetServicer):
    """The calls of the Fleet service for durable work."""

    _db: Database
    _registry: Registry

    @answering
    async def LoadSteps(self, request: pb.LoadStepsRequest, context: Context) -> pb.LoadStepsResponse:
        session = await self._registry.session(request.worker_id, request.session)
        begun = [codec.begun(one) for one in request.tasks]
        ours = await self._db.family(FleetStore).held_by(
            session.worker_id, [(id, lease) for id, lease, _ in begun]
        )
        found = await self._db.steps.begin([one for one in begun if one[0] in ours]) if ours else {}
        return pb.LoadStepsResponse(tasks=[_task_steps(str(id), one) for id, one in found.items()])

    @answering
    async def StoreSteps(self, request: pb.StoreStepsRequest, context: Context) -> pb.StoreStepsResponse:
        session = await self._registry.session(request.worker_id, request.session)
        steps = [codec.step(one) for one in request.steps]
        await self._own(session, [(str(step.task_id), step.lease) for step in steps])
        stale = await self._db.steps.store(steps) if steps else []
        return pb.StoreStepsResponse(stale=map(str, stale))

    @answering
    async def AppendParts(self, request: pb.AppendPartsRequest, context: Context) -> pb.AppendPartsResponse:
        session = await self._registry.session(request.worker_id, request.session)
        parts = [codec.part(one) for one in request.parts]
        await self._own(session, [(str(part.task_id), part.lease) for part in parts])
        stale = await self._db.steps.append(parts) if parts else []
        return pb.AppendPartsResponse(stale=map(str, stale))

    @answering
    async def SendEvent(self, request: pb.SendEventRequest, context: Context) -> pb.SendEventResponse:
        if not request.key or "\x00" in request.key:
            raise invalid("an event needs a key without NUL characters")
        keep = codec.number(request.keep_seconds, "keep_seconds", 0, LONGEST_KEEP)
        text = request.payload_json
        woken = await self._db.steps.send_event(
            request.key,
            codec.json_value(text, "payload_json") if text else None,
            task=codec.uuid(request.task_id, "task_id") if request.task_id else None,
            id=codec.uuid(request.id, "id") if request.id else None,
            keep=timedelta(seconds=keep) if keep else None,
        )
        return pb.SendEventResponse(woken=woken)

    @answering
    async def Ask(self, request: pb.AskRequest, context: Context) -> pb.AskResponse:
        await self._registry.session(request.worker_id, request.session)
        target = named("asked").get(request.what)
        if target is None:
            raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, f"no extension handles {request.what[:50]!r}")
        arguments = codec.json_object(request.arguments_json, "arguments_json")
        try:
            answer: Any = await load(target)(self._db, arguments)
        except (TypeError, UsageError) as error:
            raise invalid(f"invalid arguments of {request.what}: {error}") from None
        return pb.AskResponse(answer_json=dumps(answer).decode())

    async def _own(self, session: Session, held: Sequence[Held]) -> None:
        """Refuse a call about tasks of other workers."""
        unsure = [(id, lease) for id, lease in held if session.held.get(lease) != id]
        if not unsure:
            return
        foreign = await self._db.family(FleetStore).foreign_leases(session.worker_id, unsure)
        if foreign:
            raise CallRefused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"task {foreign[0]} is not held by worker {session.worker_id!r}; nothing was changed",
            )


def _sealed(result: Any) -> Any:
    return None if result is None else current().value(result)


def _task_steps(id: str, found: Loaded) -> pb.TaskSteps:
    # A coordinator with the key has decrypted them, so encrypt them again.
    steps = [[*key, one.state, _sealed(one.result), one.child_id] for key, one in found.steps.items()]
    return pb.TaskSteps(
        task_id=id,
        steps_json=orjson.dumps(steps).decode(),
        ran_seconds=found.ran,
        most_bytes=found.most,
        version=found.version or "",
    )
