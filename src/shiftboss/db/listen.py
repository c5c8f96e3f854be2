"""LISTEN on a connection of its own: notifications as an async iterator that survives a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import psycopg
from psycopg import sql

from shiftboss.db.connection import connect
from shiftboss.model.errors import DatabaseError


class Notice(NamedTuple):
    """A notification; MISSED (channel "") says that some may have been lost: look yourself."""

    channel: str
    payload: str


MISSED = Notice("", "")


async def listen(
    url: str, channels: Sequence[str], retry: float = 0.5, retry_max: float = 15.0
) -> AsyncIterator[Notice]:
    """Notices from now on, for ever. The first, and one after each reconnect, is MISSED."""
    delay = retry
    while True:
        try:
            async with connect(url) as conn:
                for channel in channels:
                    await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                delay = retry
                yield MISSED
                async for notify in conn.notifies():
                    yield Notice(notify.channel, notify.payload)
        except (psycopg.Error, DatabaseError, OSError):
            await asyncio.sleep(delay)
            delay = min(delay * 2, retry_max)
