"""Checks every guarantee of `promises.sql`, and those that need more than a query."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shiftboss.db import Database, Row
from shiftboss.extensions.chaos.plan import ChaosPlan

SHOWN = 5
_MISSING = """
SELECT i AS id FROM unnest(%s::uuid[]) i WHERE NOT EXISTS (SELECT FROM shiftboss_chaos.ours o WHERE o.id = i)
"""
_STREAMS = """
SELECT t.id, (t.params ->> 'parts')::int AS parts,
    jsonb_agg(jsonb_build_array(p.seq, p.restart, p.part, p.lease, p.place) ORDER BY p.seq)
        FILTER (WHERE p.seq IS NOT NULL) AS stream
FROM shiftboss_chaos.ours t LEFT JOIN shiftboss.parts p ON p.task_id = t.id
WHERE t.task_type = 'chaos.streaming' AND t.status = 'Complete' GROUP BY t.id, t.params
"""


@dataclass
class PromiseFinding:
    """A guarantee and its violations."""

    promise: str
    broken: int = 0
    examples: list[Row] = field(default_factory=list)


def promises() -> dict[str, str]:
    """Return the query for violations of each guarantee."""
    blocks = _text("promises.sql").split("-- promise: ")[1:]
    return {name: query.strip().rstrip(";") for name, _, query in (block.partition("\n") for block in blocks)}


def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


async def check(
    db: Database, plan: ChaosPlan, batches: int, folded: set[Any]
) -> AsyncIterator[PromiseFinding]:
    """Check all guarantees and yield a finding for each."""
    async with db.connection() as conn:
        await conn.execute(_text("prepare.sql"))
    yield _finding("every task that was enqueued is there", await _lost(db, plan, batches, folded))
    for promise, query in promises().items():
        yield _finding(promise, await db.fetch(query))
    yield _finding("a stream has every part once and in order", [row async for row in _streams(db)])


def _finding(promise: str, rows: list[Row]) -> PromiseFinding:
    return PromiseFinding(promise, len(rows), rows[:SHOWN])


async def _lost(db: Database, plan: ChaosPlan, batches: int, folded: set[Any]) -> list[Row]:
    lost: list[Row] = []
    for number in range(batches):
        ids = [task.id for task in plan.batch(number) if task.id not in folded]
        lost += await db.fetch(_MISSING, [ids])
    return lost


async def _streams(db: Database) -> AsyncIterator[Row]:
    """Yield streams that a reader would not get as they were emitted."""
    for row in await db.fetch(_STREAMS):
        for wrong in _wrong(row["stream"] or [], row["parts"]):
            yield {"id": row["id"], "wrong": wrong}


def _wrong(stream: list[list[Any]], parts: int) -> Iterator[str]:
    """Yield what is wrong with the stored parts, given as number, restart, part, lease and place."""
    if [part[0] for part in stream] != list(range(1, len(stream) + 1)):
        yield "numbers are missing or repeated"
    places: dict[int, list[int]] = {}
    kept: dict[int, Any] = {}
    for number, restart, part, lease, place in stream:
        if not restart:
            kept[number] = part
            places.setdefault(lease, []).append(place)
        for gone in part["discard"] if restart else ():
            kept.pop(gone, None)
    if any(seen != list(range(1, len(seen) + 1)) for seen in places.values()):
        yield "parts of one attempt are missing, repeated or out of order"
    if list(kept.values()) != list(range(parts)):
        yield f"a reader gets {list(kept.values())}"
