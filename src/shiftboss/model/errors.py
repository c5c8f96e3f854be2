"""The one tree of errors. Every message says what is wrong, every hint what to do next."""

from __future__ import annotations

from uuid import UUID

LONGEST_DEFER = 10 * 366 * 86400


class ShiftbossError(Exception):
    """Root of everything Shiftboss raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(ShiftbossError):
    """What was asked for can not be meant this way."""

    exit_code = 2


class NotFound(ShiftbossError):
    """There is no such thing."""

    exit_code = 3


class ConfigError(UsageError):
    """A setting is unknown, malformed or contradicts another."""


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
    def about_everything(self) -> bool:
        """Read-only, full, rolled back: other statements would fare no better now. Later they may."""
        return (self.sqlstate or "")[:2] in ("25", "40", "53", "58")


class DatabaseUnavailable(DatabaseError):
    """The database can not be reached now; trying again later may help."""

    exit_code = 5
    about_values = False
    about_everything = True


class EmbeddedServerError(DatabaseError):
    """The embedded PostgreSQL can not be set up, started or stopped."""

    exit_code = 6


class MigrationError(DatabaseError):
    """The schema can not be brought to this version; nothing was changed."""

    exit_code = 7


class Defer(ShiftbossError):
    """Not now: the task is put off by `seconds` for `reason` and spends no attempt."""

    def __init__(self, reason: str, seconds: float, *, hint: str | None = None) -> None:
        if not seconds <= LONGEST_DEFER:  # not a number, too
            raise UsageError(
                f"a task can not be put off by {seconds} s", hint=f"at most {LONGEST_DEFER} s, ten years"
            )
        super().__init__(f"{reason}, again in {seconds:.1f} s", hint=hint)
        self.reason = reason
        self.seconds = seconds


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
