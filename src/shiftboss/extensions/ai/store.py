"""SQL functions of the AI engine: circuit breakers, limits, budgets, spend, calls and the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.types.json import Jsonb

from shiftboss.leader.election import Duty

if TYPE_CHECKING:
    from shiftboss.db.database import Database, Row
    from shiftboss.model.settings import Settings

PRUNE_SECONDS = 60.0
PRUNED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a call may be made; if not, the `reason` and the seconds to wait.

    They are None or infinity if waiting does not help.
    """

    admitted: bool
    reason: str = ""
    wait_seconds: float | None = 0.0


class AIEngine:
    def __init__(self, db: Database) -> None:
        self._db = db
        self.where: object = db
        """The backend that must store a step for its calls to be settled in the same transaction."""

    async def ai_configure(
        self, provider: str, *, model: str, requests_per_minute: int | None, tokens_per_minute: int | None,
        daily_budget: float | None, failure_limit: int, recovery: float,
    ) -> None:  # fmt: skip
        await self._db.execute(
            "SELECT shiftboss.ai_configure(%s, %s, %s, %s, %s::numeric, %s, %s)",
            [provider, model, requests_per_minute, tokens_per_minute, daily_budget, failure_limit,
             timedelta(seconds=recovery)],
        )  # fmt: skip

    async def admit_call(
        self, call_id: UUID, *, provider: str, model: str, kind: str, task_type: str, tokens: int,
        cost: float, lease: float, task_id: UUID | None = None, tenant: str | None = None,
        key: str | None = None, template: str | None = None, template_version: str | None = None,
    ) -> Admission:  # fmt: skip
        """Reserve the estimated cost of a call. Idempotent by `call_id`."""
        [row] = await self._db.fetch(
            "SELECT * FROM shiftboss.admit_call"
            "(%s, %s, %s, %s, %s, %s, %s::numeric, %s, %s, %s, %s, %s, %s)",
            [call_id, provider, model, kind, task_type, tokens, cost, timedelta(seconds=lease), task_id,
             tenant, key, template, template_version],
        )  # fmt: skip
        if row["call_id"] is not None:
            return Admission(True)
        return Admission(False, row["reason"], row["wait_seconds"])

    async def settle_call(
        self, call_id: UUID, outcome: str, *, prompt_tokens: int, completion_tokens: int, cost: float,
        model: str | None = None, latency_ms: float | None = None, error: str | None = None,
        retry_after: float | None = None, finish_reason: str | None = None, prompt: Any = None,
        answer: Any = None, keep_text: float | None = None,
    ) -> str:  # fmt: skip
        """Record the outcome and cost of a call; return `settled`, `already` or `unknown`. Idempotent."""
        return await self._db.value(
            str,
            "SELECT shiftboss.settle_call(%s, %s, %s, %s, %s::numeric, %s, %s, %s, %s, %s, %s, %s, %s)",
            [call_id, outcome, prompt_tokens, completion_tokens, cost, model, latency_ms, error,
             _span(retry_after), finish_reason, _json(prompt), _json(answer), _span(keep_text)],
        )  # fmt: skip

    async def record_calls(self, calls: Sequence[Mapping[str, Any]], keep_text: float) -> None:
        """Record calls that needed no admission: answers from the cache and from providers without limits."""
        await self._db.call("record_calls", Jsonb(calls), _span(keep_text))

    async def call(self, call_id: UUID) -> Row | None:
        """Return a call, with its prompt and answer if they were recorded."""
        return await self._db.fetch_one("SELECT * FROM shiftboss.ai_call_log WHERE call_id = %s", [call_id])

    async def calls(
        self, *, limit: int = 50, task_id: UUID | None = None, tenant: str | None = None,
        outcome: str | None = None,
    ) -> list[Row]:  # fmt: skip
        """Return the latest calls, newest first."""
        return await self._db.fetch(
            "SELECT * FROM shiftboss.ai_call_log WHERE (%(task_id)s::uuid IS NULL OR task_id = %(task_id)s) "
            "AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s) "
            "AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s) "
            "ORDER BY started_at DESC LIMIT %(limit)s",
            {"limit": limit, "task_id": task_id, "tenant": tenant, "outcome": outcome},
        )

    async def task_cost(self, task_id: UUID) -> Row:
        """Return `tasks`, `calls`, `tokens` and `cost` of a task and its children, recursively."""
        [row] = await self._db.fetch(
            "WITH RECURSIVE below (id) AS (SELECT %s::uuid UNION SELECT s.child_id FROM below b "
            "JOIN shiftboss.steps s ON s.task_id = b.id AND s.kind = 'child' WHERE s.child_id IS NOT NULL) "
            "SELECT count(DISTINCT b.id) AS tasks, count(c.id) AS calls, coalesce(sum(c.cost), 0) AS cost, "
            "coalesce(sum(c.prompt_tokens + c.completion_tokens), 0)::bigint AS tokens "
            "FROM below b LEFT JOIN shiftboss.ai_calls c ON c.task_id = b.id",
            [task_id],
        )
        return row

    async def set_ai_limit(
        self, scope: str, name: str, *, daily_budget: float | None = None,
        requests_per_minute: int | None = None, tokens_per_minute: int | None = None,
    ) -> None:  # fmt: skip
        """Set the limits of a `tenant`, `task_type` or `key`; without any, remove them."""
        await self._db.execute(
            "SELECT shiftboss.set_ai_limit(%s, %s, %s::numeric, %s, %s)",
            [scope, name, daily_budget, requests_per_minute, tokens_per_minute],
        )

    async def ai_limit_status(self) -> list[Row]:
        return await self._db.fetch("SELECT * FROM shiftboss.ai_limit_status ORDER BY scope, name")

    async def ai_report(self, free: list[dict[str, Any]], cache: list[dict[str, Any]]) -> None:
        await self._db.call("ai_report", Jsonb(free), Jsonb(cache))

    async def ai_cache_take(
        self, key: str, task_type: str, owner: UUID, lease: float
    ) -> tuple[str, dict[str, Any] | None]:
        [row] = await self._db.call_rows("ai_cache_take", key, task_type, owner, timedelta(seconds=lease))
        return row["state"], row["value"]

    async def ai_cache_get(self, key: str) -> dict[str, Any] | None:
        row = await self._db.fetch_one("SELECT shiftboss.ai_cache_get(%s) AS value", [key])
        return row["value"] if row else None

    async def ai_cache_put(self, key: str, task_type: str, value: dict[str, Any], ttl: float) -> None:
        await self._db.call("ai_cache_put", key, task_type, value, timedelta(seconds=ttl))

    async def ai_cache_release(self, key: str, owner: UUID) -> None:
        await self._db.call("ai_cache_release", key, owner)

    async def ai_cache_get_many(self, keys: Sequence[str]) -> dict[str, Any]:
        rows = await self._db.call_rows("ai_cache_get_many", list(keys))
        return {row["key"]: row["value"] for row in rows}

    async def ai_cache_put_many(self, values: Mapping[str, Any], task_type: str, ttl: float) -> None:
        await self._db.call("ai_cache_put_many", Jsonb(values), task_type, _span(ttl))

    async def ai_prune(self) -> int:
        """Delete old calls, texts and cached answers, up to 1000 of each, and return how many."""
        return await self._db.call_value(int, "ai_prune")

    async def prune_all(self) -> None:
        while await self.ai_prune() >= PRUNED_AT_ONCE:
            pass

    async def ai_provider_status(self) -> list[Row]:
        return await self._db.fetch("SELECT * FROM shiftboss.ai_provider_status ORDER BY provider")

    async def ai_totals(self) -> list[Row]:
        """Return the total calls, tokens and cost of each provider, with its circuit and budget."""
        return await self._db.fetch("SELECT * FROM shiftboss.ai_totals ORDER BY provider LIMIT 200")

    async def ai_cache_totals(self) -> tuple[int, int]:
        """Return the total cache hits and misses."""
        query = "SELECT sum(hits)::bigint AS hits, sum(misses)::bigint AS misses FROM shiftboss.ai_cache_use"
        row = await self._db.fetch_one(query) or {}
        return row.get("hits") or 0, row.get("misses") or 0

    async def ai_cache_status(self) -> list[Row]:
        return await self._db.fetch("SELECT * FROM shiftboss.ai_cache_status ORDER BY task_type")


def duties(db: Database, settings: Settings) -> list[Duty]:
    """Return the duty of the leader: retention, also in a fleet that makes no calls."""
    return [Duty("prune_ai", PRUNE_SECONDS, db.family(AIEngine).prune_all)]


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _json(value: Any) -> Jsonb | None:
    return None if value is None else Jsonb(value)
