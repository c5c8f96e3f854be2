"""The SQL functions of vectorizers in schema `ai`, one method each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from psycopg import sql
from psycopg.rows import args_row
from psycopg.types.json import Jsonb

from shiftboss.db.connection import Connection, Row
from shiftboss.extensions.vectorizer.model import SourceRow, VectorizerSpec
from shiftboss.extensions.vectorizer.vectors import OIDS, VectorList, VectorOids, register_vectors
from shiftboss.model.codec import current
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import storable

if TYPE_CHECKING:
    import numpy.typing as npt

    from shiftboss.db.database import Database

CHANNEL = "shiftboss_vectorizers"
Which = int | str
WRITE = """
SELECT ai._vectorizer_write(
    %s, %s::text[]::tid[], %s::bigint[], %b::bigint[], %b::int[], %b::text[], %b) AS done
"""
GET = "SELECT * FROM {}"
STATUS = """
SELECT s.* FROM {} v JOIN ai.vectorizer_status s ON s.id = coalesce(v.replaces, v.id)
"""
SEARCH = """
SELECT f.* FROM {} v, ai._search(coalesce(v.replaces, v.id), %s, (%b)[1], %s, %s, %s) f
"""
SEARCH_TEXT = "SELECT * FROM ai.search_text(%s::{}, %s, %s, %s)"
SETTINGS = """
SELECT v.*, v.source_table::text AS source, v.target_table::text AS target, v.target_view::text AS view
FROM {} w JOIN ai.vectorizer v ON v.id = coalesce(w.replaces, w.id)
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
    """Calls the SQL functions of vectorizers; `which` is an id or a name."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._oids: VectorOids | None = None

    async def create(self, source: str, **options: Any) -> int:
        """Call `ai.create_vectorizer` with its parameters as keywords, and return the new id."""
        return int(await self._call("create_vectorizer", source=source, **options))

    async def update(self, which: Which, **options: Any) -> int:
        """Change settings and return the id of the vectorizer, or of its replacement if vectors change."""
        return int(await self._call("update_vectorizer", vectorizer=which, **options))

    async def drop(self, which: Which, drop_all: bool = False) -> None:
        await self._call("drop_vectorizer", vectorizer=which, drop_all=drop_all)

    async def pause(self, which: Which) -> None:
        await self._call("pause_vectorizer", vectorizer=which)

    async def resume(self, which: Which) -> None:
        await self._call("resume_vectorizer", vectorizer=which)

    async def retry(self, which: Which) -> int:
        """Put the failed rows back into the queue, and return their number."""
        return int(await self._call("retry_vectorizer", vectorizer=which))

    async def swap(self, which: Which, force: bool = False) -> bool:
        """Swap in a finished replacement, and return whether that happened."""
        return bool(await self._call("swap_vectorizer", vectorizer=which, force=force))

    async def pending(self, which: Which) -> int:
        """Return the exact number of pending rows."""
        return int(await self._call("vectorizer_pending", vectorizer=which))

    async def lag(self) -> list[Row]:
        """Return the pending rows (up to 10,000) and the lag of each vectorizer."""
        return await self._db.fetch("SELECT * FROM ai.vectorizer_lag()")

    async def get(self, which: Which) -> VectorizerSpec:
        [row] = await self._db.fetch(GET.format(_named(which)), [which])
        return VectorizerSpec.of(row)

    async def settings(self, which: Which) -> Row:
        """Return all settings, with the names of the tables."""
        [row] = await self._db.fetch(SETTINGS.format(_named(which)), [which])
        return row

    async def sources(self) -> list[str]:
        """Return the tables that can have a vectorizer: user tables with a primary key."""
        return [row["name"] for row in await self._db.fetch(SOURCES)]

    async def status(self, which: Which | None = None) -> list[Row]:
        """Return `ai.vectorizer_status` of one vectorizer or of all."""
        if which is None:
            return await self._db.fetch("SELECT * FROM ai.vectorizer_status ORDER BY id")
        return await self._db.fetch(STATUS.format(_named(which)), [which])

    async def unserved(self) -> bool:
        """Return whether tasks of vectorizers wait, and no active worker serves them."""
        return await self._db.value(
            bool,
            "SELECT EXISTS (SELECT FROM public.tasks WHERE status = 'Queued' AND queue = 'vectorizer'"
            " AND task_type = 'vectorizer.run') AND NOT EXISTS (SELECT FROM public.workers w"
            " WHERE w.status = 'active' AND NOT shiftboss.ending(w)"
            " AND shiftboss.capable(w, 'vectorizer', 'vectorizer.run', NULL))",
        )

    async def errors(self, which: Which | None = None, limit: int = 100) -> list[Row]:
        """Return `ai.vectorizer_errors`, latest first."""
        chosen = None if which is None else (await self.get(which)).counted_as
        return await self._db.fetch(
            "SELECT * FROM ai.vectorizer_errors WHERE vectorizer_id = coalesce(%s, vectorizer_id) "
            "ORDER BY failed_at DESC LIMIT %s",
            [chosen, limit],
        )

    async def due(self) -> list[VectorizerSpec]:
        """Return the vectorizers that have work to do now."""
        return [VectorizerSpec.of(row) for row in await self._db.fetch("SELECT * FROM ai._vectorizers_due()")]

    async def enqueue(self) -> int:
        """Enqueue a task for each due vectorizer and open query, and return the number of new tasks."""
        return await self._db.value(int, "SELECT ai._vectorizers_enqueue()")

    async def begin(self, id: int) -> VectorizerSpec | None:
        """Start a run, or return None if the vectorizer is paused, deferred or dropped."""
        row = await self._db.fetch_one("SELECT * FROM ai._vectorizer_begin(%s)", [id])
        return VectorizerSpec.of(row) if row and row["id"] is not None else None

    async def claim(self, id: int, limit: int, lease: timedelta) -> list[SourceRow]:
        async with (
            self._db.connection() as conn,
            conn.cursor(row_factory=args_row(SourceRow), binary=True) as cursor,
        ):
            await cursor.execute("SELECT * FROM ai._vectorizer_claim(%s, %s, %s)", [id, limit, lease])
            return await cursor.fetchall()

    async def extend(self, id: int, rows: Sequence[SourceRow], lease: timedelta) -> list[SourceRow]:
        """Extend the claim of rows, and return those that are still claimed by the caller."""
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
        """Record a failed attempt of each row, and return how many failed permanently."""
        tids, tickets = _identities(rows)
        return await self._db.value(
            int,
            "SELECT ai._vectorizer_fail(%s, %s::text[]::tid[], %s::bigint[], %s, %s::text[])",
            [id, tids, tickets, step, [current().text(storable(reason)) for reason in reasons]],
        )

    async def defer(self, id: int, delay: timedelta, reason: str) -> None:
        reason = current().text(storable(reason)) or ""
        await self._db.execute("SELECT ai._vectorizer_defer(%s, %s, %s)", [id, delay, reason])

    async def count(self, id: int, rows: int, chunks: int) -> None:
        await self._db.execute("SELECT ai._vectorizer_count(%s, %s, %s)", [id, rows, chunks])

    async def write(
        self, id: int, rows: Sequence[SourceRow], chunks: Sequence[Sequence[str]], vectors: npt.NDArray[Any]
    ) -> list[int]:
        """Store the vectors, one row of the matrix per chunk, and return the tickets of the written rows."""
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
        """Build or drop due indexes; return False if there are none or another worker builds them."""
        if not await self._index_statements(id):
            await self._db.execute("SELECT ai._vectorizer_indexed(%s)", [id])
            return False
        async with self._db.dedicated() as conn:
            locked = await conn.execute("SELECT pg_try_advisory_lock(%s, %s) AS mine", [0x58AE, id])
            if not (row := await locked.fetchone()) or not row["mine"]:
                return False
            for statement in await self._index_statements(id):
                await conn.execute(sql.SQL(statement))
        await self._db.execute("SELECT ai._vectorizer_indexed(%s)", [id])
        return True

    async def _index_statements(self, id: int) -> list[str]:
        return await self._db.value(list[str], "SELECT ai._vectorizer_index(%s)", [id])

    async def search(
        self,
        which: Which,
        vector: npt.NDArray[Any],
        limit: int = 10,
        *,
        text: str | None = None,
        filter: Mapping[str, Any] | None = None,
        generation: int | None = None,
    ) -> list[Row]:
        """Return the nearest chunks: distance, key, chunk_seq, chunk, source and score.

        With `text`, its words are ranked as well. With `generation`, a query that was embedded for replaced
        vectors is rejected.
        """
        given = None if filter is None else Jsonb(dict(filter))
        async with self._db.connection() as conn:
            register_vectors(conn, await self._vector_oids(conn))
            params = [which, generation, VectorList(vector.reshape(1, -1)), text, limit, given]
            return await (await conn.execute(SEARCH.format(_named(which)), params)).fetchall()

    async def search_text(
        self, which: Which, text: str, limit: int = 10, filter: Mapping[str, Any] | None = None
    ) -> list[Row]:
        """Search by words; the columns are those of `search`, without a distance."""
        given = None if filter is None else Jsonb(dict(filter))
        return await self._db.fetch(SEARCH_TEXT.format(_type(which)), [which, text, limit, given])

    async def claim_queries(
        self, only: Sequence[int] | None, lease: timedelta, ids: Sequence[int] | None = None
    ) -> list[Row]:
        """Claim open queries, of some vectorizers or with some ids: id, vectorizer_id and query."""
        given = [None if some is None else list(some) for some in (only, ids)]
        return await self._db.fetch(
            "SELECT * FROM ai._queries_claim(%s::int[], %s, %s::bigint[])", [given[0], lease, given[1]]
        )

    async def answer_query(
        self, id: int, generation: int, embedding: Sequence[float] | None, error: str | None
    ) -> None:
        await self._db.execute(
            "SELECT ai._query_answer(%s, %s, %s::real[], %s)",
            [id, generation, None if embedding is None else list(embedding), error and storable(error)],
        )

    async def _vector_oids(self, conn: Connection) -> VectorOids:
        if self._oids is None:
            row = await (await conn.execute(OIDS)).fetchone()
            if row is None:
                raise DatabaseError(
                    "this database does not have the extension vector (pgvector)",
                    hint="install pgvector, then run `shiftboss db migrate`",
                    sqlstate="0A000",
                )
            self._oids = VectorOids(row["element"], row["list"])
        return self._oids

    async def _call(self, function: str, **arguments: Any) -> Any:
        """Call a function with named arguments; None means the default of the parameter."""
        given = {
            name: Jsonb(value) if isinstance(value, dict) else value
            for name, value in arguments.items()
            if value is not None
        }
        query = sql.SQL("SELECT ai.{}({}) AS value").format(
            sql.Identifier(function),
            sql.SQL(", ").join(
                sql.SQL("{} => {}").format(sql.Identifier(name), _placeholder(name, given[name]))
                for name in given
            ),
        )
        async with self._db.connection() as conn:
            row = await (await conn.execute(query, given)).fetchone()
        assert row is not None
        return row["value"]


def _placeholder(name: str, value: Any) -> sql.Composable:
    # A polymorphic parameter needs a type; the types of the others follow from the function.
    cast = f"::{_type(value)}" if name == "vectorizer" else ""
    return sql.SQL("{}" + cast).format(sql.Placeholder(name))


def _named(which: Which) -> str:
    """Return SQL for the vectorizer of a parameter: a number is an id, a text is a name or an id."""
    return f"ai._named(%s::{_type(which)})"


def _type(which: Which) -> str:
    return "int8" if isinstance(which, int) else "text"


def _identities(rows: Sequence[SourceRow]) -> tuple[list[str], list[int]]:
    return [row.tid for row in rows], [row.ticket for row in rows]
