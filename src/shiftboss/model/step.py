"""Durable work: steps whose results are stored, and waits that occupy no worker."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from shiftboss.model.errors import UsageError

LONGEST_NAME = 500
#: The largest part of a stream, in bytes.
MOST_PART = 1024 * 1024
LONGEST_QUESTION = 10_000
#: Every attempt loads all steps of its task. Work with more steps should be split into several tasks.
MOST_STEPS = 10_000

#: The last line of the traceback of an error that a step raised, before the step's name and ordinal.
IN_STEP = "in step "

Key = tuple[str, str, int]
"""Kind, name and ordinal, by which a later attempt finds the results of an earlier one."""


class Step(NamedTuple):
    """A finished step to store; `result` is encoded JSON.

    `also` is JSON that extensions write in the same transaction: {"ai_calls": [...]} is passed to the SQL
    function shiftboss.with_step_ai_calls(jsonb).
    """

    task_id: UUID
    lease: int
    name: str
    ordinal: int
    seconds: float
    result: bytes | None
    also: bytes | None = None


class StepScope:
    """The running step, and what to write in the transaction that stores its result."""

    def __init__(self, name: str, where: object = None) -> None:
        self.name = name
        self.where = where
        """What stores the step: the database, a service in front of it, or None."""
        self._also: dict[str, list[Any]] = {}
        self._ended: list[Callable[[bool], None]] = []
        self._open = True

    def attach(self, where: object, name: str, value: Any, ended: Callable[[bool], None]) -> bool:
        """Store `value` together with this step. Return False if that is not possible.

        `ended` is called with whether the step was stored.
        """
        if not self._open or self.where is None or where is not self.where:
            return False
        self._also.setdefault(name, []).append(value)
        self._ended.append(ended)
        return True

    def take(self) -> bytes | None:
        """Return what to store with the step, and accept nothing more.

        PostgreSQL cannot store NUL characters. They are replaced, so that the step keeps its result.
        """
        self._open = False
        if not self._also:
            return None
        return orjson.dumps(self._also, default=str).replace(b"\\u0000", b"\\ufffd")

    def end(self, stored: bool) -> None:
        self._open = False
        for ended in self._ended:
            ended(stored)


#: The step that runs in this context. What is emitted here belongs to it.
in_step: ContextVar[StepScope | None] = ContextVar("shiftboss_step", default=None)


class Part(NamedTuple):
    """A part of a task's stream to store; `step` names the step that emitted it."""

    task_id: UUID
    lease: int
    step: str | None
    text: bytes
    place: int = 0
    """The position within the lease, from 1; set by the sender."""


class Recorded(NamedTuple):
    """A stored step or wait."""

    state: str
    """`waiting`, `done`, `timeout`, `failed` or `cancelled`."""
    result: Any = None
    child_id: UUID | None = None


@dataclass
class Loaded:
    """What an attempt loads about its task: the stored steps and the time it ran before it was suspended."""

    steps: dict[Key, Recorded] = field(default_factory=dict)
    ran: float = 0.0
    """In seconds."""
    most: int = 1024 * 1024
    """The largest result in bytes."""
    version: str | None = None
    """The version that the task was started on."""


class StepRetry(NamedTuple):
    """How often a step is tried, and how long to wait between tries. It occupies its worker meanwhile."""

    attempts: int = 3
    delay: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after this attempt failed."""
        return min(self.delay * self.factor ** (attempt - 1), self.longest)


class StepTerms(NamedTuple):
    """The retry and timeout of an agent's model request or tool call, as in `ctx.step`."""

    retry: StepRetry | int | None = None
    timeout: timedelta | float | None = None


class Suspend(BaseException):
    """Raised to suspend the task. Do not catch it; for this reason it is not an `Exception`."""

    def __init__(self, waits: list[dict[str, Any]]) -> None:
        super().__init__(f"waits for {', '.join(str(wait['name']) for wait in waits)}")
        self.waits = waits


class LeaseLost(BaseException):
    """Raised when this attempt no longer holds the task, so that its results are ignored. Do not catch it."""


def check_name(name: str) -> str:
    """Return the name of a step. Raises UsageError if the database cannot store it."""
    if not name or not isinstance(name, str) or "\x00" in name:
        raise UsageError(f"{name!r} cannot be the name of a step")
    if len(name.encode(errors="replace")) > LONGEST_NAME:
        raise UsageError(f"the name of a step is longer than {LONGEST_NAME} bytes: {name[:60]}…")
    return name


def check_question(question: str) -> str:
    """Return the question. Raises UsageError if the database cannot store it."""
    if not isinstance(question, str) or not question.strip() or "\x00" in question:
        raise UsageError(f"{question!r} cannot be a question", hint="write a text: question='Publish it?'")
    if len(question) > LONGEST_QUESTION:
        raise UsageError(
            f"the question has {len(question)} characters; at most {LONGEST_QUESTION} are allowed"
        )
    return question
