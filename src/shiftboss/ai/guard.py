"""A provider with its guard: admitted by the gate, under a deadline, retried, validated, accounted for."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from shiftboss.ai.errors import Held, Malformed, ProviderError, Refused, Unavailable
from shiftboss.ai.gate import Call, Gate, Outcome, Ticket
from shiftboss.ai.protocol import (
    Capability,
    Correction,
    Cost,
    Embeddings,
    Latency,
    Provider,
    Reply,
    Request,
    Usage,
    estimate_tokens,
)
from shiftboss.model.settings_ai import RetrySettings

AnswerT = TypeVar("AnswerT", Reply, Embeddings)
PROMPT_OVERHEAD = 600  # tokens: the system prompt and the schema
EXPECTED_ANSWER = 400  # tokens
ERROR_LENGTH = 500


class Guarded:
    """Itself a provider; `Reply.payload` is validated, a model of the request's schema as plain data."""

    def __init__(self, provider: Provider, gate: Gate, retry: RetrySettings, timeout: float) -> None:
        self._provider = provider
        self._gate = gate
        self._retry = retry
        self._timeout = timeout

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def model(self) -> str:
        return self._provider.model

    @property
    def embedding_model(self) -> str:
        return self._provider.embedding_model

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._provider.capabilities

    @property
    def cost(self) -> Cost:
        return self._provider.cost

    @property
    def latency(self) -> Latency:
        return self._provider.latency

    async def complete(self, request: Request[Any], correction: Correction | None = None) -> Reply:
        """A malformed answer is asked for once more, with the error shown to the model."""
        try:
            return await self._complete(request, correction)
        except Malformed as bad:
            if correction is not None:
                raise
            again = await self._complete(request, Correction(bad.answer, bad.error))
            return replace(again, usage=again.usage + bad.usage)

    async def _complete(self, request: Request[Any], correction: Correction | None) -> Reply:
        prompt_tokens = estimate_tokens(request.content) + PROMPT_OVERHEAD
        estimate = self.cost.of(prompt_tokens, EXPECTED_ANSWER)
        call = Call(self.model, "completion", request.task_type, request.task_id, estimate)

        async def ask() -> Reply:
            return validated(request, await self._provider.complete(request, correction))

        return await self._try(call, ask)

    async def embed(self, texts: Sequence[str], model: str | None = None) -> Embeddings:
        estimate = self.cost.of_embedding(sum(map(estimate_tokens, texts)))
        call = Call(model or self.embedding_model, "embedding", "embedding_generation", None, estimate)

        async def ask() -> Embeddings:
            made = await self._provider.embed(texts, model)
            if len(made) != len(texts):
                raise Malformed(self.name, f"{len(made)} vectors for {len(texts)} texts", "", made.usage)
            return made

        return await self._try(call, ask)

    async def close(self) -> None:
        await self._provider.close()

    async def _try(self, call: Call, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        for attempt in range(self._retry.attempts):
            try:
                return await self._once(call, ask)
            except Unavailable:
                if attempt + 1 == self._retry.attempts:
                    raise
                await asyncio.sleep(self._retry.base * 2**attempt + random.random() * self._retry.jitter)
        raise AssertionError("at least one attempt is made")

    async def _once(self, call: Call, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
        ticket = await self._gate.admit(call)
        started = time.perf_counter()
        try:
            # The SDK's timeout is per read: a server that drips one byte a second would never meet it.
            async with asyncio.timeout(self._timeout):
                answer = await ask()
        except TimeoutError as error:
            late = Unavailable(self.name, f"timed out after {self._timeout:g} s")
            await self._settle(ticket, failure(late, started))
            raise late from error
        except ProviderError as error:
            await self._settle(ticket, failure(error, started))
            raise
        except BaseException:
            await self._settle(ticket, Outcome("cancelled", time.perf_counter() - started, call.estimate))
            raise
        seconds = time.perf_counter() - started
        await self._settle(ticket, Outcome("ok", seconds, answer.usage, answer.model))
        return answer

    async def _settle(self, ticket: Ticket, outcome: Outcome) -> None:
        # What was spent is written down even if the task that spent it is being cancelled.
        await asyncio.shield(self._gate.settle(ticket, outcome))


def failure(error: ProviderError, started: float) -> Outcome:
    usage = error.usage if isinstance(error, Malformed) else Usage()
    return Outcome(
        _word(error),
        time.perf_counter() - started,
        usage,
        error=str(error)[:ERROR_LENGTH],
        retry_after=error.seconds if isinstance(error, Held) else None,
    )


def _word(error: ProviderError) -> str:
    match error:
        case Unavailable():
            return "unavailable"
        case Refused():
            return "refused"
        case Held():
            return "limited"
        case Malformed():
            return "malformed"
        case _:
            return "unsuitable"


def validated(request: Request[Any], reply: Reply) -> Reply:
    """The reply with its payload brought into the schema's shape."""
    try:
        if isinstance(reply.payload, str):
            value = request.schema.model_validate_json(bare_json(reply.payload))
        else:
            value = request.schema.model_validate(reply.payload)
    except ValidationError as error:
        told = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}" for e in error.errors()[:5]
        )
        raise Malformed(reply.provider, told, str(reply.payload), reply.usage) from error
    return replace(reply, payload=_storable(orjson.loads(value.model_dump_json())))


def _storable(value: Any) -> Any:
    """The same JSON without NUL, which PostgreSQL keeps nowhere: not in the cache, not in a result."""
    match value:
        case str():
            return value.replace("\x00", "")
        case list():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value


def bare_json(text: str) -> str:
    """The object in a text: models like to wrap it in a code fence or a sentence."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text
