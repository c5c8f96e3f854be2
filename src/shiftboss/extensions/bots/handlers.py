"""Task handlers of bots, one each.

`shiftboss worker shiftboss.extensions.bots.app:handlers` runs them; an app includes them with
`app.include(bot_handlers(settings))`.
"""

from __future__ import annotations

from typing import Any

from shiftboss.extensions.bots.catalog import Catalog
from shiftboss.extensions.bots.order import Order, check
from shiftboss.extensions.bots.registry import Bot, Bots, load_bots
from shiftboss.extensions.bots.run import Run, Tracked, Tracker
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.runs.store import Runs
from shiftboss.model.arguments import BadArguments
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handler, Handlers

Counters = dict[str, dict[str, int]]


def bot_handlers(settings: Settings | None = None) -> Handlers:
    """Return the handlers of all bots: the built-in ones and those of the setting `bots.modules`."""
    settings = settings or Settings.load()
    bots, catalog = (
        load_bots(BotsSettings.of(settings).modules),
        Catalog(BotsSettings.of(settings).config_dir),
    )
    handlers = Handlers()
    for bot in bots:
        handlers.add(handler_of(bot, bots, settings, catalog))
    return handlers


def handler_of(bot: Bot, bots: Bots, settings: Settings, catalog: Catalog) -> Handler:
    """Return the handler of a bot. It has one attempt, so that failures are visible as failed runs."""

    async def handle(ctx: Context, **given: Any) -> Counters:
        try:
            city, category = given.pop("city", None), given.pop("category", None)
            order = check(bots, catalog, bot.name, city, category, given)
        except UsageError as error:
            raise BadArguments(error.message, hint=error.hint) from error
        return await _perform(ctx, order, settings, catalog)

    return Handler(
        name=bot.task_type,
        function=handle,
        mode="async",
        queue=BotsSettings.of(settings).queue,
        max_attempts=1,
    )


async def _perform(ctx: Context, order: Order, settings: Settings, catalog: Catalog) -> Counters:
    tracker: Tracker = _Task(ctx)
    kept: dict[str, Any] = {}
    if ctx.task.run_id is not None:
        tracker = Tracked(ctx.db, ctx.task.run_id, ctx.task.lease)
        kept = await ctx.db.family(Runs).kept(ctx.task.run_id)
    run = Run(
        bot=order.bot.name,
        db=ctx.db,
        settings=settings,
        catalog=catalog,
        tracker=tracker,
        city=order.city,
        category=order.category,
        checkpoint=kept.get("checkpoint"),
        counters=kept.get("counters"),
        id=ctx.task.run_id,
    )
    return await carry_out(run, order)


async def carry_out(run: Run, order: Order) -> Counters:
    """Execute the bot and return its counters, which are also reported if it fails."""
    await run.flush(0)
    async with run.keeping_counters():
        await order.bot.carry_out(run, order.params)
    await run.flush(99)
    return {"counters": dict(run.counters)}


class _Task:
    """Reports the progress of a bot that was enqueued as a plain task."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def report(
        self, percent: int, counters: dict[str, int], checkpoint: dict[str, Any] | None, message: str | None
    ) -> None:
        self._ctx.progress(percent, message)
