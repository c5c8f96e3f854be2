"""Opens one engine per database or coordinator on first use, and closes it with its backend."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from shiftboss.db import Database
from shiftboss.extensions.ai.admission import UNAVAILABLE_SECONDS
from shiftboss.extensions.ai.engine import AI
from shiftboss.extensions.ai.remote import RemoteEngine
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.model.errors import DatabaseUnavailable, Defer
from shiftboss.model.settings import Settings

_opening: WeakKeyDictionary[Any, asyncio.Task[AI]] = WeakKeyDictionary()


async def engine_of(backend: Any) -> AI:
    """Return the engine for this database or coordinator, with the settings of this process."""
    opening = _opening.get(backend)
    if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
        opening = _opening[backend] = asyncio.create_task(_open(backend))
    return await asyncio.shield(opening)


async def _open(backend: Any) -> AI:
    settings = AISettings.of(Settings.load())
    try:
        if isinstance(backend, Database):
            ai = await AI.open(settings, backend)
        else:
            ai = await AI.open(settings, shared=RemoteEngine(backend))
    except DatabaseUnavailable as error:  # defer the task without spending an attempt, as for a call
        raise Defer("the database does not answer", UNAVAILABLE_SECONDS, hint=error.hint) from error
    backend.on_close(ai.close)
    return ai
