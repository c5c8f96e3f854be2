"""Durable work: steps whose results are kept, and waits that hold no worker."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from shiftboss.model.errors import UsageError

LONGEST_NAME = 500
#: The largest part of a stream, in bytes.
MOST_PART = 1024 * 1024
LONGEST_QUESTION = 10_000
#: A task with more steps than this is several tasks: every attempt loads all of them.
MOST_STEPS = 10_000

Key = tuple[str, str, int]
"""Kind, name and ordinal: by this a later attempt finds what an earlier one did."""


class Step(NamedTuple):
    """A step that ended, on its way to the database; `result` is encoded JSON.

    `also` is what extensions write in the same transaction, as JSON: {"ai_calls": [...]} goes to the SQL
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
    """The step that runs here, and what is to be written in the transaction that stores its result."""

    def __init__(self, name: str, where: object = None) -> None:
        self.name = name
        self.where = where
        """What stores the step: the database, or the coordinator. None: nothing does."""
        self._also: dict[str, list[Any]] = {}
        self._ended: list[Callable[[bool], None]] = []
        self._open = True

    def attach(self, where: object, name: str, value: Any, ended: Callable[[bool], None]) -> bool:
        """Whether `value` will travel with this step; `ended` hears whether it was stored."""
        if not self._open or self.where is None or where is not self.where:
            return False
        self._also.setdefault(name, []).append(value)
        self._ended.append(ended)
        return True

    def take(self) -> bytes | None:
        """What travels with the step, which takes nothing more from here on.

        A NUL character, which PostgreSQL cannot store, must not cost the step its result: it is replaced.
        """
        self._open = False
        if not self._also:
            return None
        return orjson.dumps(self._also, default=str).replace(b"\\u0000", b"\\ufffd")

    def end(self, stored: bool) -> None:
        self._open = False
        for ended in self._ended:
            ended(stored)


#: The step that runs here: what it emits is its own.
in_step: ContextVar[StepScope | None] = ContextVar("shiftboss_step", default=None)


class Part(NamedTuple):
    """Something that a task emits, on its way to the database; `step` is the one that emits it."""

    task_id: UUID
    lease: int
    step: str | None
    text: bytes
    place: int = 0
    """1 for the first part of this lease; given by what sends it."""


class Recorded(NamedTuple):
    """A step or wait that the database knows."""

    state: str
    """waiting, done, timeout, failed or cancelled."""
    result: Any = None
    child_id: UUID | None = None


@dataclass
class Loaded:
    """What a new attempt knows: its task's steps, and the seconds that it ran before it was suspended."""

    steps: dict[Key, Recorded] = field(default_factory=dict)
    ran: float = 0.0
    most: int = 1024 * 1024
    """The largest result in bytes."""
    version: str | None = None
    """The version that the task began on."""


class StepRetry(NamedTuple):
    """How often a step is tried, and how long it waits between tries. The worker is held meanwhile."""

    attempts: int = 3
    delay: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def pause(self, attempt: int) -> float:
        """Seconds to wait after this attempt failed."""
        return min(self.delay * self.factor ** (attempt - 1), self.longest)


class Suspend(BaseException):
    """The task has to wait and gives its worker back. Let it pass: it is not an Exception on purpose."""

    def __init__(self, waits: list[dict[str, Any]]) -> None:
        super().__init__(f"waits for {', '.join(str(wait['name']) for wait in waits)}")
        self.waits = waits


class LeaseLost(BaseException):
    """The task is another attempt's by now: nothing that this one does can be kept. Let it pass."""


def check_name(name: str) -> str:
    """The name of a step as the database takes it."""
    if not name or not isinstance(name, str) or "\x00" in name:
        raise UsageError(f"{name!r} cannot be the name of a step")
    if len(name.encode(errors="replace")) > LONGEST_NAME:
        raise UsageError(f"the name of a step takes more than {LONGEST_NAME} bytes: {name[:60]}…")
    return name


def check_question(question: str) -> str:
    """The question to a person as the database takes it."""
    if not isinstance(question, str) or not question.strip() or "\x00" in question:
        raise UsageError(f"{question!r} cannot be a question", hint="ask in words: question='Publish it?'")
    if len(question) > LONGEST_QUESTION:
        raise UsageError(f"a question of {len(question)} characters, at most {LONGEST_QUESTION} can be asked")
    return question
