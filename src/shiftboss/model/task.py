"""Tasks: as they are enqueued, as a worker holds them, and how an attempt can end."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from shiftboss.model.errors import UsageError


class Status(StrEnum):
    QUEUED = "Queued"
    IN_PROGRESS = "In Progress"
    COMPLETE = "Complete"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


FINAL = frozenset({Status.COMPLETE, Status.FAILED, Status.CANCELLED})


class Priority(IntEnum):
    LOW = 1
    NORMAL = 5
    HIGH = 10
    URGENT = 15


# Bounds of task options. The database checks the same bounds; a test compares them.
RANGES = {"priority": (0, 100), "max_attempts": (1, 1000)}
LONGEST = timedelta(days=3600)  # ten years as PostgreSQL counts them: twelve months of 30 days
SENSIBLE = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
# Sizes in bytes that fit into the database's indexes.
MAX_BYTES = {"task_type": 500, "queue": 500, "dedup_key": 1000, "concurrency_key": 1000}

# Upper bounds of the duration histogram in seconds. One more bucket counts longer durations.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

DependencyPolicy = Literal["cancel", "fail", "run"]


def new_id() -> UUID:
    """Return a version 7 UUID. It grows with time, which keeps the primary key's index compact."""
    stamp = time.time_ns() // 1_000_000
    chance = random.getrandbits(74)
    value = stamp << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    return UUID(int=value)


@dataclass(slots=True, kw_only=True)
class NewTask:
    """A task to enqueue. Fields that are None get the database's defaults."""

    task_type: str
    params: dict[str, Any] = field(default_factory=dict)
    id: UUID | None = None
    queue: str | None = None
    priority: int | None = None
    origin: str | None = None
    tenant: str | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    deadline: datetime | None = None
    timeout: timedelta | None = None
    dedup_key: str | None = None
    dedup_for: timedelta | None = None
    debounce: timedelta | None = None
    debounce_max: timedelta | None = None
    concurrency_key: str | None = None
    max_attempts: int | None = None
    backoff: timedelta | None = None
    backoff_factor: float | None = None
    backoff_max: timedelta | None = None
    depends_on: list[UUID] | None = None
    on_dependency_failure: DependencyPolicy | None = None
    requires: dict[str, Any] | None = None
    region: str | None = None
    run_id: UUID | None = None
    metadata: dict[str, Any] | None = None

    def check(self) -> None:
        """Raise UsageError, naming the field, for what the database would reject."""
        if not isinstance(self.task_type, str) or not self.task_type:
            raise UsageError("a task needs a task_type", hint="name the handler that should run it")
        if not isinstance(self.params, dict):
            raise UsageError(f"params must be a mapping, not {type(self.params).__name__}")
        for name, (low, high) in RANGES.items():
            number = getattr(self, name)
            if number is not None and not low <= number <= high:
                named = "; Low 1, Normal 5, High 10, Urgent 15" if name == "priority" else ""
                raise UsageError(f"{name} {number} is out of range", hint=f"use {low} to {high}{named}")
        for name, most in MAX_BYTES.items():
            text = getattr(self, name)
            # A character takes at most four bytes, so short texts need not be encoded.
            if text is not None and len(text) * 4 > most and len(text.encode(errors="replace")) > most:
                raise UsageError(f"{name} is longer than {most} bytes", hint="use a hash of it, or an id")
        self._check_times()

    def _check_times(self) -> None:
        for name, time_given in (("run_at", self.run_at), ("deadline", self.deadline)):
            if time_given is None:
                continue
            if time_given.tzinfo is None:
                raise UsageError(
                    f"{time_given} has no time zone", hint="use an aware datetime, such as datetime.now(UTC)"
                )
            if not SENSIBLE[0] < time_given < SENSIBLE[1]:
                raise UsageError(f"{name} {time_given:%Y-%m-%d} is not between 2000 and 2200")
        for name, span in (("timeout", self.timeout), ("backoff_max", self.backoff_max)):
            if span is not None and span > LONGEST:
                raise UsageError(f"{name} is longer than {LONGEST.days} days")
        self._check_unique()
        if self.run_at is not None and self.delay is not None:
            raise UsageError("give run_at or delay, not both")

    def _check_unique(self) -> None:
        for name in ("dedup_for", "debounce", "debounce_max"):
            span: timedelta | None = getattr(self, name)
            if span is None:
                continue
            if self.dedup_key is None:
                raise UsageError(
                    f"{name} needs a dedup_key", hint="give a dedup_key: it identifies duplicates"
                )
            if not timedelta() < span <= LONGEST:
                raise UsageError(f"{name} must be greater than zero, and at most {LONGEST.days} days")
        if self.dedup_for is not None and self.debounce is not None:
            raise UsageError(
                "give dedup_for or debounce, not both",
                hint="dedup_for keeps the first task, debounce the last",
            )
        if self.debounce_max is not None and self.debounce is None:
            raise UsageError("debounce_max needs debounce", hint="give debounce as well")


def storable(text: str) -> str:
    """Return the text with NUL characters and lone surrogates escaped, which PostgreSQL cannot store."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


class Unreadable(dict[str, Any]):
    """Stands for params that cannot be parsed. The task fails with this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Enqueued(NamedTuple):
    """The result of an enqueue.

    `created` is False if a live task has the same dedup_key; `id` is then the id of that task.
    """

    id: UUID
    created: bool
    warning: str | None = None


class Claimed(NamedTuple):
    """A task that a worker holds. `lease` identifies the claim; every report must carry it.

    The fields are those of the SQL type `shiftboss.claimed_task` and of the message `Assignment`.
    """

    id: UUID
    lease: int
    task_type: str
    params: dict[str, Any]
    attempt: int
    max_attempts: int
    queue: str
    priority: int
    tenant: str | None
    timeout: timedelta | None
    deadline: datetime | None
    created_at: datetime
    ready_at: datetime
    started_at: datetime
    lane: int
    run_id: UUID | None
    metadata: dict[str, Any] | None
    crashes: int = 0
    """How many times a worker crashed while it held this task. If not 0, the task runs alone."""


class Complete(NamedTuple):
    """The handler returned; `result` is encoded JSON."""

    result: bytes | None


class Fail(NamedTuple):
    """The handler raised or exceeded its time limit, or its arguments were invalid."""

    error: str
    kind: Literal["failed", "timeout", "lost", "crashed"] = "failed"
    retry: bool = True
    after: float | None = None
    """Seconds until the next attempt. None: the task's backoff applies."""


class Postpone(NamedTuple):
    """The task returns to the queue without spending an attempt, and is ready after `seconds`."""

    seconds: float
    reason: str
    clear: bool = True
    """Whether the reason contains nothing of the payload, so that it is not encrypted."""


class Cancelled(NamedTuple):
    """The handler was stopped because the task was cancelled."""


class Suspended(NamedTuple):
    """The task waits until all of `waits` have ended: times, events or child tasks. Spends no attempt."""

    waits: list[dict[str, Any]]


Outcome = Complete | Fail | Postpone | Cancelled | Suspended


class Report(NamedTuple):
    """The outcome of an attempt."""

    task: Claimed
    outcome: Outcome
    seconds: float


class Result(NamedTuple):
    """The status and the result of a task, for a client that waits for it."""

    id: UUID
    status: str
    result: Any
    error: str | None

    @property
    def done(self) -> bool:
        return self.status in FINAL


class State(NamedTuple):
    """The state of a task, for a client that follows it."""

    id: UUID
    status: Status
    attempts: int
    """Attempts that failed or were lost."""
    progress: int | None
    """Percentage that the running attempt has reported."""
    message: str | None
    worker_id: str | None
    error: str | None

    @property
    def done(self) -> bool:
        return self.status in FINAL


class Reason(NamedTuple):
    """Why a task waits, and what to do about it."""

    reason: str
    detail: str
    advice: str


class Cancel(NamedTuple):
    """The result of a cancellation. `cancelling` means that the task's worker has been asked to stop it."""

    id: UUID
    status: str
    cancelling: bool
