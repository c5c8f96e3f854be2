"""Assigns tasks to workers as a pure function of a snapshot, without a clock, I/O or state.

Candidates are filtered by capability and health. Tasks are ordered by priority; within a priority, tenants
take turns by weight, and queues do if tasks have no tenant. Workers in the region of the task come first,
then fast ones for high priorities, then the least loaded, then those with the fewest special features, then
round-robin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

from shiftboss.extensions.grpc.pool import Candidate, CandidatePool, Entry
from shiftboss.model.task import Priority


@dataclass(slots=True)
class Lane:
    """The head of one first-in-first-out list of tasks that differ only in their region."""

    lane: int
    queue: str
    task_type: str
    priority: int
    tenant: str | None
    weight: float
    requires: Mapping[str, Any] | None
    ids: Sequence[str]
    regions: Sequence[str | None] | None = None
    """The region of each task. None: no task has one."""

    @property
    def flow(self) -> str:
        """The tenant or queue that takes turns with others."""
        return f"queue {self.queue}" if self.tenant is None else f"tenant {self.tenant}"


@dataclass(slots=True)
class FlowState:
    """The virtual time of each flow. The flow with the lowest value is next."""

    now: float = 0.0
    had: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class FleetSnapshot:
    """The input of a decision. `turn` counts assignments, for round-robin across passes."""

    workers: Sequence[Candidate]
    lanes: Sequence[Lane]
    turn: int = 0
    fairness: FlowState = field(default_factory=FlowState)


class WaitReason(NamedTuple):
    """Why some tasks of a lane are not assigned."""

    reason: str
    detail: str


class Given(NamedTuple):
    task: str
    worker: str


@dataclass(slots=True)
class Assignments:
    """The assignments, the reasons for waiting lanes, and the state for the next snapshot."""

    assignments: list[Given]
    reasons: dict[int, WaitReason]
    turn: int
    turns: dict[str, int]
    fairness: FlowState


@dataclass(slots=True)
class _Flow:
    """The lanes of one tenant or queue with one priority, which take turns."""

    name: str
    had: float
    share: float
    lanes: deque[_Cursor] = field(default_factory=deque)


class _Cursor:
    """The position in a lane, and a heap of its candidates for each region."""

    __slots__ = ("at", "end", "heaps", "lane", "mask")

    def __init__(self, lane: Lane, mask: int) -> None:
        self.lane, self.mask, self.at, self.end = lane, mask, 0, len(lane.ids)
        self.heaps: dict[str | None, list[Entry]] = {}


def schedule(snapshot: FleetSnapshot) -> Assignments:
    """Assign as many waiting tasks as there are free slots."""
    if not snapshot.lanes:
        return Assignments([], {}, snapshot.turn, {}, snapshot.fairness)
    pool = CandidatePool(snapshot.workers)
    round = _Round(pool, snapshot)
    for priority in sorted({lane.priority for lane in snapshot.lanes}, reverse=True):
        round.serve([lane for lane in snapshot.lanes if lane.priority == priority])
    return Assignments(round.assignments, round.reasons, round.turn, round.turns(), round.fairness())


class _Round:
    """One pass, from the highest to the lowest priority."""

    def __init__(self, pool: CandidatePool, snapshot: FleetSnapshot) -> None:
        self.assignments: list[Given] = []
        self.reasons: dict[int, WaitReason] = {}
        self.turn = snapshot.turn
        self._pool = pool
        self._now = snapshot.fairness.now
        self._had = dict(snapshot.fairness.had)
        self._heaps: dict[tuple[int, bool, str | None], list[Entry]] = {}
        self._used: set[int] = set()

    def serve(self, lanes: Sequence[Lane]) -> None:
        """Assign the tasks of these lanes. The flow with the lowest virtual time is next."""
        flows = [(flow.had, n, flow) for n, flow in enumerate(self._flows(lanes))]
        heapify(flows)
        while flows:
            had, n, flow = flows[0]
            cursor = flow.lanes[0]
            alone = len(flows) == 1 and len(flow.lanes) == 1
            given = self._give(cursor, cursor.end - cursor.at if alone else 1)
            if not given:
                flow.lanes.popleft()
                if not flow.lanes:
                    heappop(flows)
                continue
            self._now = max(self._now, had + (given - 1) * flow.share)
            self._had[flow.name] = had = had + given * flow.share
            if cursor.at == cursor.end:
                flow.lanes.popleft()
            elif len(flow.lanes) > 1:
                flow.lanes.rotate(-1)
            if flow.lanes:
                heapreplace(flows, (had, n, flow))
            else:
                heappop(flows)

    def _flows(self, lanes: Sequence[Lane]) -> list[_Flow]:
        flows: dict[str, _Flow] = {}
        for lane in lanes:
            cursor = _Cursor(lane, self._pool.capable(lane.queue, lane.task_type, lane.requires))
            if not cursor.mask & self._pool.ready:
                self.reasons[lane.lane] = self._why(lane, cursor.mask)
                continue
            name = lane.flow
            if name not in flows:
                # a flow that was idle starts without credit, so that it cannot take all slots
                flows[name] = _Flow(name, max(self._had.get(name, 0.0), self._now), 1 / lane.weight)
            flows[name].lanes.append(cursor)
        return list(flows.values())

    def _give(self, cursor: _Cursor, most: int) -> int:
        """Assign up to `most` tasks of a lane, each to the best worker. Return 0 if no slot is free."""
        lane, begin = cursor.lane, cursor.at
        for at in range(begin, begin + most):
            region = None if lane.regions is None else lane.regions[at]
            heap = cursor.heaps.get(region)
            if heap is None:
                heap = cursor.heaps[region] = self._heap(cursor.mask, lane.priority >= Priority.HIGH, region)
            index = self._best(heap)
            if index is None:
                self.reasons[lane.lane] = self._why(lane, cursor.mask)
                break
            self.assignments.append(Given(lane.ids[at], self._pool.workers[index].id))
            cursor.at = at + 1
        return cursor.at - begin

    def _heap(self, mask: int, urgent: bool, region: str | None) -> list[Entry]:
        key = (mask, urgent, region)
        if key not in self._heaps:
            self._heaps[key] = self._pool.queue(mask, urgent, region)
        return self._heaps[key]

    def _best(self, heap: list[Entry]) -> int | None:
        """Take a slot of the best worker. Stale entries of the heap are updated when they come up."""
        pool = self._pool
        free, turns = pool.free, pool.turns
        while heap:
            rank, _, special, turn, index = heap[0]
            if not free[index]:
                heappop(heap)
                continue
            if turn != turns[index]:
                heapreplace(heap, (rank, pool.load[index], special, turns[index], index))
                continue
            self.turn = turn = self.turn + 1
            self._used.add(index)
            load = pool.take(index, turn)
            heapreplace(heap, (rank, load, special, turn, index))
            return index
        return None

    def _why(self, lane: Lane, mask: int) -> WaitReason:
        pool = self._pool
        if not mask:
            return WaitReason("no capable worker", pool.lacking(lane.queue, lane.task_type, lane.requires))
        able = [pool.workers[i] for i in pool.indexes(mask)]
        silent = sum(worker.silent for worker in able)
        quiet = f"; {silent} let an assignment lapse and sent nothing since" if silent else ""
        usable = [worker for worker in able if worker.usable and not worker.silent]
        if usable:
            slots = sum(worker.slots for worker in usable)
            taken = f"all slots ({slots}) of the capable workers ({len(usable)}) are in use"
            return WaitReason("busy", taken + quiet)
        shut = len(able) - silent
        closed = f"; {shut} are paused, draining or unhealthy" if shut else ""
        return WaitReason("paused" if shut else "silent", f"{len(able)} capable workers{quiet}{closed}")

    def turns(self) -> dict[str, int]:
        return {self._pool.workers[i].id: self._pool.turns[i] for i in self._used}

    def fairness(self) -> FlowState:
        """Return the state for the next pass. Flows that are not ahead of the current time are dropped."""
        return FlowState(self._now, {flow: had for flow, had in self._had.items() if had > self._now})
