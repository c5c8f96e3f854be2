"""The workers that speak to this coordinator. The database knows them all; this is what is needed at hand."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta

import grpc

from shiftboss.db import Database
from shiftboss.extensions.grpc.refusals import Refused, TooFast, unknown_worker, wrong_session
from shiftboss.extensions.grpc.session import Rate, Session, hashed, profile_of
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.store import Fleet
from shiftboss.model.worker import Member

FORGET_AFTER = 600.0


class Registry:
    """Sessions by worker id. One that another coordinator made, or a former life of this one, is adopted."""

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
        """Register a worker; its session's secret, and whether it goes on with the one it had."""
        secret = secrets.token_urlsafe(24)
        done = await self._db.family(Fleet).enroll(
            member,
            hashed(secret),
            hashed(former) if former else None,
            timedelta(seconds=self._settings.heartbeat_seconds * 2.5),
        )
        if done.taken:
            raise Refused(
                grpc.StatusCode.ALREADY_EXISTS,
                f"a worker {member.id!r} is connected now; give this one another id, or stop the other",
            )
        if not done.resumed and (old := self._sessions.get(member.id)):
            self.end(old, "another worker registered under this id")
        if done.resumed and (old := self._sessions.get(member.id)):
            await self._refresh(old)
        return (former if done.resumed else secret), done.resumed

    async def _refresh(self, session: Session) -> None:
        row = await self._db.family(Fleet).session(session.worker_id)
        if row is not None:
            lapsed, session.profile = session.profile.lapsed, profile_of(row)
            session.profile.lapsed = lapsed

    async def session(self, worker_id: str, secret: str) -> Session:
        """The session that a call names, or the call's refusal."""
        session = self._sessions.get(worker_id)
        if session is None or not session.knows(secret):
            session = await self._adopt(worker_id, secret)
        if not session.rate.allows():
            raise TooFast(
                f"more than {self._settings.calls_per_second:g} calls a second; put more into each call"
            )
        return session

    async def current(self, worker_id: str, secret: str) -> Session:
        """The same by the database: elsewhere the name may have been given to another process since."""
        session = await self.session(worker_id, secret)
        row = await self._db.family(Fleet).session(worker_id)
        if row is None or bytes(row["secret"]) != session.secret:
            self.end(session, "another worker registered under this id")
            raise wrong_session(worker_id)
        return session

    async def _adopt(self, worker_id: str, secret: str) -> Session:
        row = await self._db.family(Fleet).session(worker_id) if worker_id.isprintable() else None
        if row is None:
            raise unknown_worker(worker_id)
        if bytes(row["secret"]) != hashed(secret):
            raise wrong_session(worker_id)
        rate = Rate(self._settings.calls_per_second)
        session = Session(worker_id, bytes(row["secret"]), profile_of(row), rate)
        session.held = dict(zip(row["held_leases"], row["held_ids"], strict=True))
        there = self._sessions.get(worker_id)
        if there is not None and there.knows(secret):  # another call of this worker was quicker
            return there
        self._sessions[worker_id] = session
        return session

    def end(self, session: Session, reason: str) -> None:
        """It is nobody's any more."""
        if self._sessions.get(session.worker_id) is session:
            del self._sessions[session.worker_id]
        if session.outbox is not None:
            session.outbox.close(reason)

    def tidy(self) -> None:
        """Forget workers that fell silent. One that comes back is adopted again."""
        for session in self:
            if session.outbox is None and session.rate.quiet_seconds > FORGET_AFTER:
                self.end(session, "not heard of for long")
