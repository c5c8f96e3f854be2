"""A worker's source that needs no database: the runtime is the same, tasks come from a coordinator.

Reconnects by itself and goes on with its session, at the same coordinator or at the next of the list. What
was being reported is reported again until it is answered; the coordinator counts each attempt once.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import grpc
import structlog

from shiftboss.coordinator import codec
from shiftboss.coordinator.link import (
    LOST_SESSION,
    CoordinatorError,
    CoordinatorUnavailable,
    Link,
    told_to_stop,
)
from shiftboss.coordinator.messages import claimed, completion, registration
from shiftboss.coordinator.proto import fleet_pb2 as pb
from shiftboss.lifecycle import Backoff
from shiftboss.model.settings import CoordinatorSettings
from shiftboss.model.task import Claimed, Complete, Fail, Report
from shiftboss.model.worker import Member, Orders

log = structlog.get_logger()

PATIENCE = 15.0
"""Seconds for which a name that is still taken is tried again: the former process may just have died."""
REPORTS_PER_CALL = 500
MAX_AHEAD = codec.MAX_AHEAD


class CoordinatorSource:
    """The worker room's `Source`, over gRPC."""

    def __init__(self, addresses: Sequence[str], settings: CoordinatorSettings) -> None:
        self.orders = asyncio.Event()
        self.spool = f"coordinator-{zlib.crc32(' '.join(sorted(addresses)).encode()):08x}"
        self.heartbeat_seconds: float | None = None
        self._link = Link(addresses, settings)
        self._member: Member | None = None
        self._id = ""
        self._session = ""
        self._slots = 1
        self._free = 0
        self._ahead = 0
        self._out: set[int] = set()
        self._accepted: list[int] = []
        self._buffer: deque[pb.Assignment] = deque()
        self.arrived = asyncio.Event()
        self._to_say = asyncio.Event()
        self._stream: asyncio.Task[None] | None = None

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
        self._session = answer.session
        self.heartbeat_seconds = answer.heartbeat_seconds

    async def claim(self, limit: int) -> list[Claimed]:
        """What has arrived; the coordinator hears how much more there is room for."""
        self.arrived.clear()
        taken = [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]
        self._accepted += [one.lease for one in taken]
        self._out.update(one.lease for one in taken)
        room = self._slots - len(self._out)  # what is asked for beyond it, the runtime wants to keep ready
        free = min(limit - len(taken), max(room, 0) + MAX_AHEAD)
        if taken or free != self._free:
            self._free = free
            self._ahead = min(max(free - room, 0), MAX_AHEAD)
            self._to_say.set()
        if self._buffer:
            self.arrived.set()
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
            message = pb.AssignTaskRequest(free_slots=self._free, ahead=self._ahead, accepted=self._accepted)
            self._accepted = []

    def _hear(self, response: pb.AssignTaskResponse) -> None:
        if response.withdrawn:
            gone = set(response.withdrawn)
            self._buffer = deque(one for one in self._buffer if one.lease not in gone)
            self._to_say.set()  # nothing more comes until this worker has spoken
        if response.assignments:
            self._buffer.extend(response.assignments)
            self.arrived.set()
        if response.beat_now:
            self.orders.set()

    @property
    def identity(self) -> str:
        return f"{self._session} {self._id}"

    async def report(self, reports: Sequence[Report]) -> list[UUID]:
        """Deliver outcomes to whichever coordinator answers; CoordinatorUnavailable when none does."""
        self._out.difference_update(report.task.lease for report in reports)
        return await self.redeliver(self.identity, reports)

    async def redeliver(self, identity: str, reports: Sequence[Report]) -> list[UUID]:
        """The same under the session of a process that is gone."""
        stale: list[UUID] = []
        for start in range(0, len(reports), REPORTS_PER_CALL):
            stale += await self._report(identity, list(reports[start : start + REPORTS_PER_CALL]))
        return stale

    async def _report(self, identity: str, reports: list[Report]) -> list[UUID]:
        session, _, worker_id = identity.partition(" ")
        request = pb.ReportCompletionRequest(
            worker_id=worker_id, session=session, completions=map(completion, reports)
        )
        try:
            answer: pb.ReportCompletionResponse = await self._link.call("ReportCompletion", request)
            return [UUID(id) for id in answer.stale]
        except grpc.aio.AioRpcError as error:
            return await self._after_refusal(error, identity, reports)

    async def _after_refusal(
        self, error: grpc.aio.AioRpcError, identity: str, reports: list[Report]
    ) -> list[UUID]:
        if error.code() in LOST_SESSION:  # registered anew since: these tasks are somebody else's now
            return [report.task.id for report in reports]
        if len(reports) > 1:
            return [id for report in reports for id in await self._report(identity, [report])]
        log.warning("report refused", task_id=str(reports[0].task.id), error=error.details())
        if isinstance(reports[0].outcome, Complete):  # its result can not be stored: say so instead
            refused = Fail(f"its result was refused: {error.details()}", retry=False)
            return await self._report(identity, [reports[0]._replace(outcome=refused)])
        return [reports[0].task.id]

    async def progress(
        self, held: Sequence[tuple[UUID, int]], percents: Sequence[int], messages: Sequence[str | None]
    ) -> None:
        items = [
            pb.Progress(
                held=pb.Held(task_id=str(id), lease=lease),
                percent=max(0, min(percent, 99)),
                message=message or "",
            )
            for (id, lease), percent, message in zip(held, percents, messages, strict=True)
        ]
        request = pb.ReportProgressRequest(worker_id=self._id, session=self._session, progress=items)
        with suppress(grpc.aio.AioRpcError):  # a refusal means that it is no longer ours; the beat will tell
            await self._link.call("ReportProgress", request)

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
        request = pb.UnregisterWorkerRequest(worker_id=self._id, session=self._session)
        try:
            await self._link.call("UnregisterWorker", request)
        except (CoordinatorUnavailable, grpc.aio.AioRpcError) as error:
            log.warning("left without a word: no coordinator heard it", error=str(error))
        await self._link.close()
