"""Admits calls to a provider by circuit breaker, limits and budgets, for the fleet or this process alone."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol
from uuid import UUID, uuid4

from shiftboss.extensions.ai.errors import Held, TooCostly, Unadmitted
from shiftboss.extensions.ai.protocol import Origin, Usage
from shiftboss.extensions.ai.secrets import redact
from shiftboss.extensions.ai.settings import BreakerSettings, ProviderSettings
from shiftboss.extensions.ai.settler import Settler
from shiftboss.extensions.ai.store import Admission, AIEngine
from shiftboss.extensions.ai.usage import UsageBuffer
from shiftboss.log import get_logger
from shiftboss.model.errors import DatabaseError
from shiftboss.model.task import storable

log = get_logger(__name__)
MINUTE = 60.0
DAY = 86_400.0
GRACE = 30.0  # seconds that a reservation outlives the deadline of its call
ADMISSION_TIMEOUT = 10.0  # seconds that a call waits for the database before its task is deferred
UNAVAILABLE_SECONDS = 5.0  # for which the task is then deferred
ALIVE = ("ok", "malformed", "limited", "declined", "truncated")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has not been made yet, with its estimated tokens and cost."""

    model: str
    kind: str
    origin: Origin
    estimate: Usage
    timeout: float
    id: UUID = field(default_factory=uuid4)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call.

    `status` is ok, malformed, declined, truncated, unavailable, refused, limited, unsuitable or cancelled.
    `prompt` and `answer` are set if they must be recorded.
    """

    status: str
    seconds: float
    usage: Usage = field(default_factory=Usage)
    model: str | None = None
    error: str | None = None
    retry_after: float | None = None
    finish_reason: str | None = None
    prompt: Any = None
    answer: Any = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to make a call."""

    call: Call
    probe: bool = False


class Admissions(Protocol):
    async def admit(self, call: Call) -> Ticket:
        """Return a ticket, or raise `Held` with the reason and the seconds to wait."""
        ...

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None: ...


class OpenAdmissions:
    """Admits every call and counts it, for a provider without key, cost or limits."""

    def __init__(self, provider: str, usage_buffer: UsageBuffer) -> None:
        self._provider = provider
        self._usage_buffer = usage_buffer

    async def admit(self, call: Call) -> Ticket:
        return Ticket(call)

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None:
        self._usage_buffer.called(self._provider, outcome.usage.tokens, outcome.seconds, outcome.error)
        self._usage_buffer.record(record_of(self._provider, ticket.call, outcome))


class ProcessAdmissions:
    """Keeps breaker, limits and budget in memory, for use without a database."""

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
        return Ticket(call, self._probing)

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None:
        now = time.time()
        self._spent = (int(now // DAY), self._spent_by(now) + outcome.usage.cost)
        self._reserved -= ticket.call.estimate.cost
        if ticket.probe:
            self._probing = False
        if outcome.status in ("unavailable", "refused"):
            self._failures += 1
            if ticket.probe or self._failures >= self._breaker.failures:
                self._opened_at = now
        elif outcome.status in ALIVE and (ticket.probe or self._opened_at is None):
            self._failures, self._opened_at = 0, None
        if outcome.retry_after is not None:
            self._held_until = max(self._held_until, now + outcome.retry_after)

    def _refuse(self, reason: str, seconds: float) -> None:
        if seconds > 0:
            raise Held(self._provider, reason, seconds)

    def _refuse_while_open(self, now: float) -> None:
        if self._opened_at is not None:
            reason = f"the circuit of {self._provider} is open"
            self._refuse(reason, self._opened_at + self._breaker.recovery - now)
            self._refuse(reason, 1.0 if self._probing else 0.0)

    def _refuse_over_budget(self, now: float, cost: float) -> None:
        budget = self._settings.daily_budget
        if budget and cost > budget:
            whose = f"provider {self._provider}, ${budget:g}"
            raise TooCostly(
                self._provider, f"a call of about ${cost:.4f} exceeds the daily budget of {whose}"
            )
        if budget is not None and self._spent_by(now) + self._reserved + cost > budget:
            reason = f"the budget of provider {self._provider} is spent until 00:00 UTC"
            self._refuse(reason, DAY - now % DAY)

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


class FleetAdmissions:
    """Keeps breaker, limits, budgets and spend in the database.

    While the database is unavailable, no provider is called: the call waits, and then its task is deferred.
    """

    def __init__(self, provider: str, shared: AIEngine, settler: Settler, keep_text: float) -> None:
        self._provider = provider
        self._shared = shared
        self._settler = settler
        self._keep_text = keep_text

    async def admit(self, call: Call) -> Ticket:
        admission = await self._ask(call)
        if not admission.admitted:
            # A coordinator sends infinity as null.
            if admission.wait_seconds is None or math.isinf(admission.wait_seconds):
                raise TooCostly(self._provider, admission.reason)
            raise Held(self._provider, admission.reason, admission.wait_seconds)
        return Ticket(call)

    async def _ask(self, call: Call) -> Admission:
        started, pause = time.monotonic(), 0.1
        while True:
            try:
                await self._settler.catch_up(ADMISSION_TIMEOUT)
                return await self._admit(call)
            except DatabaseError as error:
                message = redact(str(error))
                if error.refused or time.monotonic() - started > ADMISSION_TIMEOUT:
                    log.warning("AI call not admitted", provider=self._provider, error=message)
                    trouble = Unadmitted(
                        self._provider, f"the database does not answer: {message}", UNAVAILABLE_SECONDS
                    )
                    break
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)
        raise trouble

    async def _admit(self, call: Call) -> Admission:
        return await self._shared.admit_call(
            call.id, provider=self._provider, model=call.model, kind=call.kind, lease=call.timeout + GRACE,
            tokens=call.estimate.tokens, cost=call.estimate.cost, **asdict(call.origin),
        )  # fmt: skip

    async def settle(self, ticket: Ticket, outcome: Outcome) -> None:
        await self._settler.settle(
            ticket.call.id, reserved=ticket.call.estimate.cost, outcome=outcome.status,
            model=outcome.model and storable(outcome.model),
            prompt_tokens=outcome.usage.prompt_tokens, completion_tokens=outcome.usage.completion_tokens,
            cost=outcome.usage.cost, latency_ms=outcome.seconds * 1000, error=outcome.error,
            retry_after=outcome.retry_after, finish_reason=outcome.finish_reason, prompt=outcome.prompt,
            answer=outcome.answer, keep_text=self._keep_text,
        )  # fmt: skip


def record_of(provider: str, call: Call, outcome: Outcome) -> dict[str, Any]:
    """Return the entry of `record_calls` for a call that needed no admission."""
    task = call.origin.task_id
    return asdict(call.origin) | {
        "call_id": str(call.id), "provider": provider, "model": outcome.model or call.model,
        "kind": call.kind, "task_id": task and str(task), "outcome": outcome.status,
        "prompt_tokens": outcome.usage.prompt_tokens, "completion_tokens": outcome.usage.completion_tokens,
        "latency_ms": outcome.seconds * 1000, "error": outcome.error, "finish_reason": outcome.finish_reason,
        "prompt": outcome.prompt, "answer": outcome.answer,
    }  # fmt: skip
