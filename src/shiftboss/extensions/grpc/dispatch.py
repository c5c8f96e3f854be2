"""The dispatcher reads waiting tasks and free slots, lets the scheduler decide, and assigns the tasks."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from uuid import UUID

from shiftboss.db import Database
from shiftboss.db.listen import listen
from shiftboss.extensions.grpc import codec
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb
from shiftboss.extensions.grpc.registry import Registry
from shiftboss.extensions.grpc.scheduler import Assignments, FleetSnapshot, FlowState, Lane, schedule
from shiftboss.extensions.grpc.session import Held, Session
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.store import FleetStore
from shiftboss.lifecycle import Service, sleep, ticks
from shiftboss.lifecycle.waiting import when_up
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError, TasksLocked
from shiftboss.worker.sleeper import CHANNEL, Sleeper
from shiftboss.worker.source import Marks

log = get_logger(__name__)

MOST_PER_PASS = 2000
ANNOUNCE_SECONDS = 5.0
AT_ONCE = timedelta(0)


class Dispatcher(Service):
    """Makes a pass whenever tasks arrive or slots become free, and at the polling interval."""

    def __init__(
        self, db: Database, registry: Registry, settings: CoordinatorSettings, name: str, listen_url: str
    ) -> None:
        super().__init__()
        self._assigned = 0
        self._passes = 0
        self._seconds = {part: deque[float](maxlen=1000) for part in ("reading", "scheduling", "claim")}
        self._db = db
        self._registry = registry
        self._settings = settings
        self._name = name
        self._listen_url = listen_url
        self._wake = asyncio.Event()
        self._sleeper = Sleeper(db, self._wake.set)
        self._contended = False
        self._marks = Marks()
        self._turn = 0
        self._announced = 0.0
        self._fairness = FlowState()

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        await when_up(lambda: self._db.family(FleetStore).detach(self._name), stopping=self.stopping)
        self.ready()
        helpers = [
            asyncio.create_task(work, name=name)
            for name, work in {"listen for tasks": self._listen(), "watch workers": self._watch()}.items()
        ]
        try:
            while not self.stopping.is_set():
                await sleep(self._settings.poll_seconds, self._wake, self.stopping)
                self._wake.clear()
                await self._pass()
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._sleeper.close()
            with suppress(DatabaseError):
                await self._db.family(FleetStore).detach(self._name)
                await self._db.family(FleetStore).withdraw_coordinator(self._name)

    async def _listen(self) -> None:
        channels = [CHANNEL, "shiftboss_orders"]
        async for notice in listen(self._listen_url, channels, self._sleeper.answer):
            if notice.channel == "shiftboss_orders":
                session = self._registry.get(notice.payload)
                if session is not None and session.outbox is not None:
                    session.outbox.beat_now()
            else:
                self._sleeper.notice(notice)

    async def _watch(self) -> None:
        """Withdraw assignments that were not accepted in time, and refresh the state of the workers."""
        async for _ in ticks(min(1.0, self._settings.accept_seconds / 4), self.stopping):
            try:
                await self._withdraw()
                await self._refresh_workers()
                if time.monotonic() >= self._announced + ANNOUNCE_SECONDS:
                    self._announced = time.monotonic()
                    self._registry.tidy()
                    await self._announce()
            except DatabaseError as error:
                log.warning("cannot refresh the workers", error=error.message)
            except Exception:
                log.exception("cannot refresh the workers")

    async def _withdraw(self) -> None:
        now = time.monotonic()
        for session in self._registry.connected():
            late = session.overdue(now)
            if late and session.outbox is not None:
                session.lapse()
                session.outbox.withdraw(late)
                log.warning("assignments not accepted", worker_id=session.worker_id, count=len(late))
                await self.put_back(session.drop(late), f"{session.worker_id} did not accept it in time")
                self._announced = 0.0  # update the reasons for `why` immediately

    async def _refresh_workers(self) -> None:
        connected = {session.worker_id: session for session in self._registry.connected()}
        if not connected:
            return
        found = {row["id"]: row for row in await self._db.family(FleetStore).standing(list(connected))}
        for id, session in connected.items():
            row = found.get(id)
            session.profile.open = row is None or not row["shut"]
            session.profile.health = "healthy" if row is None else row["status"]

    async def put_back(self, held: Sequence[Held], reason: str, delay: timedelta = AT_ONCE) -> None:
        """Return tasks to the queue without spending an attempt."""
        if held:
            # A locked task returns to the queue later, by the next beat of its worker or by the rescuer.
            with suppress(TasksLocked):
                ours = [(UUID(id), lease) for id, lease in held]
                await self._db.tasks.defer(ours, [delay] * len(held), [reason] * len(held))
            self.wake()

    async def _pass(self) -> None:
        free = sum(session.free for session in self._registry.connected())
        if not free:
            self._sleeper.found(True)  # no free slot, so notifications about tasks are not needed
            return
        try:
            began = time.perf_counter()
            limit, distance = min(free, MOST_PER_PASS), self._marks.farthest()
            lanes = await self._waiting(limit, self._marks.at(distance))
            read = time.perf_counter()
            plan = self._decide(lanes)
            decided = time.perf_counter()
            given = await self._assign(plan)
            self._passes += 1
            self._assigned += len(given)
            took = (read - began, decided - read, time.perf_counter() - decided)
            for seconds, kept in zip(took, self._seconds.values(), strict=True):
                kept.append(seconds)
            self._contended = len(given) < len(plan.assignments)
            if not self._contended:  # otherwise skipped tasks precede the assigned ones
                dry = len(given) < limit
                self._marks.learn(distance, _last_ready(given), len(given), dry=dry, seconds=read - began)
            due = self._marks.due(distance)
            if not lanes and due is not None:  # tasks that were committed late may precede the marks
                asyncio.get_running_loop().call_later(due, self.wake)
            self._sleeper.found(bool(plan.assignments))
            if given:
                self.wake()  # there may be more
            elif plan.assignments:
                asyncio.get_running_loop().call_later(0.05, self.wake)  # other sessions took all of them
        except DatabaseError as error:
            log.warning("cannot assign tasks", error=error.message)
        except Exception:  # the dispatcher must keep running
            log.exception("cannot assign tasks")

    async def _waiting(self, limit: int, marks: Mapping[int, datetime] | None = None) -> list[Lane]:
        """Return the heads of the lanes.

        If another coordinator took the selected tasks, both read the same heads. Each then starts at a random
        position a little further on.
        """
        rows = await self._db.family(FleetStore).waiting(limit * 4 if self._contended else limit, marks)
        lanes = []
        for row in rows:
            skip = random.randint(0, max(len(row["ids"]) - limit, 0))
            row["ids"], row["regions"] = row["ids"][skip:], row["regions"] and row["regions"][skip:]
            lanes.append(Lane(**row))
        return lanes

    def _decide(self, lanes: list[Lane]) -> Assignments:
        workers = [session.candidate() for session in self._registry.connected()]
        plan = schedule(FleetSnapshot(workers, lanes, self._turn, self._fairness))
        self._turn, self._fairness = plan.turn, plan.fairness
        for worker_id, turn in plan.turns.items():
            if (session := self._registry.get(worker_id)) is not None:
                session.profile.turn = turn
        return plan

    async def _assign(self, plan: Assignments) -> list[pb.Assignment]:
        if not plan.assignments:
            return []
        ids = [one.task for one in plan.assignments]
        rows = await self._db.family(FleetStore).assign_each(ids, [one.worker for one in plan.assignments])
        by_worker: dict[str, list[pb.Assignment]] = defaultdict(list)
        for row in rows:
            by_worker[row.pop("worker_id")].append(pb.Assignment(**row))
        for worker_id, tasks in by_worker.items():
            await self._deliver(self._registry.get(worker_id), tasks)
        return [task for tasks in by_worker.values() for task in tasks]

    async def _deliver(self, session: Session | None, tasks: list[pb.Assignment]) -> None:
        if session is None or session.outbox is None:  # it disconnected in the meantime
            await self.put_back([(task.task_id, task.lease) for task in tasks], "its worker disconnected")
            return
        session.give(tasks, time.monotonic() + self._settings.accept_seconds)

    async def _announce(self) -> None:
        """Store that this coordinator is alive, its timings, and the reasons that `why` shows."""
        lanes = await self._waiting(1)
        workers = [session.candidate() for session in self._registry.connected()]
        plan = schedule(FleetSnapshot(workers, lanes, self._turn, self._fairness))
        reasons = {lane: (why.reason, why.detail) for lane, why in plan.reasons.items()}
        await self._db.family(FleetStore).announce_coordinator(
            self._name, len(workers), self._figures(), reasons
        )

    def _figures(self) -> dict[str, float]:
        """Return counts since the start, and the seconds of each part of the last thousand passes."""
        found: dict[str, float] = {"passes": self._passes, "assigned": self._assigned}
        for part, kept in self._seconds.items():
            ranked = sorted(kept) or [0.0]
            found[f"{part}_p50_seconds"] = ranked[len(ranked) // 2]
            found[f"{part}_p99_seconds"] = ranked[int(len(ranked) * 0.99)]
        return found


def _last_ready(tasks: Sequence[pb.Assignment]) -> dict[int, datetime]:
    """Return the time of the youngest task of each lane."""
    last: dict[int, int] = {}
    for task in tasks:
        lane, ready = task.lane, task.ready_us
        if ready > last.get(lane, 0):
            last[lane] = ready
    return {lane: codec.moment(ready) for lane, ready in last.items()}
