"""May this provider be asked now? Breaker, limits and budget, for the whole fleet or this process alone."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import structlog

from shiftboss.ai.errors import Held
from shiftboss.ai.protocol import Usage
from shiftboss.ai.tally import Tally
from shiftboss.db.ai import AIEngine
from shiftboss.model.errors import DatabaseError, DatabaseUnavailable
from shiftboss.model.settings_ai import BreakerSettings, ProviderSettings
from shiftboss.model.task import storable

log = structlog.get_logger()
MINUTE = 60.0
DAY = 86_400.0
MOST_UNSETTLED = 1000


@dataclass(frozen=True, slots=True)
class Call:
    """What is about to be asked, with tokens and cost as far as they can be guessed beforehand."""

    model: str
    kind: str
    task_type: str
    task_id: UUID | None
    estimate: Usage


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call: ok, malformed, unavailable, refused, limited, unsuitable or cancelled."""

    word: str
    seconds: float
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    error: str | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """A permission to call; `id` is None where only this process knows of it, and of the money set aside."""

    id: int | None
    probe: bool = False
    reserved: float = 0.0


class Gate(Protocol):
    async def admit(self, call: Call) -> Ticket:
        """A ticket, or `Held` with the reason and how long it lasts."""
        ...

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None: ...


class OpenGate:
    """For a provider without key, cost or limit: everything may pass, and is counted."""

    def __init__(self, provider: str, tally: Tally) -> None:
        self._provider = provider
        self._tally = tally

    async def admit(self, call: Call) -> Ticket:
        return Ticket(None)

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None:
        self._tally.called(self._provider, outcome.usage.tokens, outcome.seconds, outcome.error)


class ProcessGate:
    """The same rules as the fleet's, kept in memory: for use without a database, or while it is away."""

    def __init__(self, provider: str, settings: ProviderSettings, breaker: BreakerSettings) -> None:
        self._provider = provider
        self._settings = settings
        self._breaker = breaker
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False
        self._held_until = 0.0
        self._recent: deque[tuple[float, int]] = deque()
        self._spent = (0, 0.0)
        self._reserved = 0.0

    async def admit(self, call: Call) -> Ticket:
        now = time.time()
        self._refuse_while_open(now)
        self._refuse("rate limited", self._held_until - now)
        self._refuse_over_budget(now, call.estimate.cost)
        self._refuse("rate limited", self._window_wait(now, call.estimate.tokens))
        self._recent.append((now, call.estimate.tokens))
        self._probing = self._opened_at is not None
        self._reserved += call.estimate.cost
        return Ticket(None, self._probing, call.estimate.cost)

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None:
        now = time.time()
        self._spent = (int(now // DAY), self._spent_by(now) + outcome.usage.cost)
        self._reserved -= ticket.reserved
        if ticket.probe:
            self._probing = False
        if outcome.word in ("unavailable", "refused"):
            self._failures += 1
            if ticket.probe or self._failures >= self._breaker.failures:
                self._opened_at = now
        elif outcome.word in ("ok", "malformed", "limited") and (ticket.probe or self._opened_at is None):
            self._failures, self._opened_at = 0, None
        if outcome.retry_after is not None:
            self._held_until = max(self._held_until, now + outcome.retry_after)

    def _refuse(self, reason: str, seconds: float) -> None:
        if seconds > 0:
            raise Held(self._provider, reason, seconds)

    def _refuse_while_open(self, now: float) -> None:
        if self._opened_at is not None:
            self._refuse("provider open", self._opened_at + self._breaker.recovery - now)
            self._refuse("provider open", 1.0 if self._probing else 0.0)

    def _refuse_over_budget(self, now: float, cost: float) -> None:
        budget = self._settings.daily_budget
        if budget is not None and self._spent_by(now) + self._reserved + cost > budget:
            self._refuse("budget spent", DAY - now % DAY)

    def _spent_by(self, now: float) -> float:
        day, spent = self._spent
        return spent if day == int(now // DAY) else 0.0

    def _window_wait(self, now: float, need: int) -> float:
        while self._recent and self._recent[0][0] <= now - MINUTE:
            self._recent.popleft()
        requests, tokens = self._settings.requests_per_minute, self._settings.tokens_per_minute
        if requests is None and tokens is None:
            return 0.0
        counted = used = 0
        for at, size in reversed(self._recent):
            counted, used = counted + 1, used + size
            if (requests and counted >= requests) or (tokens and used + need > tokens):
                return at + MINUTE - now
        return 0.0


class FleetGate:
    """Breaker, limits, budget and spend in the database; while that is away, this process's own."""

    def __init__(self, provider: str, shared: AIEngine, alone: ProcessGate, lease: float) -> None:
        self._provider = provider
        self._shared = shared
        self._alone = alone
        self._lease = lease
        self._unsettled: deque[tuple[int, Outcome]] = deque(maxlen=MOST_UNSETTLED)

    async def admit(self, call: Call) -> Ticket:
        try:
            await self._settle_late()
            admission = await self._shared.ai_admit(
                self._provider, model=call.model, kind=call.kind, task_type=call.task_type,
                task_id=call.task_id, tokens=call.estimate.tokens, cost=call.estimate.cost, lease=self._lease,
            )  # fmt: skip
        except DatabaseError as error:
            log.warning("AI limits are kept by this process alone", provider=self._provider, error=str(error))
            return await self._alone.admit(call)
        if admission.call_id is None:
            raise Held(self._provider, admission.reason or "held", admission.wait_seconds)
        return Ticket(admission.call_id)

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None:
        if ticket.id is None:
            return await self._alone.settle(ticket, outcome)
        self._unsettled.append((ticket.id, outcome))
        try:
            await self._settle_late()
        except DatabaseError as error:
            log.warning("AI spend is written later", provider=self._provider, error=str(error))

    async def _settle_late(self) -> None:
        """What could not be written while the database was away; settling twice is harmless."""
        while self._unsettled:
            call_id, outcome = self._unsettled[0]
            try:
                await self._write(call_id, outcome)
            except DatabaseError as error:
                if _may_pass(error):
                    raise
                # Kept, it would stand before all that follow, and nothing would be settled any more.
                log.error("AI spend is left out", provider=self._provider, call=call_id, error=str(error))
            if self._unsettled and self._unsettled[0][0] == call_id:
                self._unsettled.popleft()

    async def _write(self, call_id: int, outcome: Outcome) -> None:
        await self._shared.ai_settle(
            call_id, outcome.word, model=outcome.model and storable(outcome.model),
            prompt_tokens=outcome.usage.prompt_tokens, completion_tokens=outcome.usage.completion_tokens,
            cost=outcome.usage.cost, latency_ms=outcome.seconds * 1000, error=outcome.error,
            retry_after=outcome.retry_after,
        )  # fmt: skip


def _may_pass(error: DatabaseError) -> bool:
    """Without a state it is the driver that can not send the values, which it never will."""
    return isinstance(error, DatabaseUnavailable) or (error.sqlstate is not None and not error.refused)
