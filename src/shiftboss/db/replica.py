"""Reads from a standby while its lag is small, and from the primary otherwise."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from psycopg.conninfo import make_conninfo

from shiftboss.db.connection import Connection, Row, check_url
from shiftboss.db.database import Database, Params
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable

if TYPE_CHECKING:
    from shiftboss.model.settings import DatabaseSettings

log = get_logger(__name__)

#: Seconds between checks of the standby while it is in use, and while it is not.
LOOK_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 2.0
#: Seconds within which the standby must answer.
PATIENCE: Final = 2.0
#: Seconds between checks whether the replica has received a change made through this process.
SOON: Final = 0.1
POOL_SIZE: Final = 10
LATE: Final = "the replica has not received the last change yet"
_PRIMARY = """SELECT pg_current_wal_lsn()::text AS lsn, clock_timestamp() AS at,
    (SELECT identity FROM shiftboss.installation) AS identity"""
_STANDBY = """SELECT pg_is_in_recovery() AS standby, pg_last_xact_replay_timestamp() AS replayed,
    pg_last_wal_replay_lsn() >= %s::pg_lsn AS current, pg_last_wal_replay_lsn() >= %s::pg_lsn AS has_writes,
    (SELECT identity FROM shiftboss.installation) AS identity"""


class ReplicaState(NamedTuple):
    """Whether reads use the replica. `reason` says why they do not."""

    in_use: bool
    lag_seconds: float | None
    """None if unknown."""
    reason: str | None = None


class ReadDatabase(Database):
    """A database whose `fetch` uses a replica while that is at most `max_lag` seconds behind.

    Writes, transactions and connections use the primary. Use this class for lists and figures only, never for
    decisions.
    """

    def __init__(self, primary: Database, url: str, max_lag: float) -> None:
        super().__init__(primary.url, primary._pool)
        check_url(url)
        self._direct_url, self.pooled = primary._direct_url, primary.pooled
        self._primary, self._read_url, self._max_lag = primary, url, max_lag
        self._replica: Database | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = float("-inf")
        self._current_at: datetime | None = None
        self._writes = _Writes()
        self.state = ReplicaState(False, None, "the replica has not been checked yet")

    @classmethod
    def of(cls, primary: Database, settings: DatabaseSettings) -> Database:
        """Return a ReadDatabase for the settings, or the primary if they name no replica."""
        if settings.read_url is None:
            return primary
        return cls(primary, settings.read_url, settings.read_lag_seconds)

    async def fetch(self, sql: str, params: Params | None = None) -> list[Row]:
        """Run one read-only statement and return all rows."""
        await self._keep_looking()
        if self.state.in_use and self._replica is not None:
            rows = await self._read(self._replica.fetch(sql, params))
            if rows is not None:
                return rows
        return await self._primary.fetch(sql, params)

    async def execute(self, sql: str, params: Params | None = None) -> int:
        return await self._primary.execute(sql, params)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._primary.connection() as conn:
            yield conn

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self._primary.transaction() as conn:
            yield conn

    def wrote(self) -> None:
        """Use the primary until the replica has received everything committed before now."""
        self._writes.made += 1
        self._set(self.state._replace(in_use=False, reason=self.state.reason or LATE))

    async def look(self) -> ReplicaState:
        """Check the replica now and return its state."""
        await self._look_for(PATIENCE)
        return self.state

    async def close(self) -> None:
        """Close the connections to the replica. The primary stays open."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking}, timeout=PATIENCE)
        if self._replica is not None:
            await self._replica.close()

    async def _read(self, reading: Coroutine[Any, Any, list[Row]]) -> list[Row] | None:
        """Return the replica's rows, or None if it fails or falls behind meanwhile."""
        task = asyncio.ensure_future(reading)
        try:
            while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
                if not (await self.look()).in_use:
                    return None
            return task.result()
        except DatabaseUnavailable as error:
            self._set(ReplicaState(False, None, error.message))
        except DatabaseError as error:  # either the primary fails too, or it is a recovery conflict
            log.debug("the replica cannot run the query", reason=error.message)
        finally:
            task.cancel()
        return None

    async def _keep_looking(self) -> None:
        """Check the replica if it is time, without waiting for a replica that did not answer before."""
        if time.monotonic() - self._looked_at < self._pause():
            return
        first = self._looking is None
        await self._look_for(PATIENCE if self.state.in_use or self._writes.missing or first else 0)

    def _pause(self) -> float:
        if self._writes.missing and self.state.lag_seconds is not None:
            return SOON
        return LOOK_SECONDS if self.state.in_use else AWAY_SECONDS

    async def _look_for(self, seconds: float) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="look at the replica")
        self._looked_at = time.monotonic()
        if not (await asyncio.wait({self._looking}, timeout=seconds))[0] and seconds:
            self._set(ReplicaState(False, None, f"the replica did not answer for {seconds:g} s"))

    async def _look(self) -> None:
        try:
            self._set(await self._compared())
        except DatabaseError as error:
            self._set(ReplicaState(False, None, error.message))

    async def _compared(self) -> ReplicaState:
        if self._replica is None:
            # A vanished host sends no TCP reset: without this limit, its connections would hang for minutes.
            url = make_conninfo(self._read_url, tcp_user_timeout=5000)
            self._replica = await Database._open(url, None, (0, POOL_SIZE))
        made = self._writes.made
        primary = await self._primary.fetch_one(_PRIMARY) or {}
        self._writes.await_(made, primary["lsn"])
        standby = await self._replica.fetch_one(_STANDBY, [primary["lsn"], self._writes.until]) or {}
        if standby["identity"] != primary["identity"]:
            return ReplicaState(False, None, "database.read_url points to another database")
        if not standby["standby"]:
            return ReplicaState(False, None, "database.read_url points to a server that is not a standby")
        if standby["has_writes"]:
            self._writes.arrive()
        return self._judged(self._lag(primary, standby))

    def _judged(self, lag: float | None) -> ReplicaState:
        if lag is None or lag > self._max_lag:
            behind = "an unknown time" if lag is None else f"{lag:.1f} s"
            return ReplicaState(False, lag, f"the replica is {behind} behind")
        return ReplicaState(False, lag, LATE) if self._writes.missing else ReplicaState(True, lag)

    def _lag(self, primary: Row, standby: Row) -> float | None:
        """Return the age of the standby's newest commit by the primary's clock, or 0 if it has all commits.

        The primary may have been idle before the first missing commit, so the last time at which nothing was
        missing counts too.
        """
        if standby["current"]:
            self._current_at = primary["at"]
            return 0.0
        known = [at for at in (standby["replayed"], self._current_at) if at is not None]
        return max((primary["at"] - max(known)).total_seconds(), 0.0) if known else None

    def _set(self, state: ReplicaState) -> None:
        if state.in_use != self.state.in_use and state.reason != LATE and self.state.reason != LATE:
            message = "reading from the replica" if state.in_use else "reading from the primary"
            log.info(message, reason=state.reason)
        self.state = state


def state_of(db: Database) -> ReplicaState | None:
    """Return the state of the replica that `db` reads from, or None if it has none."""
    return db.state if isinstance(db, ReadDatabase) else None


class _Writes:
    """Tracks changes made through this process, and the WAL position at which the replica has them."""

    def __init__(self) -> None:
        self.made = self._shown = self._awaited = 0
        self.until: str | None = None
        """A WAL position, or None if no change is awaited."""

    @property
    def missing(self) -> bool:
        return self._shown < self.made

    def await_(self, made: int, position: str) -> None:
        if self.missing and self.until is None:
            self._awaited, self.until = made, position

    def arrive(self) -> None:
        self._shown, self.until = self._awaited, None
