"""The demo: what `shiftboss up` runs, the sample of the journal through it, and what was found."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from rich.console import Console

from shiftboss.ai import AI
from shiftboss.app import fleet
from shiftboss.app.house import ALL, House
from shiftboss.db import Database
from shiftboss.journal.demo import demo
from shiftboss.lifecycle.logs import configure_logs
from shiftboss.model.settings import Settings

out = Console(highlight=False)


def say(what: str, words: str) -> None:
    out.print(f"[bold cyan]{what:>11}[/]  {words}", soft_wrap=True)


async def main() -> None:
    configure_logs("warning")
    settings = Settings.load()
    workers = {ALL: max(1, min(os.cpu_count() or 1, 4))}
    settings = settings.model_copy(
        update={"supervisor": settings.supervisor.model_copy(update={"queues": workers})}
    )
    say("starting", "an embedded PostgreSQL, unless SHIFTBOSS_DATABASE_URL names one")
    async with await Database.open(data_dir=settings.data_dir) as db:
        house = House("shiftboss.app:fleet", fleet, db, settings, say)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with house, await AI.open(settings.ai, db) as ai:
            showing = asyncio.create_task(demo(db, ai, out))
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait({showing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not showing.done():
                showing.cancel()
            else:
                showing.result()
                await _stay(stopped)
            stopped.cancel()
            say("stopping", "workers finish what they have")


async def _stay(stopped: asyncio.Task[bool]) -> None:
    out.print()
    say("look", "shiftboss status · shiftboss journal insights · shiftboss journal search 'a happy day'")
    if sys.stdin.isatty() and sys.stdout.isatty():
        say("ready", "the fleet runs on; open the dashboard's link above, Ctrl-C ends it")
        await stopped


asyncio.run(main())
