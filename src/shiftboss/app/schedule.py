"""Schedules: tasks that the clock enqueues."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from shiftboss.model.errors import UsageError
from shiftboss.worker.handlers import Handler


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a task type is due, as `@app.cron` was told."""

    handler: Handler
    expression: str
    timezone: str

    @classmethod
    def of(cls, handler: Handler, expression: str, timezone: str) -> Schedule:
        """Refuse here what could never run there."""
        _check_expression(expression)
        _check_arguments(handler)
        return cls(handler=handler, expression=expression, timezone=timezone)


def _check_expression(expression: str) -> None:
    from datetime import UTC, datetime

    from cronsim import CronSim, CronSimError

    try:
        CronSim(expression, datetime.now(UTC))
    except CronSimError as error:
        raise UsageError(
            f"{expression!r} is not a cron expression: {error}", hint='for example "*/5 * * * *"'
        ) from None


def _check_arguments(handler: Handler) -> None:
    parameters = list(inspect.signature(handler.function).parameters.values())
    for parameter in parameters[1 if handler.wants_context else 0 :]:
        if parameter.default is parameter.empty:
            raise UsageError(
                f"{handler.name} can not be scheduled: {parameter.name} has no default",
                hint="a scheduled task is called without arguments",
            )
