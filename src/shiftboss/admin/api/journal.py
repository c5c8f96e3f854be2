"""Journals: who writes, what was found, mood over time, search by meaning."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query

from shiftboss.admin.access import Caller
from shiftboss.admin.api.common import NO_NUL, FilterText, Limit, Out, make_router
from shiftboss.admin.desk import At
from shiftboss.journal.commands import search as search_entries

router = make_router("journal")

User = Annotated[str, Query(min_length=1, max_length=200, pattern=NO_NUL)]


class Writer(Out):
    user_id: str
    entries: int
    processed: int
    results: int
    people: int
    places: int
    concepts: int
    insights: int
    first_written: datetime | None
    last_written: datetime | None


class Entry(Out):
    id: UUID
    user_id: str
    external_id: str | None
    written_at: datetime
    processed: bool
    title: str | None
    mood: float | None
    emotion: str | None
    themes: Any


class Mood(Out):
    period: date
    entries: int
    mood: float | None
    lowest: float | None
    highest: float | None


@router.get("/journal")
async def writers(desk: At, who: Caller) -> list[Writer]:
    """Users with how much of their journal was processed."""
    return [Writer.model_validate(row) for row in await desk.db.journal.status()]


@router.get("/journal/entries")
async def entries(
    desk: At,
    who: Caller,
    user: FilterText = None,
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> list[Entry]:
    """Entries, newest first, with mood, emotion and themes."""
    return [Entry.model_validate(row) for row in await desk.db.journal.entries(user, limit, offset)]


@router.get("/journal/mood")
async def mood(
    user: User, desk: At, who: Caller, bucket: Literal["day", "week", "month", "year"] = "month"
) -> list[Mood]:
    """A user's mood over time."""
    return [Mood.model_validate(row) for row in await desk.db.journal.mood(user, bucket)]


@router.get("/journal/insights")
async def insights(user: User, desk: At, who: Caller) -> list[dict[str, Any]]:
    """What was found across a user's entries, the surest first."""
    return await desk.db.journal.insights(user)


@router.get("/journal/search")
async def search(
    query: Annotated[str, Query(min_length=1, max_length=1000, pattern=NO_NUL)],
    desk: At,
    who: Caller,
    user: FilterText = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[dict[str, Any]]:
    """Entries by meaning, best first."""
    return await search_entries(desk.db, await desk.ai(), query, user=user, limit=limit)
