"""The AssignTask stream: workers send free slots, acceptances and refusals, and receive assignments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

import grpc

from shiftboss.db import Database
from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.dispatch import Dispatcher
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.refusals import CallRefused, Context, TooFast, answering, invalid, readable
from shiftboss.extensions.grpc.registry import Registry
from shiftboss.extensions.grpc.session import Session, StreamOutbox
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.lifecycle import first_of
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError

log = get_logger(__name__)
Requests = AsyncIterator[pb.AssignTaskRequest]

AFTER_A_REFUSAL = timedelta(seconds=1)


class Parts(NamedTuple):
    """The objects that the calls of one coordinator share."""

    db: Database
    registry: Registry
    dispatcher: Dispatcher
    settings: CoordinatorSettings
    name: str
    installation: str


class Streams:
    """One reader and one writer per connected worker."""

    def __init__(self, parts: Parts) -> None:
        self._db, self._registry, self._dispatcher, self._settings, self._name, _ = parts

    @answering
    async def serve(self, requests: Requests, context: Context) -> None:
        """Serve until the worker disconnects, stops reading, breaks the protocol or opens another stream."""
        first = await self._first(requests)
        session = await self._registry.current(first.worker_id, first.session)
        if session.outbox is not None:
            session.outbox.close("the worker opened another stream")
        outbox = session.outbox = StreamOutbox()
        try:
            await self._flow(session, outbox, first, requests, context)
        finally:
            await asyncio.shield(self._close(session, outbox))

    async def _flow(
        self,
        session: Session,
        outbox: StreamOutbox,
        first: pb.AssignTaskRequest,
        requests: Requests,
        context: Context,
    ) -> None:
        session.free_slots = session.ahead = 0
        await self._unaccepted(session)
        await self._db.family(FleetStore).attach(session.worker_id, self._name)
        reading, writing = self._read(session, first, requests), self._write(session, outbox, context)
        (await first_of(reading, writing)).result()

    async def _first(self, requests: Requests) -> pb.AssignTaskRequest:
        try:
            async with asyncio.timeout(self._settings.accept_seconds):
                first: pb.AssignTaskRequest = readable(await anext(requests))
                return first
        except (TimeoutError, StopAsyncIteration):
            raise invalid("the first message of the stream must contain worker_id and session") from None

    async def _read(self, session: Session, first: pb.AssignTaskRequest, requests: Requests) -> None:
        await self._receive(session, first)
        async for request in requests:
            if not session.rate.allows():
                raise TooFast(
                    f"more than {self._settings.calls_per_second:g} messages per second; send larger batches"
                )
            await self._receive(session, readable(request))

    async def _receive(self, session: Session, request: pb.AssignTaskRequest) -> None:
        ahead = int(codec.number(request.ahead, "ahead", 0, codec.MAX_AHEAD))
        if request.free_slots > session.profile.slots + ahead:
            raise invalid(
                f"free_slots is {request.free_slots}, but worker {session.worker_id!r} registered with"
                f" max_concurrent_tasks {session.profile.slots}, and ahead is {ahead}"
            )
        session.accept(request.accepted)
        session.free_slots, session.ahead = request.free_slots, ahead
        for refusal in request.refused:
            reason = f"refused by {session.worker_id}: {codec.plain(refusal.reason) or 'no reason given'}"
            mine = session.drop([refusal.lease]) if refusal.lease in session.pending else []
            await self._dispatcher.put_back(mine, reason, AFTER_A_REFUSAL)
        self._dispatcher.wake()

    async def _write(self, session: Session, outbox: StreamOutbox, context: Context) -> None:
        while outbox.closed is None:
            await outbox.filled.wait()
            for message in outbox.take(self._settings.max_message_bytes // 2):
                try:
                    async with asyncio.timeout(self._settings.accept_seconds):
                        await context.write(message)
                except TimeoutError:
                    session.lapse()
                    raise CallRefused(
                        grpc.StatusCode.ABORTED, "the worker does not read its stream; open it again"
                    ) from None
        raise CallRefused(grpc.StatusCode.ABORTED, outbox.closed)

    async def _close(self, session: Session, outbox: StreamOutbox) -> None:
        if session.outbox is not outbox:  # replaced by a newer stream
            return
        session.outbox = None
        session.free_slots = 0
        with suppress(DatabaseError):
            await self._unaccepted(session)
            await self._db.family(FleetStore).detach(self._name, session.worker_id)

    async def _unaccepted(self, session: Session) -> None:
        """Return assignments of the previous stream that were not accepted to the queue."""
        held = session.drop(list(session.pending))
        await self._dispatcher.put_back(held, "the stream ended before its worker accepted it")
