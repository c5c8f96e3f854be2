"""The schedules of an app, registered when a worker or `shiftboss up` starts."""

from __future__ import annotations

import inspect

from shiftboss.db import Database
from shiftboss.db.encoding import as_json
from shiftboss.leader.schedules import Cron, register
from shiftboss.model.errors import UsageError
from shiftboss.worker.handlers import Handler

__all__ = ["Cron", "register_schedules", "schedule"]


def schedule(handler: Handler, expression: str, timezone: str) -> Cron:
    """Build the schedule of a handler. Rejects handlers that cannot run without arguments."""
    parameters = list(inspect.signature(handler.function).parameters.values())
    for parameter in parameters[1 if handler.wants_context else 0 :]:
        if handler.provided(handler.hints.get(parameter.name)):
            continue
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            raise UsageError(
                f"{handler.name} cannot be scheduled: {parameter.name} has no default",
                hint="give every parameter a default: scheduled tasks are called without arguments",
            )
    cron = Cron(name=handler.name, cron=expression, timezone=timezone, task=as_json(handler.new_task({})))
    cron.check()
    return cron


async def register_schedules(db: Database, app: object) -> None:
    """Register the schedules declared with `@app.cron`, if the object has any."""
    crons = getattr(app, "schedules", [])
    if crons:
        await register(db, crons)
