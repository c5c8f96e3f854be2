"""Tasks: what is asked for, what a worker holds while it runs, and how an attempt can end."""

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


# Bounds of the terms of a task. The database has the same, whichever client enqueues; a test compares them.
RANGES = {"priority": (0, 100), "max_attempts": (1, 1000)}
LONGEST = timedelta(days=3600)  # of a timeout or a pause: PostgreSQL counts ten years of twelve times 30 days
SENSIBLE = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
# Bytes that the database's indexes have room for.
MAX_BYTES = {"task_type": 500, "queue": 500, "dedup_key": 1000, "concurrency_key": 1000}

# Upper bounds in seconds of the duration histogram; one more bucket holds what is longer.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

DependencyPolicy = Literal["cancel", "fail", "run"]


def new_id() -> UUID:
    """A version 7 UUID: random, yet growing with time, which keeps the primary key's index compact."""
    stamp = time.time_ns() // 1_000_000
    chance = random.getrandbits(74)
    value = stamp << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    return UUID(int=value)


@dataclass(slots=True, kw_only=True)
class NewTask:
    """A task as asked for. Fields that are None take the database's defaults."""

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
        """Refuse what the database would refuse later, in words that name the field."""
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
            # no character takes more than four bytes: short texts need not be encoded
            if text is not None and len(text) * 4 > most and len(text.encode(errors="replace")) > most:
                raise UsageError(f"{name} is longer than {most} bytes", hint="use a hash of it, or an id")
        self._check_times()

    def _check_times(self) -> None:
        for name, moment in (("run_at", self.run_at), ("deadline", self.deadline)):
            if moment is not None and moment.tzinfo is None:
                raise UsageError(
                    f"{moment} has no time zone", hint="use an aware datetime, such as datetime.now(UTC)"
                )
            if moment is not None and not SENSIBLE[0] < moment < SENSIBLE[1]:
                raise UsageError(f"{name} {moment:%Y-%m-%d} is not a sensible time")
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
                raise UsageError(f"{name} needs a dedup_key", hint="it says which tasks are the same")
            if not timedelta() < span <= LONGEST:
                raise UsageError(f"{name} must be greater than zero, and at most {LONGEST.days} days")
        if self.dedup_for is not None and self.debounce is not None:
            raise UsageError("give dedup_for or debounce, not both", hint="one keeps the first, one the last")
        if self.debounce_max is not None and self.debounce is None:
            raise UsageError(
                "debounce_max is the longest that debounce may take", hint="give debounce as well"
            )


def storable(text: str) -> str:
    """The text as PostgreSQL can keep it: NUL characters and lone surrogates are written out."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


class Unreadable(dict[str, Any]):
    """In place of params that Python cannot hold: the task can only fail, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


class Unparsed(dict[str, Any]):
    """In place of params or metadata that this process only hands on: their JSON text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Enqueued(NamedTuple):
    """What became of a NewTask: its id, and whether it was made (False: its dedup_key was live already)."""

    id: UUID
    created: bool
    warning: str | None = None


class Claimed(NamedTuple):
    """A task in a worker's hands. `lease` is the identity of this claim: nothing is reported without it.

    Its fields are those of the SQL type `shiftboss.claimed_task` and of the message `Assignment`.
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
    """How often it was in hand when a worker crashed: such a one runs alone."""


class Complete(NamedTuple):
    """The handler returned; `result` is its JSON, encoded."""

    result: bytes | None


class Fail(NamedTuple):
    """The handler raised, ran out of time, or its arguments were wrong."""

    error: str
    kind: Literal["failed", "timeout", "lost", "crashed"] = "failed"
    retry: bool = True
    after: float | None = None
    """Seconds until the next attempt; None: as the task's backoff says."""


class Postpone(NamedTuple):
    """Give the task back without spending an attempt, for `seconds` (0: at once)."""

    seconds: float
    reason: str


class Cancelled(NamedTuple):
    """The handler stopped because it was asked to."""


class Suspended(NamedTuple):
    """Give the task back until all of these have ended: times, events or child tasks. Spends no attempt."""

    waits: list[dict[str, Any]]


Outcome = Complete | Fail | Postpone | Cancelled | Suspended


class Report(NamedTuple):
    """How one attempt ended."""

    task: Claimed
    outcome: Outcome
    seconds: float


class Result(NamedTuple):
    """How a task stands, for somebody who waits for it."""

    id: UUID
    status: str
    result: Any
    error: str | None

    @property
    def done(self) -> bool:
        return self.status in FINAL


class State(NamedTuple):
    """How a task stands: what changes while it is followed."""

    id: UUID
    status: Status
    attempts: int
    """Attempts that failed or were lost."""
    progress: int | None
    """Percent, as far as the running attempt has reported it."""
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
    """What a cancel came to; `cancelling` means that its worker has been asked to stop."""

    id: UUID
    status: str
    cancelling: bool
