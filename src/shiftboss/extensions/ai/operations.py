"""Operations on the limits of the AI engine."""

from __future__ import annotations

from typing import Literal

from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.access import Principal, Role
from shiftboss.operations import Audited

Scope = Literal["tenant", "task_type", "key"]


class AIOperations(Audited):
    """Sets the limits of tenants, task types and keys."""

    async def set_ai_limit(
        self, who: Principal, scope: Scope, name: str, *, daily_budget: float | None = None,
        requests_per_minute: int | None = None, tokens_per_minute: int | None = None,
    ) -> None:  # fmt: skip
        """Set the limits of a tenant, task type or key; without any, remove them."""
        figures = {
            "daily_budget": daily_budget,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        async with self._recorded(who, Role.OPERATOR, "ai.limit", f"{scope} {name}", **figures):
            await self._db.family(AIEngine).set_ai_limit(
                scope,
                name,
                daily_budget=daily_budget,
                requests_per_minute=requests_per_minute,
                tokens_per_minute=tokens_per_minute,
            )
