"""Lets workers without a database admit and settle AI calls through their coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from shiftboss.extensions.ai.store import Admission, AIEngine
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database

#: What a worker may call. The cache is excluded, since other tenants read from it.
CALLS = ("ai_configure", "admit_call", "settle_call", "record_calls", "ai_report")


class Coordinator(Protocol):
    """A source of tasks that is connected to a coordinator."""

    async def ask(self, what: str, arguments: dict[str, Any]) -> Any: ...


class RemoteEngine(AIEngine):
    """The functions that an engine needs to make calls, executed by a coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.where: object = coordinator
        self._coordinator = coordinator

    async def _ask(self, call: str, **arguments: Any) -> Any:
        return await self._coordinator.ask("ai", {"call": call, **arguments})

    async def ai_configure(self, provider: str, **terms: Any) -> None:
        await self._ask("ai_configure", provider=provider, **terms)

    async def admit_call(self, call_id: UUID, **terms: Any) -> Admission:
        return Admission(**await self._ask("admit_call", call_id=call_id, **terms))

    async def settle_call(self, call_id: UUID, outcome: str, **terms: Any) -> str:
        return str(await self._ask("settle_call", call_id=call_id, outcome=outcome, **terms))

    async def record_calls(self, calls: Sequence[Mapping[str, Any]], keep_text: float) -> None:
        await self._ask("record_calls", calls=calls, keep_text=keep_text)

    async def ai_report(self, free: list[dict[str, Any]], cache: list[dict[str, Any]]) -> None:
        await self._ask("ai_report", free=free, cache=cache)


async def answer(db: Database, arguments: dict[str, Any]) -> Any:
    """Execute a call of a `RemoteEngine` in its coordinator."""
    engine, call = db.family(AIEngine), arguments.pop("call", None)
    if call not in CALLS:
        raise UsageError(f"the AI engine has no call {call!r}", hint=f"use one of {', '.join(CALLS)}")
    if call == "ai_configure" and await _known(engine, arguments.get("provider")):
        return None  # such a worker must not change the limits and budgets of the fleet
    value = await getattr(engine, call)(**arguments)
    if isinstance(value, Admission):
        return {"admitted": value.admitted, "reason": value.reason, "wait_seconds": value.wait_seconds}
    return value


async def _known(engine: AIEngine, provider: Any) -> bool:
    return any(row["provider"] == provider for row in await engine.ai_provider_status())
