"""What the fleet shares about AI providers: breaker, limits, budget, spend and cached results."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from shiftboss.db.database import Database, Row


@dataclass(frozen=True, slots=True)
class Admission:
    """Either `call_id`, or the `reason` why not and how many seconds it will last."""

    call_id: int | None
    reason: str | None
    wait_seconds: float


class AIEngine:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def ai_configure(
        self, provider: str, *, model: str, requests_per_minute: int | None, tokens_per_minute: int | None,
        daily_budget: float | None, failure_limit: int, recovery: float,
    ) -> None:  # fmt: skip
        await self._db.execute(
            "SELECT shiftboss.ai_configure(%s, %s, %s, %s, %s::numeric, %s, %s)",
            [provider, model, requests_per_minute, tokens_per_minute, daily_budget, failure_limit,
             timedelta(seconds=recovery)],
        )  # fmt: skip

    async def ai_admit(
        self, provider: str, *, model: str, kind: str, task_type: str, task_id: UUID | None, tokens: int,
        cost: float, lease: float,
    ) -> Admission:  # fmt: skip
        row = await self._db.fetch_one(
            "SELECT * FROM shiftboss.ai_admit(%s, %s, %s, %s, %s, %s, %s::numeric, %s)",
            [provider, model, kind, task_type, task_id, tokens, cost, timedelta(seconds=lease)],
        )
        assert row is not None
        return Admission(row["call_id"], row["reason"], row["wait_seconds"] or 0.0)

    async def ai_settle(
        self, call_id: int, outcome: str, *, model: str | None, prompt_tokens: int, completion_tokens: int,
        cost: float, latency_ms: float, error: str | None, retry_after: float | None,
    ) -> None:  # fmt: skip
        hold = None if retry_after is None else timedelta(seconds=retry_after)
        await self._db.execute(
            "SELECT shiftboss.ai_settle(%s, %s, %s, %s, %s, %s::numeric, %s, %s, %s)",
            [call_id, outcome, model, prompt_tokens, completion_tokens, cost, latency_ms, error, hold],
        )

    async def ai_report(self, free: list[dict[str, Any]], cache: list[dict[str, Any]]) -> None:
        await self._db.execute("SELECT shiftboss.ai_report(%s, %s)", [Jsonb(free), Jsonb(cache)])

    async def ai_cache_take(
        self, key: str, task_type: str, owner: UUID, lease: float
    ) -> tuple[str, dict[str, Any] | None]:
        row = await self._db.fetch_one(
            "SELECT * FROM shiftboss.ai_cache_take(%s, %s, %s, %s)",
            [key, task_type, owner, timedelta(seconds=lease)],
        )
        assert row is not None
        return row["state"], row["value"]

    async def ai_cache_get(self, key: str) -> dict[str, Any] | None:
        row = await self._db.fetch_one("SELECT shiftboss.ai_cache_get(%s) AS value", [key])
        return row["value"] if row else None

    async def ai_cache_put(self, key: str, task_type: str, value: dict[str, Any], ttl: float) -> None:
        await self._db.execute(
            "SELECT shiftboss.ai_cache_put(%s, %s, %s, %s)", [key, task_type, value, timedelta(seconds=ttl)]
        )

    async def ai_cache_release(self, key: str, owner: UUID) -> None:
        await self._db.execute("SELECT shiftboss.ai_cache_release(%s, %s)", [key, owner])

    async def ai_prune(self) -> int:
        row = await self._db.fetch_one("SELECT shiftboss.ai_prune() AS gone")
        return int(row["gone"]) if row else 0

    async def ai_provider_status(self) -> list[Row]:
        return await self._db.fetch("SELECT * FROM shiftboss.ai_provider_status ORDER BY provider")

    async def ai_cache_status(self) -> list[Row]:
        return await self._db.fetch("SELECT * FROM shiftboss.ai_cache_status ORDER BY task_type")
