"""Circuit, limits, budget and spend hold for the whole fleet, on a real database, across processes."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from shiftboss.db import Connection, Database
from shiftboss.extensions.ai import AI, Need, answers
from shiftboss.extensions.ai.errors import Exhausted
from shiftboss.extensions.ai.settings import AISettings, OpenAISettings
from shiftboss.leader.duties import candidate
from shiftboss.model.errors import Defer
from shiftboss.model.settings import Settings

from .asking import asked
from .conftest import SENTIMENT, ProtocolServer

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def ask(text: str = "What a day!", **more: Any) -> dict[str, Any]:
    return asked("sentiment_analysis", text, answers.SentimentAnalysis, need=Need.ADVANCED, **more)


def dumped(settings: AISettings) -> str:
    data = settings.model_dump(mode="json")
    for name in ("openai", "azure"):
        data[name]["api_key"] = "k"
    return json.dumps(data)


async def fleet(url: str, settings: AISettings, *calls: list[str]) -> list[list[str]]:
    """The outcomes of several processes that ask at the same time."""
    script = str(Path(__file__).parent / "caller.py")
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, script, url, dumped(settings), *texts, stdout=asyncio.subprocess.PIPE
        )
        for texts in calls
    ]
    outputs = [(await process.communicate())[0] for process in processes]
    return [json.loads(output.splitlines()[-1]) for output in outputs]


async def test_a_circuit_opened_by_one_process_is_open_for_another(
    database_url: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.fails(500)
    settings = make_settings("openai")
    await fleet(database_url, settings, ["a", "b"])
    asked = len(server.requests())
    assert asked >= 5
    assert await fleet(database_url, settings, ["c"]) == [["the circuit of openai is open"]]
    assert len(server.requests()) == asked, "the other process did not even ask"


async def test_requests_per_minute_hold_over_processes(
    database_url: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers(SENTIMENT)
    settings = make_settings("openai", requests_per_minute=10)
    texts = [[f"{process}-{n}" for n in range(12)] for process in range(2)]
    outcomes = Counter(chain(*await fleet(database_url, settings, *texts)))
    assert outcomes == {"openai": 10, "rate limited": 14}
    assert len(server.requests()) == 10


async def test_the_same_request_in_two_processes_is_made_once(
    database_url: str, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers(SENTIMENT)
    server.chaos(latencyMs=1500)
    outcomes = await fleet(database_url, make_settings("openai"), ["same", "same"], ["same"], ["same"])
    assert len(server.requests()) == 1
    assert Counter(chain(*outcomes)) == {"openai": 1, "cached": 3}


async def test_spend_is_written_per_call(db: Database, server: ProtocolServer, make_settings: Any) -> None:
    server.answers(SENTIMENT, usage={"prompt_tokens": 1000, "completion_tokens": 100})
    task = uuid.uuid4()
    async with await AI.open(make_settings("openai", daily_budget=5), db) as ai:
        await ai.complete(**ask(task_id=task))
    call = await db.fetch_one("SELECT * FROM shiftboss.ai_calls WHERE task_id = %s", [task])
    assert call is not None
    assert (call["provider"], call["outcome"], call["task_type"]) == ("openai", "ok", "sentiment_analysis")
    assert (call["prompt_tokens"], call["completion_tokens"]) == (1000, 100)
    assert float(call["cost"]) == pytest.approx(0.0035)
    status = {row["provider"]: row for row in await db.ai.ai_provider_status()}["openai"]
    assert float(status["spend_today"]) == pytest.approx(0.0035)
    assert (status["calls_today"], status["errors_today"], status["requests_last_minute"]) == (1, 0, 1)
    assert status["daily_budget"] == 5
    assert status["latency_ms"] > 0


async def test_a_spent_budget_holds_work_back(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    server.answers(SENTIMENT, usage={"prompt_tokens": 7000, "completion_tokens": 100})
    async with await AI.open(make_settings("openai", daily_budget=0.02), db) as ai:
        await ai.complete(**ask("first"))
        with pytest.raises(Defer) as held:
            await ai.complete(**ask("second"))
    assert held.value.reason == "the budget of provider openai is spent until 00:00 UTC"
    assert 0 < held.value.seconds <= 86400
    assert len(server.requests()) == 1


@pytest.mark.parametrize("shared", [True, False], ids=["fleet", "process"])
async def test_calls_under_way_count_against_the_budget(
    db: Database, server: ProtocolServer, make_settings: Any, shared: bool
) -> None:
    server.answers(SENTIMENT)
    server.chaos(latencyMs=400)
    # one call is guessed at about 0.0055 dollars beforehand: only three of them fit
    async with await AI.open(make_settings("openai", daily_budget=0.018), db if shared else None) as ai:
        outcomes = await asyncio.gather(
            *(ai.complete(**ask(str(n))) for n in range(8)), return_exceptions=True
        )
    assert sum(isinstance(outcome, Defer) for outcome in outcomes) == 5
    assert len(server.requests()) == 3


async def test_a_spent_budget_passes_work_to_the_next_provider(
    db: Database, server: ProtocolServer, make_settings: Any
) -> None:
    async with await AI.open(make_settings("openai", "local", daily_budget=0.0001), db) as ai:
        answer = await ai.complete(**ask("I love this happy day"))
    assert answer.provider == "local"
    assert server.requests() == []


async def test_a_key_never_reaches_the_database(db: Database, locked_server: ProtocolServer) -> None:
    openai = OpenAISettings(api_key="sk-very-secret", base_url=f"{locked_server.url}/v1")
    async with await AI.open(AISettings(providers=["openai"], openai=openai), db) as ai:
        with pytest.raises(Exhausted):
            await ai.complete(**ask())
    rows = [
        *await db.fetch("SELECT to_jsonb(p)::text AS row FROM shiftboss.ai_providers p"),
        *await db.fetch("SELECT to_jsonb(c)::text AS row FROM shiftboss.ai_calls c"),
    ]
    assert len(rows) == 2
    assert "key refused" in rows[0]["row"]
    assert not [row for row in rows if "secret" in row["row"]]


async def test_tokens_per_minute(db: Database, server: ProtocolServer, make_settings: Any) -> None:
    server.answers(SENTIMENT, usage={"prompt_tokens": 3900, "completion_tokens": 0})
    async with await AI.open(make_settings("openai", tokens_per_minute=4000), db) as ai:
        await ai.complete(**ask("first"))
        with pytest.raises(Defer, match="rate limited") as held:
            await ai.complete(**ask("second"))
    assert 50 < held.value.seconds <= 60


async def test_the_process_breaker_opens_probes_and_closes(
    server: ProtocolServer, make_settings: Any
) -> None:
    settings = make_settings("openai")
    settings = settings.model_copy(
        update={"breaker": settings.breaker.model_copy(update={"failures": 3, "recovery": 0.2})}
    )
    server.fails(500)
    async with await AI.open(settings) as ai:
        with pytest.raises(Exhausted):
            await ai.complete(**ask())
        with pytest.raises(Defer) as held:
            await ai.complete(**ask())
        assert held.value.reason == "the circuit of openai is open"
        server.reset()
        server.answers(SENTIMENT)
        await asyncio.sleep(held.value.seconds)
        assert (await ai.complete(**ask())).provider == "openai"


# The rules themselves, on a clock that the test moves.


class Clock:
    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.now = NOON

    async def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        await self.one("SELECT set_config('shiftboss.now', %s, false)", [self.now.isoformat()])

    async def one(self, sql: str, params: list[Any]) -> dict[str, Any]:
        row = await (await self._conn.execute(sql, params)).fetchone()
        assert row is not None
        return row

    async def configure(
        self, *, rpm: int | None = None, tpm: int | None = None, budget: float | None = None
    ) -> None:
        await self.move(0)
        await self.one(
            "SELECT shiftboss.ai_configure('p', 'm', %s, %s, %s::numeric, 5, '30 s')", [rpm, tpm, budget]
        )

    async def admit(self, tokens: int = 10, cost: float = 0) -> dict[str, Any]:
        return await self.one(
            "SELECT * FROM shiftboss.ai_admit('p', 'm', 'completion', 't', NULL, %s, %s::numeric, '60 s')",
            [tokens, cost],
        )

    async def settle(self, call: dict[str, Any], word: str, cost: float = 0, retry_after: float = 0) -> None:
        error = None if word == "ok" else word
        await self.one(
            "SELECT shiftboss.ai_settle(%s, %s, 'm', 10, 0, %s::numeric, 5, %s, make_interval(secs => %s))",
            [call["call_id"], word, cost, error, retry_after],
        )

    async def circuit(self) -> str:
        return str(
            (await self.one("SELECT circuit FROM shiftboss.ai_providers WHERE provider = %s", ["p"]))[
                "circuit"
            ]
        )


@pytest.fixture
async def clock(db: Database) -> Any:
    async with db.dedicated() as conn:
        yield Clock(conn)


async def fail(clock: Clock, times: int) -> None:
    for _ in range(times):
        await clock.settle(await clock.admit(), "unavailable")


async def test_five_failures_in_a_row_open_the_circuit(clock: Clock) -> None:
    await clock.configure()
    await fail(clock, 4)
    await clock.settle(await clock.admit(), "ok")
    await fail(clock, 4)
    assert await clock.circuit() == "closed"
    await fail(clock, 1)
    held = await clock.admit()
    assert (held["call_id"], held["reason"], held["wait_seconds"]) == (None, "the circuit of p is open", 30)


async def test_one_probe_decides_over_an_open_circuit(clock: Clock) -> None:
    await clock.configure()
    await fail(clock, 5)
    await clock.move(30)
    probe = await clock.admit()
    assert await clock.circuit() == "half-open"
    assert (await clock.admit())["reason"] == "the circuit of p is open", "only one probe at a time"
    await clock.settle(probe, "unavailable")
    assert (await clock.admit())["wait_seconds"] == 30
    await clock.move(30)
    await clock.settle(await clock.admit(), "ok")
    assert await clock.circuit() == "closed"
    assert (await clock.admit())["reason"] is None


async def test_a_probe_whose_process_died_is_replaced(clock: Clock) -> None:
    await clock.configure()
    await fail(clock, 5)
    await clock.move(30)
    await clock.admit()
    await clock.move(61)
    assert (await clock.admit())["call_id"] is not None


async def test_a_late_success_does_not_close_an_open_circuit(clock: Clock) -> None:
    await clock.configure()
    early = await clock.admit()
    await fail(clock, 5)
    await clock.settle(early, "ok")
    assert await clock.circuit() == "open"


async def test_the_minute_slides(clock: Clock) -> None:
    await clock.configure(rpm=2)
    await clock.admit()
    await clock.move(40)
    await clock.admit()
    assert (await clock.admit())["wait_seconds"] == 20
    await clock.move(20)
    assert (await clock.admit())["call_id"] is not None
    assert (await clock.admit())["wait_seconds"] == 40


async def test_a_request_larger_than_the_token_limit_goes_alone(clock: Clock) -> None:
    await clock.configure(tpm=100)
    await clock.admit(tokens=60)
    assert (await clock.admit(tokens=500))["wait_seconds"] == 60
    await clock.move(60)
    assert (await clock.admit(tokens=500))["call_id"] is not None


async def test_the_budget_is_new_every_day(clock: Clock) -> None:
    await clock.configure(budget=1)
    await clock.settle(await clock.admit(cost=0.9), "ok", cost=0.95)
    held = await clock.admit(cost=0.1)
    assert held["reason"] == "the budget of provider p is spent until 00:00 UTC"
    assert held["wait_seconds"] == 12 * 3600
    await clock.move(12 * 3600)
    assert (await clock.admit(cost=0.1))["call_id"] is not None


async def test_retry_after_holds_everybody(clock: Clock) -> None:
    await clock.configure()
    await clock.settle(await clock.admit(), "limited", retry_after=17)
    assert (await clock.admit())["wait_seconds"] == 17
    assert await clock.circuit() == "closed"
    await clock.move(17)
    assert (await clock.admit())["call_id"] is not None


async def test_settling_twice_counts_once(clock: Clock) -> None:
    await clock.configure()
    call = await clock.admit()
    await clock.settle(call, "ok", cost=0.5)
    await clock.settle(call, "ok", cost=0.5)
    spend = await clock.one("SELECT calls, cost FROM shiftboss.ai_spend WHERE provider = %s", ["p"])
    assert (spend["calls"], float(spend["cost"])) == (1, 0.5)


async def test_an_unknown_provider_is_a_clear_error(db: Database) -> None:
    with pytest.raises(Exception, match='AI provider "nobody" is not configured'):
        await db.ai.admit_call(
            uuid.uuid4(), provider="nobody", model="m", kind="completion", task_type="t", tokens=1, cost=0,
            lease=1,
        )  # fmt: skip


async def test_an_idle_fleet_prunes_calls_and_their_texts(
    clock: Clock, db: Database, eventually: Any
) -> None:
    await clock.configure()
    await clock.settle(await clock.admit(), "ok")  # at noon, long ago
    await db.execute(
        "INSERT INTO shiftboss.ai_call_texts SELECT gen_random_uuid(), '{}', NULL, shiftboss.now() "
        "FROM generate_series(1, 2500)"
    )
    async with candidate(db, Settings()):
        await eventually(lambda: _is_empty(db, "ai_call_texts", "ai_calls"))


async def _is_empty(db: Database, *tables: str) -> bool:
    return not [row for name in tables for row in await db.fetch(f"SELECT FROM shiftboss.{name} LIMIT 1")]


async def test_a_wait_that_is_asked_for_outlasts_an_open_circuit(clock: Clock) -> None:
    await clock.configure()
    slow = await clock.admit()
    for _ in range(5):
        await clock.settle(await clock.admit(), "unavailable")
    await clock.settle(slow, "limited", retry_after=600)
    assert await clock.circuit() == "open"
    await clock.move(31)
    held = await clock.admit()
    assert (held["reason"], held["wait_seconds"]) == ("rate limited", 569)
