"""The source of tasks for a worker without a database, which is connected to a coordinator.

It reconnects automatically and continues its session, at the same coordinator or at the next one in the list.
Reports are repeated until they are acknowledged; the coordinator counts each attempt once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import grpc

from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.link import (
    LOST_SESSION,
    CoordinatorError,
    CoordinatorUnavailable,
    Link,
    cancelled_itself,
    locked_tasks,
)
from shiftboss.extensions.grpc.messages import claimed, completion, log_line, registration
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.steps import RemoteSteps
from shiftboss.lifecycle import Backoff
from shiftboss.log import get_logger
from shiftboss.model.codec import current, use
from shiftboss.model.errors import OtherInstallation, TasksLocked
from shiftboss.model.log import LogLine
from shiftboss.model.settings import Settings
from shiftboss.model.task import Claimed, Complete, Fail, Report, Suspended
from shiftboss.model.worker import Member, Orders

log = get_logger(__name__)

PATIENCE = 15.0
"""How long registration is retried while its ID is in use: the previous process may just have died."""
REPORTS_PER_CALL = 500
LINES_PER_CALL = 500
MAX_AHEAD = codec.MAX_AHEAD
ALONE = "its worker runs another task alone"


class CoordinatorSource:
    """A worker's `Source` over gRPC."""

    def __init__(self, addresses: Sequence[str], settings: CoordinatorSettings) -> None:
        self.orders = asyncio.Event()
        self.spool = "coordinator"  # each report contains its installation
        self.heartbeat_seconds: float | None = None
        self._link = Link(addresses, settings)
        self.steps = RemoteSteps(self._link, lambda: {"worker_id": self._id, "session": self._session})
        self.ask = self.steps.ask
        self._member: Member | None = None
        self._id = ""
        self._session = ""
        self._installation = ""
        self._slots = 1
        self._free = 0
        self._ahead = 0
        self._out: set[int] = set()
        self._accepted: list[int] = []
        self._refused: list[pb.Refusal] = []
        self._held = False
        self._buffer: deque[pb.Assignment] = deque()
        self.arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._keeps_logs = True
        self._stream: asyncio.Task[None] | None = None
        self._closing: list[Callable[[], Awaitable[None]]] = []

    async def join(self, member: Member) -> None:
        """Register, waiting until a coordinator is reachable. Raise CoordinatorError if it refuses."""
        self._member, self._id = member, member.id
        self._slots = member.capabilities.max_concurrent_tasks
        backoff, until = Backoff(), time.monotonic() + PATIENCE
        while True:
            try:
                await self._register()
                break
            except CoordinatorUnavailable as error:
                log.warning("waiting for a coordinator", error=error.message)
            except grpc.aio.AioRpcError as error:
                taken = error.code() is grpc.StatusCode.ALREADY_EXISTS
                if not taken or time.monotonic() > until:
                    raise CoordinatorError(
                        f"the coordinator at {self._link.address} refused: {error.details()}"
                    ) from error
            await asyncio.sleep(backoff.next())
        if self._stream is None:
            self._stream = asyncio.create_task(self._keep_stream(), name="assignments")

    async def _register(self) -> None:
        assert self._member is not None
        request = registration(self._member, self._session)
        answer: pb.RegisterWorkerResponse = await self._link.call("RegisterWorker", request)
        self._session, self._installation = answer.session, answer.installation
        self.heartbeat_seconds = answer.heartbeat_seconds

    async def claim(self, limit: int) -> list[Claimed]:
        """Return the assignments that have arrived, and send the number of free slots."""
        self.arrived.clear()
        self._held = False
        taken = self._take(limit)
        room = self._slots - len(self._out)  # the worker prefetches what it asks for beyond this
        free = min(limit - len(taken), max(room, 0) + MAX_AHEAD)
        if taken or free != self._free:
            self._free = free
            self._ahead = min(max(free - room, 0), MAX_AHEAD)
            self._changed.set()
        if self._buffer:
            self.arrived.set()
        return [claimed(one) for one in taken]

    def _take(self, limit: int) -> list[pb.Assignment]:
        taken = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        self._accepted += [one.lease for one in taken]
        self._out.update(one.lease for one in taken)
        return taken

    def hold(self) -> list[Claimed]:
        """Accept and return the unclaimed assignments, so that the worker can return them to the queue."""
        taken = self._take(len(self._buffer))
        if taken or not self._held:
            self._held, self._free, self._ahead = True, 0, 0
            self._changed.set()
        return [claimed(one) for one in taken]

    async def _keep_stream(self) -> None:
        backoff = Backoff(maximum=5.0)
        while True:
            turn, began = self._link.turn, time.monotonic()
            try:
                await self._run_stream()
            except grpc.aio.AioRpcError as error:
                log.warning("stream lost", code=error.code().name, details=error.details())
                if error.code() in LOST_SESSION:
                    with suppress(CoordinatorUnavailable, grpc.aio.AioRpcError):
                        await self._register()
                elif error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                    await self._link.move_on(turn)
            except asyncio.CancelledError:
                if cancelled_itself():
                    raise
                log.warning("stream lost", details="another call closed the connection")
            except Exception:  # keep trying: without a stream, the worker gets no tasks
                log.exception("stream failed")
            if time.monotonic() - began > backoff.maximum:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _run_stream(self) -> None:
        """Run one stream until it ends. The coordinator takes back what was not accepted on it."""
        self._buffer.clear()
        self._accepted.clear()
        self._refused.clear()
        call = self._link.stub.AssignTask(metadata=self._link.metadata)
        writer = asyncio.create_task(self._send(call), name="acceptances")
        try:
            async for response in call:
                self._receive(response)
            code, details = await call.code(), await call.details()
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, None)
        finally:
            writer.cancel()
            call.cancel()
            self._buffer.clear()
            await asyncio.gather(writer, return_exceptions=True)

    async def _send(self, call: Any) -> None:
        message = pb.AssignTaskRequest(
            worker_id=self._id, session=self._session, free_slots=self._free, ahead=self._ahead
        )
        while True:
            await call.write(message)
            await self._changed.wait()
            self._changed.clear()
            message = pb.AssignTaskRequest(
                free_slots=self._free, ahead=self._ahead, accepted=self._accepted, refused=self._refused
            )
            self._accepted, self._refused = [], []

    def _receive(self, response: pb.AssignTaskResponse) -> None:
        if response.withdrawn:
            gone = set(response.withdrawn)
            self._buffer = deque(one for one in self._buffer if one.lease not in gone)
            self._changed.set()  # the coordinator assigns no tasks until it gets a message
        if response.assignments and self._held:  # sent before the coordinator got the new number of slots
            self._refused += [pb.Refusal(lease=one.lease, reason=ALONE) for one in response.assignments]
            self._changed.set()
        elif response.assignments:
            self._buffer.extend(response.assignments)
            self.arrived.set()
        if response.beat_now:
            self.orders.set()

    @property
    def identity(self) -> str:
        return f"{self._installation} {self._session} {self._id}"

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        """Deliver outcomes to any reachable coordinator. Raise CoordinatorUnavailable if there is none."""
        self._out.difference_update(report.task.lease for report in reports)
        return await self.redeliver(self.identity, reports)

    def report_apart(self, reports: Sequence[Report], seconds: float) -> None:
        """Deliver outcomes from a thread over a separate channel."""
        for start in range(0, len(reports), REPORTS_PER_CALL):
            some = reports[start : start + REPORTS_PER_CALL]
            self._link.call_apart("ReportCompletion", self._completions(self.identity, some), seconds)

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        """Deliver outcomes with the session of a process that has exited."""
        stale: list[UUID] = []
        locked: set[UUID] = set()
        for start in range(0, len(reports), REPORTS_PER_CALL):
            try:
                stale += await self._report(identity, list(reports[start : start + REPORTS_PER_CALL]))
            except TasksLocked as error:
                locked |= error.ids
        if locked:
            raise TasksLocked(locked, stale)
        return stale

    @staticmethod
    def _completions(identity: str, reports: Sequence[Report]) -> pb.ReportCompletionRequest:
        installation, session, worker_id = identity.split(" ", 2)
        return pb.ReportCompletionRequest(
            worker_id=worker_id,
            session=session,
            completions=map(completion, reports),
            installation=installation,
        )

    async def _report(self, identity: str, reports: list[Report]) -> list[UUID]:
        request = self._completions(identity, reports)
        try:
            answer: pb.ReportCompletionResponse = await self._link.call("ReportCompletion", request)
            return [UUID(id) for id in answer.stale]
        except CoordinatorUnavailable as error:
            raise (locked_tasks(error.__cause__) or error) from error
        except grpc.aio.AioRpcError as error:
            return await self._after_refusal(error, identity, reports)

    async def _after_refusal(
        self, error: grpc.aio.AioRpcError, identity: str, reports: list[Report]
    ) -> list[UUID]:
        if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
            raise OtherInstallation(f"the coordinator at {self._link.address}: {error.details()}") from error
        if error.code() in LOST_SESSION:  # the session was replaced, so other workers have these tasks
            return [report.task.id for report in reports]
        if len(reports) > 1:
            return [id for report in reports for id in await self._report(identity, [report])]
        log.warning("report refused", task_id=str(reports[0].task.id), error=error.details())
        if isinstance(reports[0].outcome, Complete | Suspended):  # it cannot be stored, so fail the task
            refused = Fail(f"the outcome was refused: {error.details()}", retry=False)
            return await self._report(identity, [reports[0]._replace(outcome=refused)])
        return [reports[0].task.id]

    async def progress(
        self, held: Sequence[tuple[UUID, int]], percents: Sequence[int], messages: Sequence[str | None]
    ) -> None:
        items = [
            pb.Progress(
                held=pb.Held(task_id=str(id), lease=lease),
                percent=max(0, min(percent, 99)),
                message=current().text(message) or "",
            )
            for (id, lease), percent, message in zip(held, percents, messages, strict=True)
        ]
        request = pb.ReportProgressRequest(worker_id=self._id, session=self._session, progress=items)
        with suppress(grpc.aio.AioRpcError):  # refused if the task is lost, which the next beat reports
            await self._link.call("ReportProgress", request)

    async def logs(self, lines: Sequence[LogLine], ended: Sequence[UUID]) -> None:
        """Send log lines, unless the coordinator is too old to store them."""
        for start in range(0, max(len(lines), 1) if self._keeps_logs else 0, LINES_PER_CALL):
            some, last = lines[start : start + LINES_PER_CALL], start + LINES_PER_CALL >= len(lines)
            request = pb.ReportLogsRequest(
                worker_id=self._id,
                session=self._session,
                lines=map(log_line, some),
                ended=map(str, ended if last else ()),
            )
            try:
                await self._link.call("ReportLogs", request)
            except grpc.aio.AioRpcError as error:  # refused, so a retry would not help
                self._keeps_logs = error.code() is not grpc.StatusCode.UNIMPLEMENTED
                log.debug("task logs refused", code=error.code().name)

    async def beat(self, leases: Sequence[int], usage: dict[str, Any], stats: list[dict[str, Any]]) -> Orders:
        """Send a heartbeat. `stats` are not sent, because the coordinator counts the reports itself."""
        self.orders.clear()
        self._out = set(leases)
        request = pb.HeartbeatRequest(
            worker_id=self._id,
            session=self._session,
            leases=[*leases, *(one.lease for one in self._buffer)],
            resource_usage=pb.ResourceUsage(
                cpu_percent=float(usage.get("cpu_percent") or 0),
                memory_mb=float(usage.get("memory_mb") or 0),
                task_count=len(leases),
                goroutine_count=int(usage.get("goroutine_count") or 0),
            ),
        )
        try:
            answer: pb.HeartbeatResponse = await self._link.call("Heartbeat", request, timeout=5.0)
        except grpc.aio.AioRpcError as error:
            if error.code() in LOST_SESSION:
                return Orders(False, None, False, False, [], list(leases))
            raise CoordinatorUnavailable(f"the heartbeat was refused: {error.details()}") from error
        lost = set(answer.lost) & set(leases)
        return Orders(True, "active", answer.paused, answer.draining, list(answer.cancel), list(lost))

    async def leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
            with suppress(asyncio.CancelledError):
                await stream
        for closing in self._closing:
            await closing()
        request = pb.UnregisterWorkerRequest(worker_id=self._id, session=self._session)
        try:
            await self._link.call("UnregisterWorker", request)
        except (CoordinatorUnavailable, grpc.aio.AioRpcError) as error:
            log.warning("cannot unregister", error=str(error))
        await self._link.close()

    def on_close(self, closing: Callable[[], Awaitable[None]]) -> None:
        """Call `closing` when the worker leaves, while its coordinator is still reachable."""
        self._closing.append(closing)


def source(settings: Settings) -> CoordinatorSource:
    """Return a source of tasks from the coordinators that the settings name."""
    use(settings)
    own = CoordinatorSettings.of(settings)
    return CoordinatorSource(own.addresses, own)
