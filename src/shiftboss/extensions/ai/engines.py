"""Opens one engine per database or coordinator on first use, and closes it with its backend."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from shiftboss.db import Database
from shiftboss.extensions.ai.engine import AI
from shiftboss.extensions.ai.remote import RemoteEngine
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.model.settings import Settings

_opening: WeakKeyDictionary[Any, asyncio.Task[AI]] = WeakKeyDictionary()


async def engine_of(backend: Any, settings: Settings | None = None) -> AI:
    """Return the engine for this database or coordinator, by default with the settings of this process."""
    opening = _opening.get(backend)
    if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
        opening = _opening[backend] = asyncio.create_task(_open(backend, settings or Settings.load()))
    return await asyncio.shield(opening)


async def _open(backend: Any, settings: Settings) -> AI:
    direct = isinstance(backend, Database)
    ai = await AI.open(
        AISettings.of(settings), backend if direct else None, shared=None if direct else RemoteEngine(backend)
    )
    backend.on_close(ai.close)
    return ai
