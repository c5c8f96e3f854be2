"""A worker's source that needs no database: the runtime is the same, tasks come from a coordinator.

Reconnects by itself and goes on with its session, at the same coordinator or at the next of the list. What
was being reported is reported again until it is answered; the coordinator counts each attempt once.
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
    locked_tasks,
    told_to_stop,
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
"""Seconds for which a name that is still taken is tried again: the former process may just have died."""
REPORTS_PER_CALL = 500
LINES_PER_CALL = 500
MAX_AHEAD = codec.MAX_AHEAD
ALONE = "its worker runs another task alone"


class CoordinatorSource:
    """The worker room's `Source`, over gRPC."""

    def __init__(self, addresses: Sequence[str], settings: CoordinatorSettings) -> None:
        self.orders = asyncio.Event()
        self.spool = "coordinator"  # the reports themselves tell which installation they belong to
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
        self._to_say = asyncio.Event()
        self._keeps_logs = True
        self._stream: asyncio.Task[None] | None = None
        self._closing: list[Callable[[], Awaitable[None]]] = []

    async def join(self, member: Member) -> None:
        """Register, however long no coordinator answers; a refusal is an error."""
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
        """What has arrived; the coordinator hears how much more there is room for."""
        self.arrived.clear()
        self._held = False
        taken = self._take(limit)
        room = self._slots - len(self._out)  # what is asked for beyond it, the runtime wants to keep ready
        free = min(limit - len(taken), max(room, 0) + MAX_AHEAD)
        if taken or free != self._free:
            self._free = free
            self._ahead = min(max(free - room, 0), MAX_AHEAD)
            self._to_say.set()
        if self._buffer:
            self.arrived.set()
        return [claimed(one) for one in taken]

    def _take(self, limit: int) -> list[pb.Assignment]:
        taken = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        self._accepted += [one.lease for one in taken]
        self._out.update(one.lease for one in taken)
        return taken

    def hold(self) -> list[Claimed]:
        """What has arrived and was not claimed, accepted so that it can be given back by an answered call."""
        taken = self._take(len(self._buffer))
        if taken or not self._held:
            self._held, self._free, self._ahead = True, 0, 0
            self._to_say.set()
        return [claimed(one) for one in taken]

    async def _keep_stream(self) -> None:
        backoff = Backoff(maximum=5.0)
        while True:
            turn, began = self._link.turn, time.monotonic()
            try:
                await self._run_stream()
            except grpc.aio.AioRpcError as error:
                log.warning("stream broke", code=error.code().name, details=error.details())
                if error.code() in LOST_SESSION:
                    with suppress(CoordinatorUnavailable, grpc.aio.AioRpcError):
                        await self._register()
                elif error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                    await self._link.move_on(turn)
            except asyncio.CancelledError:
                if told_to_stop():
                    raise
                log.warning("stream broke", details="another call gave its connection up")
            except Exception:
                log.exception("stream failed")  # without one there would be no more tasks, and no word why
            if time.monotonic() - began > backoff.maximum:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _run_stream(self) -> None:
        """One stream until it breaks. What was not accepted on it is the coordinator's again."""
        self._buffer.clear()
        self._accepted.clear()
        self._refused.clear()
        call = self._link.stub.AssignTask(metadata=self._link.metadata)
        writer = asyncio.create_task(self._say(call), name="acceptances")
        try:
            async for response in call:
                self._hear(response)
            code, details = await call.code(), await call.details()
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, None)
        finally:
            writer.cancel()
            call.cancel()
            self._buffer.clear()
            await asyncio.gather(writer, return_exceptions=True)

    async def _say(self, call: Any) -> None:
        message = pb.AssignTaskRequest(
            worker_id=self._id, session=self._session, free_slots=self._free, ahead=self._ahead
        )
        while True:
            await call.write(message)
            await self._to_say.wait()
            self._to_say.clear()
            message = pb.AssignTaskRequest(
                free_slots=self._free, ahead=self._ahead, accepted=self._accepted, refused=self._refused
            )
            self._accepted, self._refused = [], []

    def _hear(self, response: pb.AssignTaskResponse) -> None:
        if response.withdrawn:
            gone = set(response.withdrawn)
            self._buffer = deque(one for one in self._buffer if one.lease not in gone)
            self._to_say.set()  # nothing more comes until this worker has spoken
        if response.assignments and self._held:  # sent before the coordinator heard that there is no room
            self._refused += [pb.Refusal(lease=one.lease, reason=ALONE) for one in response.assignments]
            self._to_say.set()
        elif response.assignments:
            self._buffer.extend(response.assignments)
            self.arrived.set()
        if response.beat_now:
            self.orders.set()

    @property
    def identity(self) -> str:
        return f"{self._installation} {self._session} {self._id}"

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        """Deliver outcomes to whichever coordinator answers; CoordinatorUnavailable when none does."""
        self._out.difference_update(report.task.lease for report in reports)
        return await self.redeliver(self.identity, reports)

    def report_apart(self, reports: Sequence[Report], seconds: float) -> None:
        """`report` from a thread, over a channel of its own."""
        for start in range(0, len(reports), REPORTS_PER_CALL):
            some = reports[start : start + REPORTS_PER_CALL]
            self._link.call_apart("ReportCompletion", self._completions(self.identity, some), seconds)

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        """The same under the session of a process that is gone."""
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
        if error.code() in LOST_SESSION:  # registered again since: these tasks are somebody else's now
            return [report.task.id for report in reports]
        if len(reports) > 1:
            return [id for report in reports for id in await self._report(identity, [report])]
        log.warning("report refused", task_id=str(reports[0].task.id), error=error.details())
        if isinstance(reports[0].outcome, Complete | Suspended):  # it cannot be stored: say so instead
            refused = Fail(f"its outcome was refused: {error.details()}", retry=False)
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
        with suppress(grpc.aio.AioRpcError):  # a refusal means that it is no longer ours; the beat will tell
            await self._link.call("ReportProgress", request)

    async def logs(self, lines: Sequence[LogLine], ended: Sequence[UUID]) -> None:
        """Older coordinators keep no logs; then nothing more is sent."""
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
            except grpc.aio.AioRpcError as error:  # a refusal: sending them again would not help
                self._keeps_logs = error.code() is not grpc.StatusCode.UNIMPLEMENTED
                log.debug("logs of tasks were refused", code=error.code().name)

    async def beat(self, leases: Sequence[int], usage: dict[str, Any], stats: list[dict[str, Any]]) -> Orders:
        """`stats` stay here: the coordinator counts what is reported to it, once."""
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
            raise CoordinatorUnavailable(f"the beat was refused: {error.details()}") from error
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
            log.warning("could not unregister: no coordinator answered", error=str(error))
        await self._link.close()

    def on_close(self, closing: Callable[[], Awaitable[None]]) -> None:
        """Call this when the worker leaves, while its coordinator can still be asked."""
        self._closing.append(closing)


def source(addresses: list[str], settings: Settings) -> CoordinatorSource:
    """Tasks from the coordinators at these addresses."""
    use(settings)
    return CoordinatorSource(addresses, CoordinatorSettings.of(settings))
