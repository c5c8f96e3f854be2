"""Bots as tasks: one handler per bot, for workers of the fleet.

`shiftboss worker shiftboss.extensions.bots.app:handlers` runs them alone; an app takes them in with
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
    """Handlers of all bots: the shipped ones and those in the setting `bots.modules`."""
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
    """The handler that carries out one bot. One attempt: what a second one would hide, a run shows."""

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
    """Do the work; what was counted on the way is kept whatever the end."""
    await run.flush(0)
    async with run.keeping_counters():
        await order.bot.carry_out(run, order.params)
    await run.flush(99)
    return {"counters": dict(run.counters)}


class _Task:
    """A bot that was enqueued as a plain task shows its progress there."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    async def report(
        self, percent: int, counters: dict[str, int], checkpoint: dict[str, Any] | None, message: str | None
    ) -> None:
        self._ctx.progress(percent, message)
