"""The frame of every operation: check the role, run the action, record the outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from shiftboss.model.access import Forbidden, Principal, Role
from shiftboss.model.codec import current
from shiftboss.model.errors import ShiftbossError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import Settings


class Audited:
    """Base class of the core's `Operations` and of the operations of extensions."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db, self._settings = db, settings

    @asynccontextmanager
    async def _recorded(
        self, who: Principal, role: Role, action: str, target: object = None, **details: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Run the block only if `who` has the role and the audit log can be written; record how it ended.

        The block receives the details and may add to them.
        """
        await self._db.tokens.require_audit()
        about = None if target is None else str(target)
        given = {name: value for name, value in details.items() if value is not None}
        if who.source is not None:
            given["from"] = who.source
        try:
            who.require(role)
            yield given
        except ShiftbossError as error:
            outcome = "refused" if isinstance(error, Forbidden) else "failed"
            message = current().text(error.message)  # sealed, because it may contain a value
            await self._db.tokens.record(who, action, about, outcome, {**given, "error": message})
            raise
        await self._db.tokens.record(who, action, about, "done", given)


def few(ids: Sequence[object] | None) -> str:
    """Return up to ten of the ids as one text for the audit log."""
    return "all" if ids is None else ", ".join(map(str, ids[:10])) + (" …" if len(ids) > 10 else "")
