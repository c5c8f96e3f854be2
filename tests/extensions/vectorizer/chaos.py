"""Chaos: workers killed, a hostile provider, rows that change all the while; then every row is checked.

Used by the suite (short) and by `bench/vectorizer_chaos.py` (whole).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftboss.db import Database
from tests.extensions.vectorizer.provider import DIMENSIONS, Provider, Reply, serving, vector

ROOT = Path(__file__).parents[3]
POISON = "poison"
LENIENT = {"vectorizer_backoff": "0.05 s", "vectorizer_attempts": "3"}
UPDATES = (
    "UPDATE public.doc SET body = body || ' edited' WHERE id % 37 = {n} AND body NOT LIKE '%poison%'",
    "UPDATE public.doc SET title = 'title ' || id || ' again' WHERE id % 41 = {n}",
    "UPDATE public.doc SET hits = hits + 1 WHERE id % 5 = {n} % 5",
    "DELETE FROM public.doc WHERE id % 97 = {n}",
    "INSERT INTO public.doc SELECT 1000000 + {n} * 100 + i, 'new ' || i, 'new body ' || {n} || ' ' || i "
    "FROM generate_series(1, 20) i ON CONFLICT DO NOTHING",
    "UPDATE public.doc SET id = id + 2000000 WHERE id % 89 = {n} AND id < 1000000",
    "UPDATE public.doc SET body = 'cured ' || id WHERE body LIKE '%poison%' AND id % 3 = {n} % 3",
)
CHECK = """
SELECT s.id, s.{text} AS text, t.chunk, t.embedding::real[] AS embedding, e.key IS NOT NULL AS failed
FROM public.doc s
FULL JOIN public.{name}_store t ON t.id = s.id
LEFT JOIN ai._vectorizer_error e ON e.vectorizer_id = %s AND e.final AND (e.key ->> 'id')::int = s.id
"""


@dataclass(slots=True)
class Verdict:
    """What came of it; `bad` names checks that failed."""

    rows: int
    checks: int
    bad: list[str]
    kills: int
    requests: int
    seconds: float


class Hostile:
    """Answers like a provider on a bad day: errors, limits, login pages, half answers, and rightful refusals."""

    def __init__(self, seed: int, share: float) -> None:
        self._random = random.Random(seed)
        self.share = share

    def __call__(self, request: dict[str, Any]) -> Reply | None:
        if any(POISON in text for text in request["input"]):
            return 400, "application/json", b'{"error": {"message": "refused"}}'
        if self._random.random() > self.share:
            return None
        return self._random.choice(
            (
                (500, "text/plain", b"oh no"),
                (429, "application/json", b'{"error": {"message": "slow down"}}'),
                (200, "text/html", b"<html>log in</html>"),
                (200, "application/json", b'{"data": []}'),
                (200, "application/json", b'{"data": [{"index": 0'),
                (403, "text/html", b"<html>forbidden</html>"),
            )
        )


async def run(db: Database, *, rows: int, kills: int, seed: int = 1, hostile: float = 0.2) -> Verdict:
    """Two vectorizers over one table, two workers at a time."""
    started = time.perf_counter()
    await _prepare(db, rows)
    async with serving() as provider:
        provider.answer = calm = Hostile(seed, hostile)
        with tempfile.TemporaryDirectory(prefix="shiftboss-chaos-") as home:
            fleet = [_worker(db.url, provider, home), _worker(db.url, provider, home)]
            try:
                await _storm(db, fleet, provider, home, kills, random.Random(seed))
                calm.share = 0.0
                await _settled(db)
            finally:
                for process in fleet:
                    process.kill()
                    process.wait()
        bad, checks = await _check(db)
        count = await _one(db, "SELECT count(*) FROM public.doc")
        seconds = time.perf_counter() - started
        return Verdict(count, checks, bad, kills, len(provider.requests), seconds)


async def _prepare(db: Database, rows: int) -> None:
    await db.execute(
        "CREATE TABLE public.doc (id int PRIMARY KEY, title text, body text, hits int DEFAULT 0)"
    )
    await db.execute(
        "INSERT INTO public.doc SELECT n, 'title ' || n, "
        "CASE WHEN n % 200 = 7 THEN 'poison ' ELSE 'body ' END || n FROM generate_series(1, $1) n".replace(
            "%", "%%"
        ).replace("$1", "%s"),
        [rows],
    )
    for name, value in LENIENT.items():
        await db.execute("INSERT INTO shiftboss.settings VALUES (%s, %s)", [name, value])
    for column in ("title", "body"):
        await db.vectorizers.create(
            "public.doc", name=f"{column}_vectors", columns=[column], provider="openai", model="m",
            dimensions=DIMENSIONS, index_method="none", batch_size=50,
        )  # fmt: skip


def _worker(url: str, provider: Provider, home: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "SHIFTBOSS_DATABASE_URL": url,
        "SHIFTBOSS_VECTORIZER_LEASE": "2",
        "SHIFTBOSS_VECTORIZER_POLL": "0.2",
        "SHIFTBOSS_AI_RETRY_ATTEMPTS": "1",
        "SHIFTBOSS_AI_BREAKER_RECOVERY": "0.2",
        "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    command = [sys.executable, "-m", "shiftboss", "vectorizer", "worker", "--log-level", "error"]
    return subprocess.Popen(command, cwd=home, env=environment, stderr=subprocess.DEVNULL)


async def _storm(
    db: Database,
    fleet: list[subprocess.Popen[bytes]],
    provider: Provider,
    home: str,
    kills: int,
    chance: random.Random,
) -> None:
    """Change rows, and after some more requests kill a worker and start another."""
    for n in range(kills):
        for _ in range(5):
            await db.execute(chance.choice(UPDATES).format(n=chance.randrange(37)))
            await _more(db, provider, 3)
        victim = fleet[n % len(fleet)]
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        fleet[n % len(fleet)] = _worker(db.url, provider, home)


async def _more(db: Database, provider: Provider, requests: int) -> None:
    seen = len(provider.requests)
    async with asyncio.timeout(300):
        while len(provider.requests) < seen + requests:
            await _impatient(db)
            await asyncio.sleep(0.02)


async def _impatient(db: Database) -> None:
    """A provider in trouble is left alone for half a minute; here nobody has that much time."""
    await db.execute("UPDATE ai.vectorizer SET deferred_until = NULL WHERE deferred_until IS NOT NULL")
    await db.execute("UPDATE shiftboss.ai_providers SET held_until = NULL WHERE held_until IS NOT NULL")


async def _settled(db: Database) -> None:
    async with asyncio.timeout(600):
        while any(row["pending"] for row in await db.vectorizers.status()):
            await _impatient(db)
            await asyncio.sleep(0.1)


async def _check(db: Database) -> tuple[list[str], int]:
    """Each row has its own vector or is on the failed list with none; nothing is left of others."""
    bad: list[str] = []
    checks = 0
    for status in await db.vectorizers.status():
        text = status["name"].removesuffix("_vectors")
        for row in await db.fetch(CHECK.format(text=text, name=status["name"]), [status["id"]]):
            checks += 1
            if not _good(row):
                bad.append(f"{status['name']}: {row}"[:300])
    return bad, checks


def _good(row: dict[str, Any]) -> bool:
    if row["text"] is None:
        return False  # a vector without its row
    if row["failed"] or row["chunk"] is None:
        return bool(row["failed"] and row["chunk"] is None and POISON in row["text"])
    close = zip(row["embedding"], vector(row["text"]), strict=True)
    return row["chunk"] == row["text"] and all(abs(a - b) < 1e-5 for a, b in close)


async def _one(db: Database, query: str) -> Any:
    row = await db.fetch_one(query)
    assert row is not None
    return next(iter(row.values()))
