"""Everything that changes something: one method each, that checks the role, acts, and writes the audit log.

The API's routes and the page's buttons both call these, so neither can do what the other may not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from shiftboss.bots.catalog import Catalog
from shiftboss.bots.order import check
from shiftboss.bots.registry import Bots
from shiftboss.coordinator.cron import Cron, register, set_paused, unknown
from shiftboss.db.insights import TaskFilter
from shiftboss.db.runs import StartedRun
from shiftboss.journal.commands import Imported, import_entries, process
from shiftboss.journal.reading import read
from shiftboss.model.access import Forbidden, Principal, Role
from shiftboss.model.errors import NotFound, ShiftbossError
from shiftboss.model.task import Cancel, Enqueued, NewTask

if TYPE_CHECKING:
    from shiftboss.db import Database, Row
    from shiftboss.model.settings import Settings

BULK = 10_000
Kind = Literal["queue", "task_type"]


class Commands:
    def __init__(self, db: Database, settings: Settings, bots: Bots, catalog: Catalog) -> None:
        self._db, self._settings = db, settings
        self._bots, self._catalog = bots, catalog

    @asynccontextmanager
    async def _recorded(
        self, who: Principal, role: Role, action: str, target: object = None, **details: Any
    ) -> AsyncIterator[None]:
        """The block runs only if `who` has the role; how it ended is recorded in any case."""
        about = None if target is None else str(target)
        given = {name: value for name, value in details.items() if value is not None}
        try:
            who.require(role)
            yield
        except ShiftbossError as error:
            outcome = "refused" if isinstance(error, Forbidden) else "failed"
            await self._db.tokens.record(who, action, about, outcome, {**given, "error": error.message})
            raise
        await self._db.tokens.record(who, action, about, "done", given)

    async def start_run(
        self, who: Principal, bot: str, city: str | None, category: str | None, params: dict[str, Any]
    ) -> StartedRun:
        async with self._recorded(who, Role.OPERATOR, "run.start", bot, city=city, category=category):
            order = check(self._bots, self._catalog, bot, city, category, params)
            return await self._db.runs.start_run(
                order.bot.name,
                order.city.key if order.city else None,
                order.category.key if order.category else None,
                order.stored(),
                queue=self._settings.bots.queue,
                requested_by=who.name,
            )

    async def cancel_run(self, who: Principal, id: UUID, reason: str | None = None) -> None:
        async with self._recorded(who, Role.OPERATOR, "run.cancel", id):
            await self._db.runs.cancel_run(id, reason or f"by {who.name}")

    async def retry_run(self, who: Principal, id: UUID) -> StartedRun:
        async with self._recorded(who, Role.OPERATOR, "run.retry", id):
            return await self._db.runs.retry_run(id, queue=self._settings.bots.queue, requested_by=who.name)

    async def enqueue(self, who: Principal, task: NewTask) -> Enqueued:
        async with self._recorded(who, Role.OPERATOR, "task.enqueue", task.task_type, queue=task.queue):
            (made,) = await self._db.tasks.enqueue([task])
            return made

    async def cancel_tasks(self, who: Principal, ids: Sequence[UUID]) -> list[Cancel]:
        async with self._recorded(who, Role.OPERATOR, "task.cancel", _few(ids), count=len(ids)):
            return _some(await self._db.tasks.cancel(ids, f"by {who.name}"), ids)

    async def retry_tasks(self, who: Principal, ids: Sequence[UUID]) -> list[UUID]:
        async with self._recorded(who, Role.OPERATOR, "task.retry", _few(ids), count=len(ids)):
            return await self._db.tasks.retry(ids)

    async def matching(self, who: Principal, wanted: TaskFilter) -> list[UUID]:
        """The tasks that a bulk action on this filter would mean."""
        who.require(Role.OPERATOR)
        return await self._db.insights.tasks.ids(wanted, BULK)

    async def steer_worker(
        self, who: Principal, worker_id: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> None:
        action = "worker.drain" if draining else "worker.pause" if paused else "worker.resume"
        async with self._recorded(who, Role.OPERATOR, action, worker_id):
            if not await self._db.workers.set_flags(worker_id, paused=paused, draining=draining):
                raise NotFound(f"there is no worker {worker_id!r}")

    async def pause_slots(self, who: Principal, components: Sequence[str] | None = None) -> list[str]:
        async with self._recorded(who, Role.OPERATOR, "slot.pause", _few(components)):
            return await self._db.health.pause_workers(components)

    async def resume_slots(self, who: Principal, components: Sequence[str] | None = None) -> list[str]:
        async with self._recorded(who, Role.OPERATOR, "slot.resume", _few(components)):
            return await self._db.health.resume_workers(components)

    async def restart_slots(self, who: Principal, components: Sequence[str] | None = None) -> list[Row]:
        async with self._recorded(who, Role.OPERATOR, "slot.restart", _few(components)):
            return await self._db.health.restart_workers(components)

    async def pause_queue(
        self, who: Principal, name: str, reason: str | None = None, kind: Kind = "queue"
    ) -> bool:
        async with self._recorded(who, Role.OPERATOR, f"{kind}.pause", name, reason=reason):
            return await self._db.tasks.pause(kind, name, reason)

    async def resume_queue(self, who: Principal, name: str, kind: Kind = "queue") -> bool:
        async with self._recorded(who, Role.OPERATOR, f"{kind}.resume", name):
            return await self._db.tasks.resume(kind, name)

    async def limit_queue(
        self,
        who: Principal,
        name: str,
        max_running: int | None,
        rate: int | None,
        period: timedelta | None,
        *,
        kind: Kind = "queue",
        max_per_key: int | None = None,
    ) -> None:
        figures = {"max_running": max_running, "max_per_key": max_per_key, "rate": rate}
        async with self._recorded(who, Role.OPERATOR, f"{kind}.limit", name, **figures):
            await self._db.tasks.set_limit(kind, name, **figures, rate_period=period)

    async def create_vectorizer(self, who: Principal, source: str, options: dict[str, Any]) -> int:
        """Let embeddings follow a table; the id."""
        async with self._recorded(who, Role.OPERATOR, "vectorizer.create", source, **options):
            return await self._db.vectorizers.create(source, **options)

    async def update_vectorizer(self, who: Principal, id: int, options: dict[str, Any]) -> int:
        """Change what is given; the id of what works at the change."""
        async with self._recorded(who, Role.OPERATOR, "vectorizer.update", id, **options):
            return await self._db.vectorizers.update(id, **options)

    async def pause_vectorizer(self, who: Principal, id: int) -> None:
        async with self._recorded(who, Role.OPERATOR, "vectorizer.pause", id):
            await self._db.vectorizers.pause(id)

    async def resume_vectorizer(self, who: Principal, id: int) -> None:
        async with self._recorded(who, Role.OPERATOR, "vectorizer.resume", id):
            await self._db.vectorizers.resume(id)

    async def retry_vectorizer(self, who: Principal, id: int) -> int:
        async with self._recorded(who, Role.OPERATOR, "vectorizer.retry", id):
            return await self._db.vectorizers.retry(id)

    async def drop_vectorizer(self, who: Principal, id: int, everything: bool = False) -> None:
        """Take it away; the embeddings that it made stay, unless `everything` is to go."""
        async with self._recorded(who, Role.OPERATOR, "vectorizer.drop", id, everything=everything or None):
            await self._db.vectorizers.drop(id, everything)

    async def put_schedule(self, who: Principal, cron: Cron) -> Row:
        """Make a schedule, or change the one of that name; how it stands then."""
        async with self._recorded(who, Role.OPERATOR, "schedule.put", cron.name, cron=cron.cron):
            await register(self._db, [cron])
            if (row := await self._db.schedules.get(cron.name)) is None:
                raise unknown(cron.name)
            return row

    async def run_schedule(self, who: Principal, name: str) -> UUID:
        """Enqueue its task once, now; its ticks stay as they are."""
        async with self._recorded(who, Role.OPERATOR, "schedule.run", name):
            if (id := await self._db.schedules.run(name)) is None:
                raise unknown(name)
            return id

    async def pause_schedule(self, who: Principal, name: str) -> None:
        async with self._recorded(who, Role.OPERATOR, "schedule.pause", name):
            await set_paused(self._db, name, True)

    async def resume_schedule(self, who: Principal, name: str) -> None:
        async with self._recorded(who, Role.OPERATOR, "schedule.resume", name):
            await set_paused(self._db, name, False)

    async def remove_schedule(self, who: Principal, name: str) -> None:
        async with self._recorded(who, Role.OPERATOR, "schedule.remove", name):
            if not await self._db.schedules.remove(name):
                raise unknown(name)

    async def process_journal(
        self, who: Principal, user: str | None = None, again: Sequence[str] = ()
    ) -> list[UUID]:
        """Enqueue the analysis of every entry that is not through yet, and of these results anew."""
        async with self._recorded(who, Role.OPERATOR, "journal.process", user or "all"):
            return await process(self._db, user, again=again)

    async def import_journal(self, who: Principal, file: Path, user: str | None = None) -> Imported:
        """Store the entries of a file, and enqueue the analysis of what is new or changed."""
        async with self._recorded(who, Role.OPERATOR, "journal.import", file.name, user=user):
            return await import_entries(self._db, read([file], user=user))

    async def create_token(
        self, who: Principal, name: str, role: Role, lifetime: timedelta | None = None
    ) -> str:
        async with self._recorded(who, Role.ADMIN, "token.create", name, given=role.value):
            return await self._db.tokens.create_token(name, role, lifetime)

    async def create_login(self, who: Principal, role: Role, lifetime: timedelta) -> str:
        """The code of a one-time login link, for somebody who will act under this name."""
        async with self._recorded(who, Role.ADMIN, "login.create", given=role.value):
            return await self._db.tokens.create_login(who.name, role, lifetime)

    async def revoke_token(self, who: Principal, which: str) -> None:
        async with self._recorded(who, Role.ADMIN, "token.revoke", which):
            if not await self._db.tokens.revoke_token(which):
                raise NotFound(f"there is no live token {which!r}", hint="`shiftboss token list` shows all")


def _few(ids: Sequence[object] | None) -> str:
    return "all" if ids is None else ", ".join(map(str, ids[:10])) + (" …" if len(ids) > 10 else "")


def _some(found: list[Cancel], ids: Sequence[UUID]) -> list[Cancel]:
    if not found and len(ids) == 1:
        raise NotFound(f"there is no task {ids[0]}")
    return found
