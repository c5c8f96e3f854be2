"""The SQL functions of the journal, one method each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shiftboss.db.family import Family
from shiftboss.extensions.journal import rows


class Journal(Family):
    async def upsert_entries(self, entries: Sequence[Mapping[str, Any]]) -> list[rows.Stored]:
        """Store entries; return the id, user_id, external_id, revision and outcome of each.

        The outcome is `new`, `changed` or `same`.
        """
        sql = "SELECT * FROM journal.upsert_entries(%s)"
        return await self._db.fetch_as(rows.Stored, sql, [Jsonb(list(entries))])

    async def load_entries(self, entries: Sequence[UUID]) -> list[rows.LoadedEntry]:
        """Return the existing entries with their results, in this order."""
        sql = "SELECT * FROM journal.load_entries(%s)"
        return await self._db.fetch_as(rows.LoadedEntry, sql, [list(entries)])

    async def entry_ids(self, user: str | None = None) -> list[UUID]:
        """Return the ids of all entries, oldest first."""
        where = "%(user)s::text IS NULL OR user_id = %(user)s"
        sql = f"SELECT id FROM journal.entries WHERE {where} ORDER BY written_at, id"  # noqa: S608 -- constants
        return [row["id"] for row in await self._db.fetch(sql, {"user": user})]

    async def find_entries(self, ident: str, user: str | None = None) -> list[UUID]:
        """Return the entries with this id or external id, of one writer or of all."""
        sql = "SELECT id FROM journal.find_entries(%s, %s)"
        return [row["id"] for row in await self._db.fetch(sql, [ident, user])]

    async def store_results(self, results: Sequence[Mapping[str, Any]]) -> int:
        """Store results and return their number, without known results and those of old revisions."""
        return await self._db.value(int, "SELECT journal.store_results(%s)", [Jsonb(list(results))])

    async def store_mentions(self, mentions: Sequence[Mapping[str, Any]]) -> None:
        await self._db.execute("SELECT journal.store_mentions(%s)", [Jsonb(list(mentions))])

    async def mark_analysed(self, entry: UUID, revision: int) -> None:
        await self._db.execute("SELECT journal.mark_analysed(%s, %s)", [entry, revision])

    async def mark_processed(self, revisions: Mapping[str, int]) -> int:
        return await self._db.value(int, "SELECT journal.mark_processed(%s)", [Jsonb(dict(revisions))])

    async def forget_results(self, task_type: str, user: str | None = None) -> int:
        """Delete results so that they are computed again, and return their number."""
        return await self._db.value(int, "SELECT journal.forget_results(%s, %s)", [task_type, user])

    async def unprocessed(self, user: str | None = None) -> list[rows.Revision]:
        return await self._db.fetch_as(rows.Revision, "SELECT * FROM journal.unprocessed(%s)", [user])

    async def store_user_result(
        self,
        user: str,
        task_type: str,
        input_hash: str,
        processed_data: Mapping[str, Any],
        confidence_score: float,
        provider: str | None = None,
        model: str | None = None,
    ) -> bool:
        """Store a result about a writer, and return whether it is new."""
        return await self._db.value(
            bool,
            "SELECT journal.store_user_result(%s, %s, %s, %s, %s, %s, %s)",
            [user, task_type, input_hash, Jsonb(dict(processed_data)), confidence_score, provider, model],
        )

    async def user_results(self, user: str) -> dict[str, rows.UserResult]:
        """Return the results about a writer by task type."""
        sql = "SELECT * FROM journal.user_results WHERE user_id = %s"
        found = await self._db.fetch_as(rows.UserResult, sql, [user])
        return {row["task_type"]: row for row in found}

    async def store_insights(self, user: str, insights: Sequence[Mapping[str, Any]]) -> int:
        given = [user, Jsonb(list(insights))]
        return await self._db.value(int, "SELECT journal.store_insights(%s, %s)", given)

    async def insights(self, user: str) -> list[rows.Insight]:
        sql = "SELECT * FROM journal.insights WHERE user_id = %s ORDER BY confidence DESC, key"
        return await self._db.fetch_as(rows.Insight, sql, [user])

    async def history(self, user: str) -> list[rows.AnalysedEntry]:
        return await self._db.fetch_as(rows.AnalysedEntry, "SELECT * FROM journal.history(%s)", [user])

    async def user(self, user: str) -> rows.Owner | None:
        found = await self._db.fetch_as(rows.Owner, "SELECT * FROM journal.users WHERE id = %s", [user])
        return found[0] if found else None

    async def search(
        self,
        query: Sequence[float],
        model: str,
        *,
        user: str | None = None,
        limit: int = 10,
        since: datetime | None = None,
        until: datetime | None = None,
        ef_search: int = 200,
        terms: Sequence[str] | None = None,
    ) -> list[rows.Found]:
        """Search entries by meaning and, if given, by terms; best first."""
        return await self._db.fetch_as(
            rows.Found,
            "SELECT * FROM journal.search(%s::vector, %s, %s, %s, %s, %s, %s, %s)",
            [_vector(query), model, user, limit, since, until, ef_search, list(terms) if terms else None],
        )

    async def delete_entries(self, entries: Sequence[UUID]) -> int:
        """Delete entries and all their results."""
        return await self._db.value(int, "SELECT journal.delete_entries(%s)", [list(entries)])

    async def erase_user(self, user: str) -> int | None:
        """Delete a writer with all data; return the number of entries, or None if there is no such writer."""
        row = await self._db.fetch_one("SELECT journal.erase_user(%s) AS gone", [user])
        return row["gone"] if row else None

    async def embedding_models(self) -> list[str]:
        """Return the models that have embedded entries."""
        sql = "SELECT DISTINCT model FROM journal.embeddings WHERE kind = 'content' ORDER BY model"
        return [row["model"] for row in await self._db.fetch(sql)]

    async def index_dimensions(self, dimensions: int) -> None:
        await self._db.execute("SELECT journal.index_dimensions(%s)", [dimensions])

    async def link_entries(self, entries: Sequence[UUID]) -> int:
        return await self._db.value(int, "SELECT journal.link_entries(%s)", [list(entries)])

    async def references_of(self, user: str) -> list[rows.Reference]:
        return await self._db.fetch_as(rows.Reference, "SELECT * FROM journal.references_of(%s)", [user])

    async def relations(self, user: str, limit: int = 200) -> list[rows.Relation]:
        """Return the strongest edges of a writer's graph of people, places and concepts."""
        return await self._db.fetch_as(
            rows.Relation,
            "SELECT * FROM journal.relations WHERE user_id = %s "
            "ORDER BY weight DESC, name, other_name LIMIT %s",
            [user, limit],
        )

    async def entities(self, user: str, limit: int = 200) -> list[rows.Entity]:
        return await self._db.fetch_as(
            rows.Entity,
            "SELECT * FROM journal.entity_overview WHERE user_id = %s ORDER BY mentions DESC, name LIMIT %s",
            [user, limit],
        )

    async def mood(self, user: str, bucket: str = "month") -> list[rows.Mood]:
        return await self._db.fetch_as(rows.Mood, "SELECT * FROM journal.mood(%s, %s)", [user, bucket])

    async def status(self) -> list[rows.Writer]:
        return await self._db.fetch_as(rows.Writer, "SELECT * FROM journal.status()")

    async def entries(self, user: str | None = None, limit: int = 50, offset: int = 0) -> list[rows.Entry]:
        """Return entries, newest first, with mood, emotion and themes if they are known."""
        sql = "SELECT * FROM journal.list_entries(%s, %s, %s)"
        return await self._db.fetch_as(rows.Entry, sql, [user, limit, offset])


def _vector(values: Sequence[float]) -> str:
    return "[" + ",".join(map(str, values)) + "]"
