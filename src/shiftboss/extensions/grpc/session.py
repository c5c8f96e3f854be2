"""The session of a worker at a coordinator: its profile, its leases and its stream."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shiftboss.extensions.grpc.pool import Candidate
from shiftboss.extensions.grpc.proto import fleet_pb2 as pb

Held = tuple[str, int]
"""The ID of a task, in the form that PostgreSQL writes, and the lease."""


def hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


class Rate:
    """A token bucket with a rate of `per_second` and bursts of five times that."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._tokens = per_second * 5
        self._at = time.monotonic()

    def allows(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._per_second * 5, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    @property
    def quiet_seconds(self) -> float:
        """Seconds since the last call."""
        return time.monotonic() - self._at


class StreamOutbox:
    """The messages for a worker's stream, which the writer of the stream takes all at once."""

    def __init__(self) -> None:
        self.filled = asyncio.Event()
        self.closed: str | None = None
        self._assignments: list[pb.Assignment] = []
        self._withdrawn: list[int] = []
        self._beat_now = False

    def assign(self, assignments: Iterable[pb.Assignment]) -> None:
        self._assignments.extend(assignments)
        self.filled.set()

    def withdraw(self, leases: Iterable[int]) -> None:
        gone = set(leases)
        unsent = {one.lease for one in self._assignments} & gone
        self._assignments = [one for one in self._assignments if one.lease not in unsent]
        self._withdrawn.extend(gone - unsent)
        self.filled.set()

    def beat_now(self) -> None:
        self._beat_now = True
        self.filled.set()

    def close(self, reason: str) -> None:
        self.closed = reason
        self.filled.set()

    def take(self, max_bytes: int) -> list[pb.AssignTaskResponse]:
        """Return everything, in messages of about `max_bytes` at most."""
        self.filled.clear()
        parts: list[list[pb.Assignment]] = [[]]
        size = 0
        for one in self._assignments:
            length = one.ByteSize() + 8
            size += length
            if size > max_bytes and parts[-1]:
                parts.append([])
                size = length
            parts[-1].append(one)
        messages = [pb.AssignTaskResponse(assignments=part) for part in parts]
        messages[0].withdrawn.extend(self._withdrawn)
        messages[0].beat_now = self._beat_now
        empty = not (self._assignments or self._withdrawn or self._beat_now)
        self._assignments, self._withdrawn, self._beat_now = [], [], False
        return [] if empty else messages


@dataclass(slots=True)
class Session:
    """A worker's session. `held` has all its leases, `pending` the unaccepted ones with their time limits."""

    worker_id: str
    secret: bytes
    profile: Candidate
    rate: Rate
    held: dict[int, str] = field(default_factory=dict)
    pending: dict[int, float] = field(default_factory=dict)
    free_slots: int = 0
    ahead: int = 0
    outbox: StreamOutbox | None = None

    def knows(self, secret: str) -> bool:
        return hmac.compare_digest(self.secret, hashed(secret))

    @property
    def free(self) -> int:
        """How many tasks it can be assigned now.

        The number is bounded by what it asks for and by what it declared. After a lapse it is 1 until the
        worker accepts a task.
        """
        asked = min(self.free_slots, 1) if self.profile.lapsed else self.free_slots
        return max(0, min(asked - len(self.pending), self.profile.slots + self.ahead - len(self.held)))

    def candidate(self) -> Candidate:
        self.profile.free = free = self.free
        self.profile.ahead = max(0, free - max(0, self.profile.slots - len(self.held)))
        return self.profile

    def give(self, assignments: list[pb.Assignment], until: float) -> None:
        assert self.outbox is not None
        for one in assignments:
            lease = one.lease
            self.held[lease] = one.task_id
            self.pending[lease] = until
        self.outbox.assign(assignments)

    def accept(self, leases: Iterable[int]) -> None:
        for lease in leases:
            if self.pending.pop(lease, None) is not None:
                self.profile.lapsed = False

    def lapse(self) -> None:
        """Assign no more tasks until the worker sends a message."""
        self.profile.lapsed = True
        self.free_slots = 0

    def drop(self, leases: Iterable[int]) -> list[Held]:
        """Remove leases and return those that the worker held."""
        dropped: list[Held] = []
        for lease in leases:
            self.pending.pop(lease, None)
            if (id := self.held.pop(lease, None)) is not None:
                dropped.append((id, lease))
        return dropped

    def overdue(self, now: float) -> list[int]:
        return [lease for lease, until in self.pending.items() if until <= now]


def profile_of(row: Mapping[str, Any]) -> Candidate:
    """Return the candidate for a worker's row."""
    can, has = row["capabilities"], row["resource_limits"]
    return Candidate(
        id=row["id"],
        slots=int(can.get("max_concurrent_tasks") or 1),
        queues=None if row["queues"] is None else frozenset(row["queues"]),
        task_types=frozenset(can["task_types"]) if "task_types" in can else None,
        versions={name: frozenset(known) for name, known in (can.get("versions") or {}).items()},
        ai_providers=frozenset(can.get("ai_providers") or ()),
        features=frozenset(can.get("specialized_features") or ()),
        gpu=bool(has.get("gpu_available")),
        memory_gb=float(has.get("memory_gb") or 0),
        cpu_cores=float(has.get("cpu_cores") or 0),
        speed=can.get("processing_speed") or "standard",
        region=row["region"],
        open=not (row["paused"] or row["draining"]),
    )
