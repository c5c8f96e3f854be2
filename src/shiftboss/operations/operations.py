"""The core's operations. Each method checks the role, acts, and writes the audit log.

CLI, API and dashboard all call these methods, so the same rules apply to each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from shiftboss.db.encoding import as_json
from shiftboss.db.insights import TaskFilter
from shiftboss.leader.autoscaler import set_autoscale
from shiftboss.leader.schedules import Cron, register, set_paused, unknown
from shiftboss.model.access import Principal, Role
from shiftboss.model.codec import current
from shiftboss.model.errors import NotFound, UsageError
from shiftboss.model.task import Cancel, Enqueued, NewTask
from shiftboss.model.terms import KEYS
from shiftboss.operations.approvals import check, pick, shortened
from shiftboss.operations.audit import Audited, few

if TYPE_CHECKING:
    from shiftboss.db import Row
    from shiftboss.model.settings import AutoscaleSettings

BULK = 10_000
Kind = Literal["queue", "task_type"]


class Operations(Audited):
    """Operations on tasks, workers, slots, queues, schedules and tokens."""

    async def enqueue(self, who: Principal, task: NewTask, *, keyed: bool = False) -> Enqueued:
        """Enqueue a task. The result has a `warning` if its type is unknown, or its key needs Python code.

        `keyed` means that the code of the task type has already computed the keys.
        """
        async with self._recorded(who, Role.OPERATOR, "task.enqueue", task.task_type, queue=task.queue):
            warning = await self._check(task, keyed=keyed)
            (made,) = await self._db.tasks.enqueue([task])
            return made._replace(warning=warning)

    async def _check(self, task: NewTask, *, keyed: bool = False) -> str | None:
        strict = self._settings.tasks.strict
        return "; ".join(await self._db.schemas.check([task], strict=strict, keyed=keyed)) or None

    async def task_types(self, who: Principal) -> list[Row]:
        """Return the task types that workers have published, with the JSON Schema of their arguments."""
        who.require(Role.VIEWER)
        return await self._db.schemas.all()

    async def cancel_tasks(
        self, who: Principal, ids: Sequence[UUID], reason: str | None = None
    ) -> list[Cancel]:
        noted = current().text(reason)
        async with self._recorded(who, Role.OPERATOR, "task.cancel", few(ids), count=len(ids), reason=noted):
            return _some(await self._db.tasks.cancel(ids, reason or f"by {who.name}"), ids)

    async def retry_tasks(
        self, who: Principal, ids: Sequence[UUID], start: str | None = None, *, restart: bool = False
    ) -> list[UUID]:
        """Enqueue failed and cancelled tasks again, and return the ids of those that were.

        Results of steps are kept; `start` drops them from that step on, `restart` drops all.
        """
        details = {"count": len(ids), "step": start, "restart": restart or None}
        async with self._recorded(who, Role.OPERATOR, "task.retry", few(ids), **details):
            return await self._db.tasks.retry(ids, start, restart=restart)

    async def run_tasks_now(self, who: Principal, ids: Sequence[UUID]) -> list[UUID]:
        """Make tasks due that wait for a time. Raise UsageError if none of them does."""
        async with self._recorded(who, Role.OPERATOR, "task.run_now", few(ids), count=len(ids)):
            due = await self._db.tasks.run_now(ids)
            if not due:
                raise UsageError(
                    "no such task waits for a time", hint="`shiftboss why ID` says what it waits for"
                )
            return due

    async def retry_errors(self, who: Principal, group: str) -> list[UUID]:
        """Enqueue the failed tasks of an error group again. Return their ids."""
        async with self._recorded(who, Role.OPERATOR, "error.retry", group):
            found = await self._db.insights.errors.group(group)
            return await self._db.tasks.retry(await self._db.insights.errors.members(found["id"], BULK))

    async def send_event(
        self, who: Principal, key: str, payload: Any = None, task: UUID | None = None, id: UUID | None = None
    ) -> int:
        """Send an event to the tasks that wait for it. Return how many continue."""
        async with self._recorded(who, Role.OPERATOR, "event.send", key, task=task and str(task)):
            if task is not None and await self._db.tasks.get(task) is None:
                raise NotFound(f"there is no task {task}")
            return await self._db.steps.send_event(key, payload, task=task, id=id)

    async def answer(self, who: Principal, task: UUID, answer: Any, step: str | None = None) -> Row:
        """Answer the open question of a task, or that of `step` if it has several. Return the question."""
        async with self._recorded(who, Role.OPERATOR, "task.answer", task, step=step) as noted:
            asked = pick(await self._db.steps.approvals(task), task, step)
            noted["step"] = f"{asked['name']}#{asked['ordinal']}"
            noted["question"] = current().text(asked["question"])
            noted["answer"] = current().value(shortened(answer))
            check(asked["schema"], answer)
            await self._db.steps.answer(task, asked["name"], asked["ordinal"], answer, who.name)
            return asked

    async def matching(self, who: Principal, wanted: TaskFilter) -> list[UUID]:
        """Return the ids of the tasks that a bulk action with this filter applies to."""
        who.require(Role.OPERATOR)
        return await self._db.insights.tasks.ids(wanted, BULK)

    async def steer_worker(
        self, who: Principal, worker_id: str, *, paused: bool | None = None, draining: bool | None = None
    ) -> None:
        action = "worker.drain" if draining else "worker.pause" if paused else "worker.resume"
        async with self._recorded(who, Role.OPERATOR, action, worker_id):
            if not await self._db.workers.set_flags(worker_id, paused=paused, draining=draining):
                raise NotFound(f"there is no worker {worker_id!r}")

    async def pause_slots(
        self, who: Principal, components: Sequence[str] | None = None, queue: str | None = None
    ) -> list[str]:
        async with self._recorded(who, Role.OPERATOR, "slot.pause", few(components), queue=queue):
            return await self._db.health.pause_workers(components, queue)

    async def resume_slots(
        self, who: Principal, components: Sequence[str] | None = None, queue: str | None = None
    ) -> list[str]:
        async with self._recorded(who, Role.OPERATOR, "slot.resume", few(components), queue=queue):
            return await self._db.health.resume_workers(components, queue)

    async def restart_slots(
        self, who: Principal, components: Sequence[str] | None = None, queue: str | None = None
    ) -> list[Row]:
        async with self._recorded(who, Role.OPERATOR, "slot.restart", few(components), queue=queue):
            return await self._db.health.restart_workers(components, queue)

    async def set_autoscale(self, who: Principal, queue: str, given: dict[str, Any]) -> AutoscaleSettings:
        async with self._recorded(who, Role.OPERATOR, "queue.autoscale", queue, **given):
            return await set_autoscale(self._db, queue, given)

    async def scale(self, who: Principal, queue: str, count: int, host: str | None = None) -> str:
        """Set the number of slots for a queue. Return the host that keeps them."""
        async with self._recorded(who, Role.OPERATOR, "slot.scale", queue, count=count, host=host):
            return await self._db.health.set_slots(queue, count, host)

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
        rate_per: Literal["all", "key", "tenant"] = "all",
    ) -> None:
        figures = {"max_running": max_running, "max_per_key": max_per_key, "rate": rate}
        async with self._recorded(who, Role.OPERATOR, f"{kind}.limit", name, **figures):
            await self._db.tasks.set_limit(kind, name, **figures, rate_period=period, rate_per=rate_per)

    async def reset_limit(self, who: Principal, name: str, kind: Kind = "task_type") -> bool:
        """Remove limits that an operator set, so that the limits in code apply again."""
        async with self._recorded(who, Role.OPERATOR, f"{kind}.limit", name, reset=True):
            return await self._db.tasks.reset_limit(kind, name)

    async def set_tenant_weight(self, who: Principal, name: str, weight: float | None) -> bool:
        """Set a tenant's share relative to others; None restores 1. Return whether it changed."""
        async with self._recorded(who, Role.OPERATOR, "tenant.weight", name, weight=weight):
            return await self._db.fairness.set_tenant_weight(name, weight)

    async def set_ageing(self, who: Principal, every: timedelta | None) -> None:
        """Raise the priority of waiting tasks by one point this often. None disables ageing."""
        seconds = None if every is None else every.total_seconds()
        async with self._recorded(who, Role.OPERATOR, "queue.ageing", seconds=seconds):
            await self._db.fairness.set_ageing(every)

    async def put_schedule(self, who: Principal, cron: Cron) -> Row:
        """Create or replace a schedule. Return its row, with the `warning` of `enqueue`."""
        async with self._recorded(who, Role.OPERATOR, "schedule.put", cron.name, cron=cron.cron):
            cron.check()
            task = NewTask(task_type=cron.task["task_type"], params=cron.task.get("params") or {})
            warning = await self._check(task)
            declared = as_json(task)
            keys = {name: declared[name] for name in KEYS if name in declared}  # of the present params
            await register(self._db, [replace(cron, task=declared | cron.task | keys)])
            if (row := await self._db.schedules.get(cron.name)) is None:
                raise unknown(cron.name)
            return row | {"warning": warning}

    async def run_schedule(self, who: Principal, name: str) -> UUID:
        """Enqueue the task of a schedule now, without changing its ticks. Return the task's id."""
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

    async def create_token(
        self, who: Principal, name: str, role: Role, lifetime: timedelta | None = None
    ) -> str:
        async with self._recorded(who, Role.ADMIN, "token.create", name, given=role.value):
            return await self._db.tokens.create_token(name, role, lifetime)

    async def create_login(self, who: Principal, role: Role, lifetime: timedelta) -> str:
        """Return the code of a one-time login link for a user who acts under this principal's name."""
        async with self._recorded(who, Role.ADMIN, "login.create", given=role.value):
            return await self._db.tokens.create_login(who.name, role, lifetime)

    async def revoke_token(self, who: Principal, which: str) -> None:
        async with self._recorded(who, Role.ADMIN, "token.revoke", which):
            if not await self._db.tokens.revoke_token(which):
                raise NotFound(
                    f"there is no active token {which!r}", hint="`shiftboss token list` shows all tokens"
                )


def _some(found: list[Cancel], ids: Sequence[UUID]) -> list[Cancel]:
    if not found and len(ids) == 1:
        raise NotFound(f"there is no task {ids[0]}")
    return found
