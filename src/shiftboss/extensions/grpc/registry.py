"""The sessions of the workers that are connected to this coordinator."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta

import grpc

from shiftboss.db import Database
from shiftboss.extensions.grpc.refusals import CallRefused, TooFast, unknown_worker, wrong_session
from shiftboss.extensions.grpc.session import Rate, Session, hashed, profile_of
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.model.worker import Member

FORGET_AFTER = 600.0
REPLACED = "another worker registered with this ID"


class Registry:
    """Sessions by worker ID. Sessions created by another coordinator are loaded from the database."""

    def __init__(self, db: Database, settings: CoordinatorSettings) -> None:
        self._db = db
        self._settings = settings
        self._sessions: dict[str, Session] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def get(self, worker_id: str) -> Session | None:
        return self._sessions.get(worker_id)

    def connected(self) -> list[Session]:
        return [session for session in self._sessions.values() if session.outbox is not None]

    async def enroll(self, member: Member, former: str) -> tuple[str, bool]:
        """Register a worker. Return the secret of its session, and whether its previous session continues."""
        secret = secrets.token_urlsafe(24)
        done = await self._db.family(FleetStore).enroll(
            member,
            hashed(secret),
            hashed(former) if former else None,
            timedelta(seconds=self._settings.heartbeat_seconds * 2.5),
        )
        if done.taken:
            raise CallRefused(
                grpc.StatusCode.ALREADY_EXISTS,
                f"another worker {member.id!r} is connected; use another ID, or stop the other worker",
            )
        if not done.resumed and (old := self._sessions.get(member.id)):
            self.end(old, REPLACED)
        if done.resumed and (old := self._sessions.get(member.id)):
            await self._refresh(old)
        return (former if done.resumed else secret), done.resumed

    async def _refresh(self, session: Session) -> None:
        row = await self._db.family(FleetStore).session(session.worker_id)
        if row is not None:
            lapsed, session.profile = session.profile.lapsed, profile_of(row)
            session.profile.lapsed = lapsed

    async def session(self, worker_id: str, secret: str) -> Session:
        """Return the session of a call, or raise Refused."""
        session = self._sessions.get(worker_id)
        if session is None or not session.knows(secret):
            session = await self._adopt(worker_id, secret)
        if not session.rate.allows():
            raise TooFast(
                f"more than {self._settings.calls_per_second:g} calls per second; send larger batches"
            )
        return session

    async def current(self, worker_id: str, secret: str) -> Session:
        """Return the session of a call after checking it in the database.

        Another coordinator may have registered another process with this ID in the meantime.
        """
        session = await self.session(worker_id, secret)
        row = await self._db.family(FleetStore).session(worker_id)
        if row is None or bytes(row["secret"]) != session.secret:
            self.end(session, REPLACED)
            raise wrong_session(worker_id)
        return session

    async def _adopt(self, worker_id: str, secret: str) -> Session:
        row = await self._db.family(FleetStore).session(worker_id) if worker_id.isprintable() else None
        if row is None:
            raise unknown_worker(worker_id)
        if bytes(row["secret"]) != hashed(secret):
            raise wrong_session(worker_id)
        rate = Rate(self._settings.calls_per_second)
        session = Session(worker_id, bytes(row["secret"]), profile_of(row), rate)
        session.held = dict(zip(row["held_leases"], row["held_ids"], strict=True))
        there = self._sessions.get(worker_id)
        if there is not None and there.knows(secret):  # another call of this worker was faster
            return there
        self._sessions[worker_id] = session
        return session

    def end(self, session: Session, reason: str) -> None:
        """Remove a session and close its stream."""
        if self._sessions.get(session.worker_id) is session:
            del self._sessions[session.worker_id]
        if session.outbox is not None:
            session.outbox.close(reason)

    def tidy(self) -> None:
        """Remove idle sessions. They are loaded again if their workers return."""
        for session in self:
            if session.outbox is None and session.rate.quiet_seconds > FORGET_AFTER:
                self.end(session, "the worker has been idle for too long")
