"""Commands of the journal, shared by the command line, the HTTP API and the demo."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from shiftboss.db import Database
from shiftboss.db.ids import starting_with
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.providers.local import EMBEDDERS
from shiftboss.extensions.ai.providers.local.terms import search_terms
from shiftboss.extensions.journal import graph
from shiftboss.extensions.journal.entry import Entry
from shiftboss.extensions.journal.parsing import Parsed
from shiftboss.extensions.journal.pipeline import STEPS
from shiftboss.extensions.journal.reading import Problem
from shiftboss.extensions.journal.rows import Found, Hit, LoadedEntry, Stored, Writer
from shiftboss.extensions.journal.store import Journal
from shiftboss.extensions.journal.vectors import embedding_model
from shiftboss.model.errors import NotFound, UsageError

BATCH = 500
SHORTEST_PREFIX = 8  # of an id; a shorter one is too easily the id that another entry came with


@dataclass(slots=True)
class Imported:
    """The result of an import: counts by outcome (new, changed, same), invalid lines and new tasks."""

    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    tasks: list[UUID] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        problems = [
            {"path": p.path, "line": p.line, "message": p.message, "hint": p.hint} for p in self.problems
        ]
        counts = {name: self.outcomes[name] for name in ("new", "changed", "same")}
        return counts | {"problems": problems, "tasks": len(self.tasks)}


async def import_entries(
    db: Database,
    entries: Iterable[Parsed | Problem],
    *,
    process: bool = True,
    origin: str = graph.ORIGIN,
    on_progress: Callable[[Imported], None] = lambda done: None,
) -> Imported:
    """Store entries and enqueue the analysis of new and changed ones."""
    done = Imported()
    batch: list[Parsed] = []
    touched: list[Stored] = []
    for entry in entries:
        if isinstance(entry, Problem):
            done.problems.append(entry)
            continue
        batch.append(entry)
        if len(batch) == BATCH:
            touched += await _store(db, batch, done)
            on_progress(done)
            batch = []
    touched += await _store(db, batch, done)
    on_progress(done)
    if process:
        done.tasks = await graph.enqueue(db, touched, origin=origin)
    return done


async def _store(db: Database, batch: list[Parsed], done: Imported) -> list[Stored]:
    rows = await db.family(Journal).upsert_entries([entry.row() for entry in batch]) if batch else []
    done.outcomes.update(row["outcome"] for row in rows)
    return [row for row in rows if row["outcome"] != "same"]


async def process(
    db: Database, user: str | None = None, *, again: Sequence[str] = (), origin: str = "user_requested"
) -> list[UUID]:
    """Enqueue the analysis of all entries that are not analysed yet, and return the ids of the tasks.

    Results of the types in `again` are deleted first and computed again.
    """
    if user is not None:
        await _known(db, user)
    for task_type in again:
        if task_type not in STEPS:
            raise UsageError(f"there is no result {task_type!r}", hint=f"use one of {', '.join(STEPS)}")
    for task_type in again:
        await db.family(Journal).forget_results(task_type, user)
    return await graph.enqueue(db, await db.family(Journal).unprocessed(user), origin=origin)


async def show(db: Database, ident: str, user: str | None = None) -> dict[str, Any]:
    """Return an entry with all results in their documented form. `ident` is its id or external id."""
    return _document((await db.family(Journal).load_entries([await _one(db, ident, user)]))[0])


async def _one(db: Database, ident: str, user: str | None) -> UUID:
    journal = db.family(Journal)
    found = await journal.find_entries(ident, user)
    if not found and len(ident) >= SHORTEST_PREFIX:
        for id in await starting_with(db, "journal.entries", ident, 2) or []:
            found += await journal.find_entries(str(id), user)
    if not found:
        raise NotFound(f"there is no entry {ident!r}", hint="run `shiftboss journal search` to find entries")
    if len(found) > 1:
        raise UsageError(
            f"more than one entry is called {ident!r}", hint="choose one with --user, or by its id"
        )
    return found[0]


async def delete(db: Database, ident: str, user: str | None = None) -> list[UUID]:
    """Delete an entry and its results, and return the tasks that update the findings about its writer."""
    entry = await _one(db, ident, user)
    owner = (await db.family(Journal).load_entries([entry]))[0]["user_id"]
    await db.family(Journal).delete_entries([entry])
    return await graph.enqueue(db, await db.family(Journal).unprocessed(owner), origin="user_requested")


async def erase(db: Database, user: str) -> int:
    """Delete a writer with all entries and findings, and return the number of entries."""
    gone = await db.family(Journal).erase_user(user)
    if gone is None:
        raise NotFound(
            f"there is no journal of {user!r}", hint="run `shiftboss journal status` to list writers"
        )
    return gone


def _document(row: LoadedEntry) -> dict[str, Any]:
    entry = Entry.from_row(row)
    return {
        "id": str(entry.id),
        "user": entry.user_id,
        "external_id": entry.external_id,
        "revision": entry.revision,
        "processed": row["processed_revision"] == entry.revision,
        "written_at": entry.local_time.isoformat(),
        "timezone": entry.timezone,
        "parts": entry.parts,
        "metadata": entry.metadata,
        "results": {name: entry.results[name].document() for name in STEPS if name in entry.results},
    }


async def search(
    db: Database,
    ai: AI,
    query: str,
    *,
    user: str | None = None,
    limit: int = 10,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Hit]:
    """Search entries by meaning, best first. `score` combines cosine similarity and common terms."""
    if not query.strip():
        raise UsageError(
            "the search text is empty", hint='for example: shiftboss journal search "a day at the sea"'
        )
    if not 1 <= limit <= 1000:
        raise UsageError(f"a limit of {limit} is out of range", hint="use 1 to 1000")
    found: list[Found] = []
    for model in await _models(db, ai):
        asked = await ai.embed([query], model=model)
        found += await db.family(Journal).search(
            asked.vectors[0].tolist(),
            asked.model,
            user=user,
            limit=limit,
            since=since,
            until=until,
            terms=search_terms(query),
        )
        if not found:
            await _comparable(db, asked.model)
    return [_hit(row) for row in sorted(found, key=lambda row: -row["similarity"])[:limit]]


async def _models(db: Database, ai: AI) -> Sequence[str | None]:
    """The models to embed a query with: of the local provider, all those that have embedded entries."""
    if ai.embedding_provider != "local":
        return [None]
    known = await db.family(Journal).embedding_models()
    return [model for model in EMBEDDERS if model in known] or [embedding_model(ai)]


async def _comparable(db: Database, model: str) -> None:
    """Raise `UsageError` if no entry was embedded by the model of the query."""
    models = await db.family(Journal).embedding_models()
    if models and model not in models:
        raise UsageError(
            f"entries are embedded by {', '.join(models)}, the query by {model}",
            hint="run `shiftboss journal process --again embedding_generation`",
        )


def _hit(row: Found) -> Hit:
    return {
        "id": str(row["id"]),
        "user": row["user_id"],
        "external_id": row["external_id"],
        "written_at": row["written_at"].isoformat(),
        "score": round(row["similarity"], 4),
        "excerpt": row["excerpt"],
    }


async def insights(db: Database, user: str) -> dict[str, Any]:
    """Return all findings about a writer: insights, mood by month, entities and the results behind them."""
    await _known(db, user)
    results = await db.family(Journal).user_results(user)
    moods = await db.family(Journal).mood(user)
    return {
        "user": user,
        "insights": [
            {name: row[name] for name in ("kind", "text", "confidence", "evidence")}
            for row in await db.family(Journal).insights(user)
        ],
        "mood": [
            {"month": f"{row['period']:%Y-%m}", "entries": row["entries"], "mood": row["mood"]}
            for row in moods
        ],
        "entities": [
            {name: row[name] for name in ("kind", "name", "mentions", "mood")}
            for row in await db.family(Journal).entities(user, 30)
        ],
        "results": {
            name: {key: row[key] for key in ("task_type", "processed_data", "confidence_score")}
            for name, row in results.items()
        },
    }


async def export(db: Database, user: str | None = None) -> AsyncIterator[dict[str, Any]]:
    """Yield all entries with their results, oldest first, in a form that `journal import` can read."""
    if user is not None:
        await _known(db, user)
    ids = await db.family(Journal).entry_ids(user)
    for start in range(0, len(ids), BATCH):
        for row in await db.family(Journal).load_entries(ids[start : start + BATCH]):
            yield _exported(_document(row))


def _exported(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {name: entry[name] for name in ("user", "written_at", "timezone", "parts")}
    metadata = dict(entry["metadata"])
    extra = metadata.pop("extra", {})
    return {"id": entry["external_id"], **kept, **metadata, **extra, "results": entry["results"]}


async def status(db: Database) -> list[Writer]:
    return await db.family(Journal).status()


async def _known(db: Database, user: str) -> None:
    if await db.family(Journal).user(user) is None:
        users = ", ".join(row["user_id"] for row in await db.family(Journal).status())
        raise NotFound(f"there is no journal of {user!r}", hint=f"known writers: {users or 'none yet'}")
