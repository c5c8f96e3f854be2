"""The Fleet service. It validates each call and batches heartbeats and reports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import grpc
from google.protobuf.message_factory import GetMessageClass

from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.auth import DatabaseTokens
from shiftboss.extensions.grpc.batcher import GroupCommit
from shiftboss.extensions.grpc.durable import DurableCalls
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.refusals import (
    CallRefused,
    Context,
    answering,
    invalid,
    lenient,
    unknown_worker,
)
from shiftboss.extensions.grpc.session import Session
from shiftboss.extensions.grpc.store import EndedAttempt, FleetStore
from shiftboss.extensions.grpc.streams import Parts, Streams
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import TasksLocked, UsageError
from shiftboss.model.settings import Settings
from shiftboss.model.worker import Orders
from shiftboss.operations import Operations

FOR_OPERATORS = "this call needs the token of an operator: `shiftboss token create NAME --role operator`"
SERVICE = pb.DESCRIPTOR.services_by_name["Fleet"]
Answer = tuple[set[str], set[str]]
"""The stale tasks of a batch of reports, and the tasks that another session has locked."""


class FleetService(DurableCalls):
    """Implements proto/shiftboss/v1/fleet.proto."""

    def __init__(self, parts: Parts, tokens: DatabaseTokens | None = None) -> None:
        self._db, self._registry, self._dispatcher, self._settings, self._name, self._installation = parts
        self.streams = Streams(parts)
        self._tokens = tokens
        self._operations = Operations(parts.db, Settings.load())
        self._beats: GroupCommit[dict[str, Any], Orders | None] = GroupCommit(self._beat_all, gather=0.1)
        self._reports: GroupCommit[list[EndedAttempt], Answer] = GroupCommit(self._report_all, limit=200)

    def handlers(self) -> Any:
        """Return the handlers of all calls. They get undecodable messages too, and refuse them."""
        handlers: dict[str, Any] = {}
        for method in SERVICE.methods:
            stream, call = method.client_streaming, getattr(self, method.name)
            wrap = grpc.stream_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler
            if self._tokens is not None and method.name != "EnqueueTask":  # it needs an operator's token
                call = self._tokens.watched(call) if stream else self._tokens.guarded(call)
            handlers[method.name] = wrap(
                call,
                lenient(GetMessageClass(method.input_type).FromString),
                GetMessageClass(method.output_type).SerializeToString,
            )
        return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)

    @answering
    async def RegisterWorker(
        self, request: pb.RegisterWorkerRequest, context: Context
    ) -> pb.RegisterWorkerResponse:
        if request.protocol_version != codec.PROTOCOL:
            raise CallRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"protocol version {request.protocol_version} is not supported; this coordinator supports"
                f" {codec.PROTOCOL}",
            )
        member = codec.member(request, self._settings.lease_seconds)
        session, resumed = await self._registry.enroll(member, request.session)
        return pb.RegisterWorkerResponse(
            session=session,
            heartbeat_seconds=min(self._settings.heartbeat_seconds, member.lease_seconds / 3),
            lease_seconds=member.lease_seconds,
            resumed=resumed,
            coordinator=self._name,
            installation=self._installation,
        )

    @answering
    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        session = await self._registry.session(request.worker_id, request.session)
        beat: dict[str, Any] = {
            "id": session.worker_id,
            "session": session.secret.hex(),
            "leases": list(request.leases),
            # A worker that was disconnected has dropped its tasks and no longer lists them.
            "given": list(session.held),
        }
        if request.HasField("resource_usage"):
            beat["usage"] = codec.usage(request.resource_usage)
        orders = await self._beats.submit(beat)
        if orders is None:
            self._registry.end(session, "the worker is no longer registered")
            raise unknown_worker(request.worker_id)
        self._apply(session, orders)
        lost = set(orders.lost).intersection(request.leases)
        return pb.HeartbeatResponse(
            paused=orders.paused, draining=orders.draining, cancel=orders.cancel, lost=lost
        )

    def _apply(self, session: Session, orders: Orders) -> None:
        session.profile.open = not (orders.paused or orders.draining)
        if orders.lost:
            session.drop(orders.lost)
            self._dispatcher.wake()

    async def _beat_all(self, beats: Sequence[dict[str, Any]]) -> list[Orders | None]:
        latest = {beat["id"]: beat for beat in beats}
        orders = await self._db.family(FleetStore).beats([latest[id] for id in sorted(latest)])
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
        await self._own(session, [(str(id), lease) for id, lease in held])
        percents = [min(one.percent, 99) for one in items.values()]
        messages = [codec.plain(one.message) or None for one in items.values()]
        stale = await self._db.tasks.progress(held, percents, messages) if held else []
        return pb.ReportProgressResponse(stale=map(str, stale))

    @answering
    async def ReportLogs(self, request: pb.ReportLogsRequest, context: Context) -> pb.ReportLogsResponse:
        session = await self._registry.session(request.worker_id, request.session)
        lines = [codec.log_line(one) for one in request.lines[: codec.MAX_LINES]]
        own = set(
            await self._db.family(FleetStore).attempted(session.worker_id, {line.task_id for line in lines})
        )
        ended = [codec.uuid(id, "ended") for id in request.ended[: codec.MAX_LINES]]
        await self._db.logs.append(
            [line for line in lines if line.task_id in own], [id for id in ended if id in own]
        )
        return pb.ReportLogsResponse()

    @answering
    async def ReportCompletion(
        self, request: pb.ReportCompletionRequest, context: Context
    ) -> pb.ReportCompletionResponse:
        if request.installation not in ("", self._installation):
            raise CallRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"these tasks belong to installation {request.installation!r}, not to this one",
            )
        session = await self._registry.session(request.worker_id, request.session)
        ended = codec.ended(session.worker_id, request.completions, session.held)
        if not ended:
            return pb.ReportCompletionResponse()
        await self._own(session, [(one.id, one.lease) for one in ended])
        stale, locked = await self._reports.submit(ended)
        locked = locked.intersection(one.id for one in ended)
        session.drop(
            one.lease for one in ended if session.held.get(one.lease) == one.id and one.id not in locked
        )
        self._dispatcher.wake()
        if locked:
            raise TasksLocked(UUID(id) for id in locked)
        return pb.ReportCompletionResponse(stale=[one.id for one in ended if one.id in stale])

    async def _report_all(self, reports: Sequence[list[EndedAttempt]]) -> list[Answer]:
        """Store a batch of reports in one transaction. Only the reporter of a lease can make it stale."""
        every = {one[:3]: one for report in reports for one in report}
        try:
            stale, locked = await self._db.family(FleetStore).report(list(every.values())), frozenset[UUID]()
        except TasksLocked as error:
            stale, locked = set(error.stale), error.ids
        return [(set(map(str, stale)), set(map(str, locked)))] * len(reports)

    @answering
    async def UnregisterWorker(
        self, request: pb.UnregisterWorkerRequest, context: Context
    ) -> pb.UnregisterWorkerResponse:
        session = await self._registry.current(request.worker_id, request.session)
        returned = await self._db.workers.leave(session.worker_id)
        await self._db.family(FleetStore).detach(self._name, session.worker_id)
        self._registry.end(session, "the worker unregistered")
        return pb.UnregisterWorkerResponse(returned_tasks=returned or 0)

    @answering
    async def EnqueueTask(self, request: pb.EnqueueTaskRequest, context: Context) -> pb.EnqueueTaskResponse:
        """Enqueue a task as an operator, validated and audited as over HTTP."""
        who = await self._operator(context)
        try:
            made = await self._operations.enqueue(who, codec.new_task(request))
        except UsageError as error:
            raise invalid(f"{error.message}; {error.hint}" if error.hint else error.message) from None
        return pb.EnqueueTaskResponse(task_id=str(made.id), created=made.created, warning=made.warning or "")

    async def _operator(self, context: Context) -> Principal:
        """Return the caller. Without tokens, the coordinator serves only this machine, and any caller."""
        if self._tokens is None:
            return Principal("grpc", Role.OPERATOR, source=context.peer())
        who = await self._tokens.principal(context)
        if who is None:
            raise CallRefused(grpc.StatusCode.UNAUTHENTICATED, FOR_OPERATORS)
        if not who.may(Role.OPERATOR):
            raise CallRefused(
                grpc.StatusCode.PERMISSION_DENIED, f"{who.name} is a {who.role}; {FOR_OPERATORS}"
            )
        return who._replace(source=context.peer())

    @answering
    async def GetWorkerHealth(
        self, request: pb.GetWorkerHealthRequest, context: Context
    ) -> pb.GetWorkerHealthResponse:
        if "\x00" in request.worker_id:
            raise invalid("worker_id contains a NUL character")
        rows = await self._db.workers.health(request.worker_id or None)
        if request.worker_id and not rows:
            raise unknown_worker(request.worker_id)
        return pb.GetWorkerHealthResponse(workers=[codec.health(row) for row in rows])
