"""The one tree of errors. Every message says what is wrong, every hint what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

LONGEST_DEFER = 10 * 366 * 86400


class ShiftbossError(Exception):
    """Root of everything Shiftboss raises on purpose."""

    exit_code = 1
    fields: list[dict[str, Any]] | None = None
    """What is wrong, field by field, for those who can show it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ShiftbossError):
    """What was asked for cannot be done."""

    exit_code = 2


class NotFound(ShiftbossError):
    """There is no such thing."""

    exit_code = 3


class ConfigError(UsageError):
    """A setting is unknown, malformed or contradicts another."""


class UnknownTaskType(UsageError):
    """No worker has published this task type, and the setting `tasks.strict` is on."""


class DatabaseError(ShiftbossError):
    """PostgreSQL refused a statement; `sqlstate` tells which way."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str | None = None, sqlstate: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate

    @property
    def refused(self) -> bool:
        """PostgreSQL understood and said no: the same again will not help. False: later it may."""
        return (self.sqlstate or "")[:2] in ("22", "23", "42", "P0")

    @property
    def about_values(self) -> bool:
        """What was to be stored is at fault; without a state it was the driver that could not send it."""
        return self.sqlstate is None or self.sqlstate[:2] in ("22", "23", "54")

    @property
    def timed_out(self) -> bool:
        """A timeout of the server ended the statement: one that does less may get through."""
        return self.sqlstate in ("57014", "55P03", "25P04")

    @property
    def about_everything(self) -> bool:
        """Read-only, full, rolled back: other statements would fare no better now. Later they may."""
        return (self.sqlstate or "")[:2] in ("25", "40", "53", "58")


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached now; trying again later may help."""

    exit_code = 5
    about_values = False
    about_everything = True


class OtherInstallation(DatabaseUnavailable):
    """The reports belong to another installation than the one that was asked to take them."""


class TasksLocked(DatabaseError):
    """Another session has locked rows that the reports on `ids` must write; all other reports were taken."""

    def __init__(self, ids: Iterable[UUID], stale: Iterable[UUID] = ()) -> None:
        self.ids, self.stale = frozenset(ids), list(stale)
        super().__init__(
            f"another session has locked {len(self.ids)} tasks",
            hint="a long transaction holds them: `shiftboss doctor` names it",
            sqlstate="55P03",
        )


class EmbeddedServerError(DatabaseError):
    """The embedded PostgreSQL cannot be set up, started or stopped."""

    exit_code = 6


class MigrationError(DatabaseError):
    """The schema cannot be brought to this version; nothing was changed."""

    exit_code = 7


class AdoptionNeeded(DatabaseError):
    """The database is a copy of another fleet's, and nobody has said yet what it is to be."""

    exit_code = 10


class Defer(ShiftbossError):
    """Not now: the task is put off by `seconds` for `reason` and spends no attempt."""

    def __init__(self, reason: str, seconds: float, *, hint: str | None = None) -> None:
        if not seconds <= LONGEST_DEFER:  # not a number, too
            raise UsageError(
                f"a task cannot be put off by {seconds} s", hint=f"at most {LONGEST_DEFER} s, ten years"
            )
        super().__init__(f"{reason}, again in {seconds:.1f} s", hint=hint)
        self.reason = reason
        self.seconds = seconds


class Retry(ShiftbossError):
    """Raised by a handler: this attempt failed, the next one starts after `after` seconds.

    Without `after` the task's backoff decides. The attempt is spent, unlike with `Defer`: the task is Failed
    when none is left.
    """

    def __init__(
        self, reason: str = "asked to be retried", *, after: timedelta | float | None = None
    ) -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds <= LONGEST_DEFER:  # not a number, too
            raise UsageError(
                f"a task cannot be retried after {seconds} s", hint=f"use 0 to {LONGEST_DEFER} s, ten years"
            )
        super().__init__(reason)
        self.after = seconds


class GiveUp(ShiftbossError):
    """Raised by a handler: trying again is pointless. The task is Failed, whatever attempts are left."""


class StepTimeout(ShiftbossError, TimeoutError):
    """A step took longer than it may."""


class WaitTimeout(ShiftbossError, TimeoutError):
    """What a task waited for has not happened in the time given."""


class TaskError(ShiftbossError):
    """A task that was waited for has no result to give."""

    exit_code = 8

    def __init__(self, id: UUID, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.id = id


class TaskFailed(TaskError):
    """It failed for good; `error` is its last error with the traceback."""

    def __init__(self, id: UUID, error: str | None) -> None:
        first = (error or "no reason given").partition("\n")[0]
        super().__init__(id, f"task {id} failed: {first}", hint=f"shiftboss tasks show {id}")
        self.error = error


class TaskCancelled(TaskError):
    """It was cancelled, by somebody or because a task it depends on failed."""

    def __init__(self, id: UUID, reason: str | None) -> None:
        super().__init__(id, f"task {id} was cancelled: {reason or 'no reason given'}")
        self.reason = reason


class ResultTimeout(TaskError, TimeoutError):
    """It has not ended in the time given; it goes on."""

    exit_code = 9

    def __init__(self, id: UUID, seconds: float) -> None:
        hint = f"is a worker running? `shiftboss why {id}` tells what it waits for"
        super().__init__(id, f"task {id} has not ended within {seconds:g} s", hint=hint)


class ResultInvalid(ShiftbossError):
    """A result is not of the type that its function promises."""
