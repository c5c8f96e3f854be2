"""Vectorizers: one method per SQL function of schema `ai`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import args_row

from shiftboss.db.connection import Connection, Row
from shiftboss.db.vectors import OIDS, VectorList, VectorOids, register_vectors
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import storable
from shiftboss.model.vectorizer import SourceRow, Vectorizer

if TYPE_CHECKING:
    import numpy.typing as npt

    from shiftboss.db.database import Database

CHANNEL = "shiftboss_vectorizers"
Which = int | str
WRITE = """
SELECT ai._vectorizer_write(
    %s, %s::text[]::tid[], %s::bigint[], %b::bigint[], %b::int[], %b::text[], %b) AS done
"""
STATUS = """
SELECT s.* FROM ai._vectorizer(%s) v JOIN ai.vectorizer_status s ON s.id = coalesce(v.replaces, v.id)
"""
SETTINGS = """
SELECT v.*, v.source_table::text AS source, v.target_table::text AS target, v.target_view::text AS view
FROM ai._vectorizer(%s) w JOIN ai.vectorizer v ON v.id = coalesce(w.replaces, w.id)
"""
SOURCES = """
SELECT c.oid::regclass::text AS name FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'shiftboss', 'ai', 'journal')
  AND NOT starts_with(n.nspname, 'pg_')
  AND NOT (n.nspname = 'public' AND c.relname IN ('tasks', 'workers', 'health', 'worker_runs', 'places'))
  AND NOT EXISTS (SELECT FROM ai.vectorizer v WHERE v.target_table = c.oid)
  AND EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)
ORDER BY 1 LIMIT 500
"""


class Vectorizers:
    """Everything that can be asked of vectorizers; `which` is an id or a name."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._oids: VectorOids | None = None

    async def create(self, source: str, **options: Any) -> int:
        """`ai.create_vectorizer`, with its parameters as keywords. The new one's id."""
        return int(await self._call("create_vectorizer", source=source, **options))

    async def update(self, which: Which, **options: Any) -> int:
        """`ai.update_vectorizer`; the id of what works at the change."""
        return int(await self._call("update_vectorizer", vectorizer=str(which), **options))

    async def drop(self, which: Which, drop_all: bool = False) -> None:
        await self._call("drop_vectorizer", vectorizer=str(which), drop_all=drop_all)

    async def pause(self, which: Which) -> None:
        await self._call("pause_vectorizer", vectorizer=str(which))

    async def resume(self, which: Which) -> None:
        await self._call("resume_vectorizer", vectorizer=str(which))

    async def retry(self, which: Which) -> int:
        """Put the failed rows back; how many."""
        return int(await self._call("retry_vectorizer", vectorizer=str(which)))

    async def swap(self, which: Which, force: bool = False) -> bool:
        """Let a finished replacement take over; whether it did."""
        return bool(await self._call("swap_vectorizer", vectorizer=str(which), force=force))

    async def pending(self, which: Which) -> int:
        """The exact count."""
        return int(await self._call("vectorizer_pending", vectorizer=str(which)))

    async def get(self, which: Which) -> Vectorizer:
        row = await self._db.fetch_one("SELECT * FROM ai._vectorizer(%s)", [str(which)])
        assert row is not None
        return Vectorizer.of(row)

    async def settings(self, which: Which) -> Row:
        """Everything that create or update set, with the tables by name."""
        row = await self._db.fetch_one(SETTINGS, [str(which)])
        assert row is not None
        return row

    async def sources(self) -> list[str]:
        """Tables that a vectorizer could follow: those of people, with a primary key."""
        return [row["name"] for row in await self._db.fetch(SOURCES)]

    async def status(self, which: Which | None = None) -> list[Row]:
        """`ai.vectorizer_status`, of one or of all."""
        if which is None:
            return await self._db.fetch("SELECT * FROM ai.vectorizer_status ORDER BY id")
        return await self._db.fetch(STATUS, [str(which)])

    async def errors(self, which: Which | None = None, limit: int = 100) -> list[Row]:
        """`ai.vectorizer_errors`, the latest first."""
        chosen = None if which is None else (await self.get(which)).counted_as
        return await self._db.fetch(
            "SELECT * FROM ai.vectorizer_errors WHERE vectorizer_id = coalesce(%s, vectorizer_id) "
            "ORDER BY failed_at DESC LIMIT %s",
            [chosen, limit],
        )

    async def due(self) -> list[Vectorizer]:
        """Those that have work which may be done now."""
        return [Vectorizer.of(row) for row in await self._db.fetch("SELECT * FROM ai._vectorizers_due()")]

    async def enqueue(self) -> int:
        """One task for each that is due; how many were new."""
        row = await self._db.fetch_one("SELECT ai._vectorizers_enqueue() AS made")
        return row["made"] if row else 0

    async def begin(self, id: int) -> Vectorizer | None:
        """Start a run; None if it is paused, deferred or gone."""
        row = await self._db.fetch_one("SELECT * FROM ai._vectorizer_begin(%s)", [id])
        return Vectorizer.of(row) if row and row["id"] is not None else None

    async def claim(self, id: int, limit: int, lease: timedelta) -> list[SourceRow]:
        async with (
            self._db.connection() as conn,
            conn.cursor(row_factory=args_row(SourceRow), binary=True) as cursor,
        ):
            await cursor.execute("SELECT * FROM ai._vectorizer_claim(%s, %s, %s)", [id, limit, lease])
            return await cursor.fetchall()

    async def extend(self, id: int, rows: Sequence[SourceRow], lease: timedelta) -> list[SourceRow]:
        """Hold claimed rows for longer; those that are still the claimer's."""
        tids, tickets = _identities(rows)
        found = await self._db.fetch(
            "SELECT * FROM ai._vectorizer_extend(%s, %s::text[]::tid[], %s::bigint[], %s)",
            [id, tids, tickets, lease],
        )
        places = {row["ticket"]: row["tid"] for row in found}
        kept = [row for row in rows if row.ticket in places]
        for row in kept:
            row.tid = places[row.ticket]
        return kept

    async def release(self, id: int, rows: Sequence[SourceRow]) -> None:
        tids, tickets = _identities(rows)
        await self._db.execute(
            "SELECT ai._vectorizer_release(%s, %s::text[]::tid[], %s::bigint[])", [id, tids, tickets]
        )

    async def fail(self, id: int, rows: Sequence[SourceRow], step: str, reasons: Sequence[str]) -> int:
        """Count a failed try of each; how many had their last."""
        tids, tickets = _identities(rows)
        row = await self._db.fetch_one(
            "SELECT ai._vectorizer_fail(%s, %s::text[]::tid[], %s::bigint[], %s, %s::text[]) AS ended",
            [id, tids, tickets, step, [storable(reason) for reason in reasons]],
        )
        return row["ended"] if row else 0

    async def defer(self, id: int, delay: timedelta, reason: str) -> None:
        await self._db.execute("SELECT ai._vectorizer_defer(%s, %s, %s)", [id, delay, storable(reason)])

    async def count(self, id: int, rows: int, chunks: int) -> None:
        await self._db.execute("SELECT ai._vectorizer_count(%s, %s, %s)", [id, rows, chunks])

    async def write(
        self, id: int, rows: Sequence[SourceRow], chunks: Sequence[Sequence[str]], vectors: npt.NDArray[Any]
    ) -> list[int]:
        """Store the vectors (one line of the matrix per chunk, row by row); the tickets of rows that were."""
        tids, tickets = _identities(rows)
        owners = [row.ticket for row, pieces in zip(rows, chunks, strict=True) for _ in pieces]
        seqs = [seq for pieces in chunks for seq in range(len(pieces))]
        texts = [piece for pieces in chunks for piece in pieces]
        async with self._db.connection() as conn:
            register_vectors(conn, await self._vector_oids(conn))
            params = [id, tids, tickets, owners, seqs, texts, VectorList(vectors)]
            row = await (await conn.execute(WRITE, params)).fetchone()
        done: list[int] = row["done"] if row else []
        return done

    async def index(self, id: int) -> bool:
        """Build the HNSW index if it is time; False if there is nothing to do or another worker is at it."""
        if not await self._index_statements(id):
            return False
        async with self._db.dedicated() as conn:
            locked = await conn.execute("SELECT pg_try_advisory_lock(%s, %s) AS mine", [0x58AE, id])
            if not (row := await locked.fetchone()) or not row["mine"]:
                return False
            for statement in await self._index_statements(id):
                await conn.execute(sql.SQL(statement))
        return True

    async def _index_statements(self, id: int) -> list[str]:
        row = await self._db.fetch_one("SELECT ai._vectorizer_index(%s) AS statements", [id])
        return row["statements"] if row else []

    async def search(self, which: Which, vector: npt.NDArray[Any], limit: int = 10) -> list[Row]:
        """The nearest chunks: distance, key, chunk_seq, chunk, source."""
        async with self._db.connection() as conn:
            register_vectors(conn, await self._vector_oids(conn))
            query = "SELECT * FROM ai.search_vectorizer(%s::text, (%b)[1], %s)"
            found = await conn.execute(query, [str(which), VectorList(vector.reshape(1, -1)), limit])
            return await found.fetchall()

    async def _vector_oids(self, conn: Connection) -> VectorOids:
        if self._oids is None:
            row = await (await conn.execute(OIDS)).fetchone()
            if row is None:
                raise DatabaseError(
                    "this database has no extension vector (pgvector)",
                    hint="install it, then `shiftboss db migrate`",
                    sqlstate="0A000",
                )
            self._oids = VectorOids(row["element"], row["list"])
        return self._oids

    async def _call(self, function: str, **arguments: Any) -> Any:
        """A function with named arguments; None stands for its default."""
        given = {name: value for name, value in arguments.items() if value is not None}
        query = sql.SQL("SELECT ai.{}({}) AS value").format(
            sql.Identifier(function),
            sql.SQL(", ").join(
                sql.SQL("{} => {}").format(sql.Identifier(name), _placeholder(name)) for name in given
            ),
        )
        async with self._db.connection() as conn:
            row = await (await conn.execute(query, given)).fetchone()
        assert row is not None
        return row["value"]


def _placeholder(name: str) -> sql.Composable:
    # A polymorphic parameter needs a type; the others take theirs from the function.
    cast = "::text" if name == "vectorizer" else ""
    return sql.SQL("{}" + cast).format(sql.Placeholder(name))


def _identities(rows: Sequence[SourceRow]) -> tuple[list[str], list[int]]:
    return [row.tid for row in rows], [row.ticket for row in rows]
