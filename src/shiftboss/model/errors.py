"""All errors of Shiftboss. The message says what is wrong, the hint what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

LONGEST_DEFER = 10 * 366 * 86400
_HINT = re.compile(r"^hint: (.+)$", re.MULTILINE)


class ShiftbossError(Exception):
    """Base class of all errors that Shiftboss raises."""

    exit_code = 1
    fields: list[dict[str, Any]] | None = None
    """The problems by field, for forms and APIs."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")  # tracebacks end with it

    @property
    def text(self) -> str:
        """The message, and the hint on a second line."""
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class UsageError(ShiftbossError):
    """The request is invalid or cannot be carried out."""

    exit_code = 2


class NotFound(ShiftbossError):
    """The requested object does not exist."""

    exit_code = 3


class ConfigError(UsageError):
    """A setting is unknown, malformed, or conflicts with another setting."""


class NotInstalled(UsageError):
    """A feature needs packages that are not installed."""


class UnknownTaskType(UsageError):
    """No worker has published this task type, and the setting `tasks.strict` is on."""


class DatabaseError(ShiftbossError):
    """PostgreSQL rejected a statement; `sqlstate` has the error code."""

    exit_code = 4

    def __init__(self, message: str, *, hint: str | None = None, sqlstate: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate

    @property
    def refused(self) -> bool:
        """Whether the statement itself was rejected, so that repeating it cannot succeed."""
        return (self.sqlstate or "")[:2] in ("22", "23", "42", "P0")

    @property
    def about_values(self) -> bool:
        """Whether a value is at fault. Without a SQLSTATE, the driver could not send it."""
        return self.sqlstate is None or self.sqlstate[:2] in ("22", "23", "54")

    @property
    def timed_out(self) -> bool:
        """Whether a server timeout ended the statement. A smaller one may succeed."""
        return self.sqlstate in ("57014", "55P03", "25P04")

    @property
    def about_everything(self) -> bool:
        """Whether any other statement would fail now as well: read-only, disk full, rolled back."""
        return (self.sqlstate or "")[:2] in ("25", "40", "53", "58")


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached. Retrying later may help."""

    exit_code = 5
    about_values = False
    about_everything = True


class OtherInstallation(DatabaseUnavailable):
    """The reports belong to another installation than the one they were sent to."""


class TasksLocked(DatabaseError):
    """Another session has locked the rows of `ids`. All other reports of the batch were stored."""

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
    """The schema cannot be migrated to this version. Nothing was changed."""

    exit_code = 7


class AdoptionNeeded(DatabaseError):
    """The database is a copy of another fleet's, and its role has not been decided yet."""

    exit_code = 10


class Defer(ShiftbossError):
    """Raised by a handler to postpone the task by `seconds` without spending an attempt.

    With encryption, the reason is encrypted, unless `clear` says that it contains nothing of the payload.
    """

    def __init__(self, reason: str, seconds: float, *, hint: str | None = None, clear: bool = False) -> None:
        if not seconds <= LONGEST_DEFER:  # also rejects NaN
            raise UsageError(
                f"a task cannot be deferred by {seconds} s", hint=f"use at most {LONGEST_DEFER} s (ten years)"
            )
        super().__init__(f"{reason}, retry in {seconds:.1f} s", hint=hint)
        self.reason = reason
        self.seconds = seconds
        self.clear = clear


class Retry(ShiftbossError):
    """Raised by a handler to fail this attempt and start the next one after `after` seconds.

    Without `after`, the task's backoff applies. Unlike `Defer`, it spends an attempt: the task is `Failed`
    when none is left.
    """

    def __init__(
        self, reason: str = "asked to be retried", *, after: timedelta | float | None = None
    ) -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds <= LONGEST_DEFER:  # also rejects NaN
            raise UsageError(
                f"a task cannot be retried after {seconds} s", hint=f"use 0 to {LONGEST_DEFER} s (ten years)"
            )
        super().__init__(reason)
        self.after = seconds


class GiveUp(ShiftbossError):
    """Raised by a handler to fail the task permanently, even if attempts are left."""


class StepTimeout(ShiftbossError, TimeoutError):
    """A step exceeded its timeout."""


class WaitTimeout(ShiftbossError, TimeoutError):
    """An event that a task waits for did not arrive within the timeout."""


class TaskError(ShiftbossError):
    """A task whose result was requested has none."""

    exit_code = 8

    def __init__(self, id: UUID, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.id = id


class TaskFailed(TaskError):
    """The task failed permanently. `error` is its last error with the traceback."""

    def __init__(self, id: UUID, error: str | None) -> None:
        first = (error or "no reason given").partition("\n")[0]
        hints = [*_HINT.findall(error or "")[-1:], f"shiftboss tasks show {id}"]
        super().__init__(id, f"task {id} failed: {first}", hint="; ".join(hints))
        self.error = error


class TaskCancelled(TaskError):
    """The task was cancelled by a client, or because a task that it depends on failed."""

    def __init__(self, id: UUID, reason: str | None) -> None:
        super().__init__(id, f"task {id} was cancelled: {reason or 'no reason given'}")
        self.reason = reason


class ResultTimeout(TaskError, TimeoutError):
    """The task did not end within the timeout. It continues to run."""

    exit_code = 9

    def __init__(self, id: UUID, seconds: float) -> None:
        hint = f"is a worker running? `shiftboss why {id}` shows what the task waits for"
        super().__init__(id, f"task {id} has not ended within {seconds:g} s", hint=hint)


class ResultInvalid(ShiftbossError):
    """A result does not match the return type of its function."""
