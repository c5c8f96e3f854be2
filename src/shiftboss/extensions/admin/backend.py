"""The objects that routes and pages share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Request

from shiftboss.db import Database, Row
from shiftboss.db.insights import TaskFilter
from shiftboss.db.replica import ReadDatabase
from shiftboss.extensions.admin.access import Access
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.extensions.admin.stream import Hub
from shiftboss.model.access import Forbidden
from shiftboss.model.settings import Settings
from shiftboss.operations import Operations

P = TypeVar("P")
HIDDEN = "(hidden)"


class Backend:
    """The parts of the service: database, operations, access and live changes.

    Lists and statistics are read from `reads`, which may be a replica that is slightly behind. Single
    objects, and everything that an action depends on, are read from `db`.
    """

    def __init__(self, db: Database, settings: Settings) -> None:
        self.db, self.settings = db, settings
        self.reads = ReadDatabase.of(db, settings.database)
        self.access = Access(db, AdminSettings.of(settings))
        self.commands = Operations(db, settings)
        self.hub = Hub(db, settings.database.direct_url)
        self._parts: dict[Any, Any] = {}

    def use(self, kind: Callable[[Database, Settings], P]) -> P:
        """Return the only instance of an extension's part in this service."""
        if kind not in self._parts:
            self._parts[kind] = kind(self.db, self.settings)
        part: P = self._parts[kind]
        return part

    @property
    def hides(self) -> bool:
        """Whether this service hides payloads: params, results, prompts, answers, messages and streams."""
        return AdminSettings.of(self.settings).hide_payloads

    def searchable(self, wanted: TaskFilter) -> TaskFilter:
        """Reject text filters while payloads are hidden: repeated searches would reveal them."""
        if wanted.text and self.hides:
            raise Forbidden(
                "params cannot be searched while admin.hide_payloads is set", hint="remove the text filter"
            )
        return wanted

    async def audit(self, limit: int, before: int | None = None) -> list[Row]:
        """Return the audit log, newest first. Answers are hidden together with other payloads."""
        rows = await self.db.tokens.audit(limit, before)
        for row in rows:
            if "answer" in row["details"] and self.hides:
                row["details"] = {**row["details"], "answer": HIDDEN}
        return rows

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run the parts of the service while the block is active."""
        async with self.hub:
            yield
        if isinstance(self.reads, ReadDatabase):
            await self.reads.close()
        for part in self._parts.values():
            if (close := getattr(part, "close", None)) is not None:
                await close()

    def wrote(self) -> None:
        """Make the next reads include a change that was just made."""
        if isinstance(self.reads, ReadDatabase):
            self.reads.wrote()

    def attach(self, app: FastAPI) -> None:
        app.state.admin = self
        app.state.access = self.access


def _backend(request: Request) -> Backend:
    admin: Backend = request.app.state.admin
    return admin


At = Annotated[Backend, Depends(_backend)]
