"""A named lease that at most one process holds, renewed in the background."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from shiftboss.model.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shiftboss.db.database import Database

RENEWALS = 4
"""How many times a lease is renewed within its duration."""


class Lease:
    """A lease on a name. It needs no dedicated connection and no open transaction.

    `lost` is set when another process has taken the lease. Work under the lease must be fenced by its token
    (`Database.under`), because a process may be suspended between checking `held` and acting.
    """

    def __init__(
        self,
        db: Database,
        name: str,
        seconds: float,
        holder: dict[str, Any],
        *,
        event: str | None = None,
        dead: Callable[[dict[str, Any]], bool] = lambda holder: False,
    ) -> None:
        """Create a lease that is not held yet.

        `event` is logged when the lease is taken. `dead` returns whether a holder is known to be dead.
        """
        self._leases, self.name, self._seconds = db.leases, name, seconds
        self._holder, self._event, self._dead = holder, event, dead
        self.token: UUID | None = None
        self.lost = asyncio.Event()
        self._until = 0.0
        self._renewing: asyncio.Task[None] | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, as far as it can tell without asking the database."""
        return self.token is not None and not self.lost.is_set() and time.monotonic() < self._until

    async def acquire(self) -> bool:
        """Try once to take the lease, and return whether this process holds it. Raises DatabaseError."""
        await self._stop_renewing()
        if self.token is None or self.lost.is_set():
            self.token = uuid4()
            self.lost.clear()
        began = time.monotonic()
        if not await self._take(self.token):
            return False
        self._until = began + self._seconds
        self._renewing = asyncio.create_task(self._renew(self.token), name=f"lease {self.name}")
        return True

    async def _take(self, token: UUID) -> bool:
        """Take the lease with `token`, also from a dead holder.

        After an error the caller retries with the same token: the lost answer may have granted the lease.
        """
        duration, over = timedelta(seconds=self._seconds), None
        for _ in range(2):
            now = await self._leases.acquire_lease(
                self.name, token, self._holder, duration, event=self._event, over=over
            )
            if now is None or now.token == token or not self._dead(now.holder):
                break
            over = now.token
        return now is not None and now.token == token

    async def _renew(self, token: UUID) -> None:
        pause = self._seconds / RENEWALS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._seconds):
                    if not await self._leases.renew_lease(self.name, token):
                        self.lost.set()
                        return
            except (DatabaseError, TimeoutError):
                pause = self._seconds / RENEWALS / 4
            else:
                self._until, pause = began + self._seconds, self._seconds / RENEWALS

    async def release(self) -> None:
        """Release the lease. If the database is unavailable, the lease expires instead."""
        await self._stop_renewing()
        token, self.token = self.token, None
        if token is not None and not self.lost.is_set():
            with suppress(DatabaseError, TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._leases.release_lease(self.name, token)

    async def _stop_renewing(self) -> None:
        task, self._renewing = self._renewing, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
