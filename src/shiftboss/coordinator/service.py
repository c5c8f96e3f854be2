"""The Fleet service: each call checked, answered from the batch it went into."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import grpc

from shiftboss.coordinator import codec
from shiftboss.coordinator.batcher import Batcher
from shiftboss.coordinator.proto import fleet_pb2 as pb
from shiftboss.coordinator.proto import fleet_pb2_grpc
from shiftboss.coordinator.refusals import Context, Refused, answering, invalid, unknown_worker
from shiftboss.coordinator.session import Held, Session
from shiftboss.coordinator.streams import Parts, Streams
from shiftboss.db.fleet import Ended
from shiftboss.model.worker import Orders


class FleetService(fleet_pb2_grpc.FleetServicer):
    """What proto/shiftboss/v1/fleet.proto promises."""

    def __init__(self, parts: Parts) -> None:
        self._db, self._registry, self._dispatcher, self._settings, self._name = parts
        self.streams = Streams(parts)
        self._beats: Batcher[dict[str, Any], Orders | None] = Batcher(self._beat_all, gather=0.02)
        self._reports: Batcher[list[Ended], set[UUID]] = Batcher(self._report_all, limit=200)

    @answering
    async def RegisterWorker(
        self, request: pb.RegisterWorkerRequest, context: Context
    ) -> pb.RegisterWorkerResponse:
        if request.protocol_version != codec.PROTOCOL:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"protocol version {request.protocol_version} is not spoken here, {codec.PROTOCOL} is;"
                " set protocol_version, or use a worker of this coordinator's release",
            )
        member = codec.member(request, self._settings.lease_seconds)
        session, resumed = await self._registry.enroll(member, request.session)
        return pb.RegisterWorkerResponse(
            session=session,
            heartbeat_seconds=min(self._settings.heartbeat_seconds, member.lease_seconds / 3),
            lease_seconds=member.lease_seconds,
            resumed=resumed,
            coordinator=self._name,
        )

    @answering
    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        session = await self._registry.session(request.worker_id, request.session)
        beat: dict[str, Any] = {
            "id": session.worker_id,
            "session": session.secret.hex(),
            "leases": list(request.leases),
        }
        if request.HasField("resource_usage"):
            beat["usage"] = codec.usage(request.resource_usage)
        orders = await self._beats.submit(beat)
        if orders is None:
            self._registry.end(session, "the worker is not registered any more")
            raise unknown_worker(request.worker_id)
        self._heed(session, orders)
        return pb.HeartbeatResponse(
            paused=orders.paused, draining=orders.draining, cancel=orders.cancel, lost=orders.lost
        )

    def _heed(self, session: Session, orders: Orders) -> None:
        session.profile.open = not (orders.paused or orders.draining)
        if orders.lost:
            session.drop(orders.lost)
            self._dispatcher.wake()

    async def _beat_all(self, beats: Sequence[dict[str, Any]]) -> list[Orders | None]:
        latest = {beat["id"]: beat for beat in beats}
        orders = await self._db.fleet.beats([latest[id] for id in sorted(latest)])
        return [orders.get(beat["id"]) for beat in beats]

    async def AssignTask(
        self, request_iterator: AsyncIterator[pb.AssignTaskRequest], context: Context
    ) -> None:
        await self.streams.serve(request_iterator, context)

    @answering
    async def ReportProgress(
        self, request: pb.ReportProgressRequest, context: Context
    ) -> pb.ReportProgressResponse:
        session = await self._registry.session(request.worker_id, request.session)
        items = {(one.held.task_id, one.held.lease): one for one in request.progress}
        held = [codec.held(one.held) for one in items.values()]
        await self._own(session, held)
        percents = [min(one.percent, 99) for one in items.values()]
        messages = [codec.plain(one.message) or None for one in items.values()]
        stale = await self._db.tasks.progress(held, percents, messages) if held else []
        return pb.ReportProgressResponse(stale=map(str, stale))

    @answering
    async def ReportCompletion(
        self, request: pb.ReportCompletionRequest, context: Context
    ) -> pb.ReportCompletionResponse:
        session = await self._registry.session(request.worker_id, request.session)
        ended = codec.ended(session.worker_id, request.completions)
        if not ended:
            return pb.ReportCompletionResponse()
        await self._own(session, [(one.id, one.lease) for one in ended])
        stale = await self._reports.submit(ended)
        session.drop(one.lease for one in ended if session.held.get(one.lease) == one.id)
        self._dispatcher.wake()
        return pb.ReportCompletionResponse(stale=[str(one.id) for one in ended if one.id in stale])

    async def _own(self, session: Session, held: Sequence[Held]) -> None:
        """Refuse a call about tasks of somebody else."""
        unsure = [(id, lease) for id, lease in held if session.held.get(lease) != id]
        if not unsure:
            return
        foreign = await self._db.fleet.foreign_leases(session.worker_id, unsure)
        if foreign:
            raise Refused(
                grpc.StatusCode.PERMISSION_DENIED,
                f"task {foreign[0]} is not held by worker {session.worker_id!r}; nothing was changed",
            )

    async def _report_all(self, reports: Sequence[list[Ended]]) -> list[set[UUID]]:
        """One transaction for what came in together; a stale lease is only ever its own reporter's."""
        every = {one[:3]: one for report in reports for one in report}
        stale = await self._db.fleet.report(list(every.values()))
        return [stale] * len(reports)

    @answering
    async def UnregisterWorker(
        self, request: pb.UnregisterWorkerRequest, context: Context
    ) -> pb.UnregisterWorkerResponse:
        session = await self._registry.current(request.worker_id, request.session)
        returned = await self._db.workers.leave(session.worker_id)
        await self._db.fleet.detach(self._name, session.worker_id)
        self._registry.end(session, "the worker unregistered")
        return pb.UnregisterWorkerResponse(returned_tasks=returned or 0)

    @answering
    async def GetWorkerHealth(
        self, request: pb.GetWorkerHealthRequest, context: Context
    ) -> pb.GetWorkerHealthResponse:
        if "\x00" in request.worker_id:
            raise invalid("worker_id holds a NUL character")
        rows = await self._db.fleet.health(request.worker_id or None)
        if request.worker_id and not rows:
            raise unknown_worker(request.worker_id)
        return pb.GetWorkerHealthResponse(workers=[codec.health(row) for row in rows])
