"""A context for a handler that is called directly: nobody waits, nothing is reported."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from shiftboss.model.task import Claimed, Priority, new_id
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handler


def inline_claim(handler: Handler, params: dict[str, Any] | None = None) -> Claimed:
    """What a worker would hold for this handler, made here."""
    now = datetime.now(UTC)
    return Claimed(
        id=new_id(),
        lease=0,
        task_type=handler.name,
        params=params or {},
        attempt=1,
        max_attempts=handler.max_attempts or 3,
        queue=handler.queue,
        priority=handler.priority or Priority.NORMAL,
        tenant=None,
        timeout=handler.timeout,
        deadline=None,
        created_at=now,
        ready_at=now,
        started_at=now,
        lane=0,
        run_id=None,
        metadata=None,
    )


def inline_context(handler: Handler) -> Context | None:
    """None for a handler that does not ask for one."""
    return Context(inline_claim(handler), None, ignore) if handler.wants_context else None


def ignore(lease: int, id: UUID, percent: int, message: str | None) -> None:
    """Progress that nobody looks at."""
