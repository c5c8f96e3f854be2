"""Operations on bots: start and retry runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from shiftboss.db import Database
from shiftboss.extensions.bots.order import Bots
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.runs.store import Runs, StartedRun
from shiftboss.model.access import Principal, Role
from shiftboss.model.settings import Settings
from shiftboss.operations import Audited


class BotOperations(Audited):
    """Starts runs of the `bots`."""

    def __init__(self, db: Database, settings: Settings) -> None:
        super().__init__(db, settings)
        self.bots, self._queue = Bots.of(settings), BotsSettings.of(settings).queue

    async def start_run(
        self, who: Principal, bot: str, city: str | None, category: str | None, params: dict[str, Any]
    ) -> StartedRun:
        async with self._recorded(who, Role.OPERATOR, "run.start", bot, city=city, category=category):
            order = self.bots.check(bot, city, category, params)
            return await self._db.family(Runs).start_run(
                order.bot.name,
                **order.where,
                params=order.stored(),
                queue=self._queue,
                requested_by=who.name,
            )

    async def retry_run(self, who: Principal, id: UUID) -> StartedRun:
        async with self._recorded(who, Role.OPERATOR, "run.retry", id):
            return await self._db.family(Runs).retry_run(id, queue=self._queue, requested_by=who.name)
