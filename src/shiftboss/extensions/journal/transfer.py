"""Exports journals as files for the browser, in a form that can be imported again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.journal.commands import export

router = APIRouter(include_in_schema=False)


@router.get("/journal/export")
async def send(admin: At, who: Caller, user: str = "") -> StreamingResponse:
    """Export all entries with their results as JSON Lines."""
    entries = export(admin.db, user or None)
    first = await anext(entries, None)  # raise an error for an unknown writer before the response starts

    async def lines() -> AsyncIterator[bytes]:
        if first is not None:
            yield orjson.dumps(first) + b"\n"
        async for entry in entries:
            yield orjson.dumps(entry) + b"\n"

    saved = {"Content-Disposition": 'attachment; filename="journal.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=saved)
