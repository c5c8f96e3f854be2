"""HTTP API of the journal: writers, entries, mood, insights and search."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import (
    NO_NUL,
    FilterText,
    Limit,
    PathName,
    make_router,
)
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import responses
from shiftboss.extensions.ai.engines import engine_of
from shiftboss.extensions.journal.commands import search as search_entries
from shiftboss.extensions.journal.operations import JournalOperations
from shiftboss.extensions.journal.rows import Entry, Hit, Insight, Mood, Writer
from shiftboss.extensions.journal.store import Journal

router = make_router("journal")

User = Annotated[str, Query(min_length=1, max_length=200, pattern=NO_NUL)]


@router.get("/journal")
async def writers(admin: At, who: Caller) -> list[Writer]:
    """List the writers, with counts of entries and findings."""
    return await admin.db.family(Journal).status()


@router.get("/journal/entries")
async def entries(
    admin: At,
    who: Caller,
    user: FilterText = None,
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> list[Entry]:
    """List entries, newest first, with mood, emotion and themes."""
    return await admin.db.family(Journal).entries(user, limit, offset)


@router.delete("/journal/entries/{id}", status_code=204, responses=responses(404))
async def delete(id: UUID, admin: At, who: Caller) -> None:
    """Delete an entry and all its results. The findings about its writer are computed again."""
    await admin.use(JournalOperations).delete_entry(who, str(id))


@router.delete("/journal/writers/{user}", status_code=204, responses=responses(404))
async def erase(user: PathName, admin: At, who: Caller) -> None:
    """Delete a writer with all entries and findings."""
    await admin.use(JournalOperations).erase_journal(who, user)


@router.get("/journal/mood")
async def mood(
    user: User, admin: At, who: Caller, bucket: Literal["day", "week", "month", "year"] = "month"
) -> list[Mood]:
    """Show a writer's mood over time."""
    return await admin.db.family(Journal).mood(user, bucket)


@router.get("/journal/insights")
async def insights(user: User, admin: At, who: Caller) -> list[Insight]:
    """List the insights about a writer, highest confidence first."""
    return await admin.db.family(Journal).insights(user)


@router.get("/journal/search", responses=responses(503))
async def search(
    query: Annotated[str, Query(min_length=1, max_length=1000, pattern=NO_NUL)],
    admin: At,
    who: Caller,
    user: FilterText = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> list[Hit]:
    """Search entries by meaning, best first."""
    return await search_entries(
        admin.db, await engine_of(admin.db, admin.settings), query, user=user, limit=limit
    )
