"""Task handlers of bots, one each.

`shiftboss worker shiftboss.extensions.bots.app:handlers` runs them; an app includes them with
`app.include(bot_handlers(settings))`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from shiftboss.extensions.bots.order import Bots
from shiftboss.extensions.bots.registry import Bot
from shiftboss.extensions.bots.run import Run, RunLost
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.runs.store import Runs
from shiftboss.model.arguments import BadArguments
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handler, Handlers


def bot_handlers(settings: Settings | None = None) -> Handlers:
    """Return the handlers of all bots: the built-in ones and those of the setting `bots.modules`."""
    settings = settings or Settings.load()
    bots, handlers = Bots.of(settings), Handlers()
    for bot in bots.by_name.values():
        handlers.add(handler_of(bot, bots, settings))
    return handlers


def handler_of(bot: Bot, bots: Bots, settings: Settings) -> Handler:
    """Return the handler of a bot. It has one attempt, so that failures are visible as failed runs."""

    async def handle(ctx: Context, **given: Any) -> dict[str, dict[str, int]]:
        try:
            order = bots.check(bot.name, given.pop("city", None), given.pop("category", None), given)
        except UsageError as error:
            raise BadArguments(error.message, hint=error.hint) from error
        id = ctx.task.run_id
        kept = None if id is None else await ctx.db.family(Runs).kept(id)
        run = Run(order, ctx.db, settings, partial(_report, ctx), kept=kept, id=id)
        return {"counters": await run.carry_out()}

    queue = BotsSettings.of(settings).queue
    return Handler(name=f"bot.{bot.name}", function=handle, mode="async", queue=queue, max_attempts=1)


async def _report(
    ctx: Context,
    percent: int,
    counters: dict[str, int],
    checkpoint: dict[str, Any] | None,
    message: str | None,
) -> None:
    """Report to the run under the lease of its task, or to the task if it was enqueued without a run."""
    id = ctx.task.run_id
    if id is None:
        ctx.progress(percent, message)
    elif not await ctx.db.family(Runs).report_run(id, ctx.task.lease, percent, counters, checkpoint, message):
        raise RunLost(f"run {id} is no longer held by this process")
