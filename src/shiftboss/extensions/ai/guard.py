"""Wraps a provider with admission, deadlines, retries, validation and accounting."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

from shiftboss.extensions.ai import spans
from shiftboss.extensions.ai.admission import Admissions, Call, Outcome, Ticket
from shiftboss.extensions.ai.errors import (
    Declined,
    Held,
    Malformed,
    ProviderError,
    Refused,
    TimedOut,
    TooLong,
    Truncated,
    Unavailable,
)
from shiftboss.extensions.ai.protocol import (
    Chat,
    Embeddings,
    Origin,
    Provider,
    Reply,
    estimate_tokens,
)
from shiftboss.extensions.ai.records import Recorder
from shiftboss.extensions.ai.schemas import corrected, validated
from shiftboss.extensions.ai.settings import RetrySettings

AnswerT = TypeVar("AnswerT", Reply, Embeddings)
EMBEDDING = "embedding_generation"
EXPECTED_ANSWER = 400  # tokens, if the caller gives no max_tokens
OUTCOMES: tuple[tuple[type[ProviderError], str], ...] = (
    (TimedOut, "cancelled"), (Unavailable, "unavailable"), (Refused, "refused"), (Held, "limited"),
    (Malformed, "malformed"), (Declined, "declined"), (Truncated, "truncated"), (ProviderError, "unsuitable"),
)  # fmt: skip


class Guarded:
    """A provider whose calls are admitted, retried and recorded, and whose replies are validated."""

    def __init__(
        self,
        provider: Provider,
        admission: Admissions,
        retry: RetrySettings,
        timeout: float,
        recorder: Recorder,
        context_window: int | None = None,
    ) -> None:
        self._provider = provider
        self.name, self.model, self.embedding_model = provider.name, provider.model, provider.embedding_model
        self.capabilities, self.cost, self.latency = provider.capabilities, provider.cost, provider.latency
        self._admission = admission
        self._retry = retry
        self._timeout = timeout
        self._recorder = recorder
        self.context_window = context_window

    async def complete(self, chat: Chat) -> Reply:
        """Return the reply; if it does not satisfy the schema, ask the model once to correct it."""
        self._require_room(chat)
        try:
            return await self._complete(chat)
        except Malformed as error:
            if chat.corrected or chat.schema is None:
                raise
            bad = error
        again = await self._complete(corrected(chat, bad))
        return replace(again, usage=again.usage + bad.usage if bad.usage else again.usage)

    async def _complete(self, chat: Chat) -> Reply:
        async def ask() -> Reply:
            try:
                return validated(chat, await self._provider.complete(chat))
            except ProviderError as error:
                error.conceal(chat.own_text)
                raise

        prompt = self._recorder.prompt(chat)
        return await self._try(lambda: self._call(chat), ask, prompt)

    async def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        """Yield the reply in pieces. Only failures before the first piece are retried."""
        self._require_room(chat)
        for attempt in range(self._retry.attempts):
            begun = False
            try:
                async with aclosing(self._stream_once(chat)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except Unavailable:
                if begun or attempt + 1 == self._retry.attempts:
                    raise
            await self._pause(attempt)

    async def _stream_once(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        ticket = await self._admission.admit(self._call(chat))
        prompt, started, text = self._recorder.prompt(chat), time.perf_counter(), ""
        outcome: Outcome | None = None
        try:
            async with aclosing(self._pieces(chat)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        piece = replace(validated(chat, piece), call_id=ticket.call.id)
                        outcome = self._success(piece, started, prompt)
                    else:
                        text += piece
                    yield piece
        except ProviderError as error:
            error.conceal(chat.own_text)
            outcome = self._failure(ticket.call, error, started, prompt)
            raise
        finally:
            if outcome is None:  # the caller stopped reading; the provider bills the text so far
                usage = self.cost.of(ticket.call.estimate.prompt_tokens, estimate_tokens(text))
                outcome = Outcome("cancelled", time.perf_counter() - started, usage, prompt=prompt)
            await self._settle(ticket, outcome)

    async def _pieces(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        """Yield the provider's pieces under one deadline for the whole stream."""
        seconds = chat.timeout or self._timeout
        ends = asyncio.get_running_loop().time() + seconds
        async with aclosing(self._provider.stream(chat)) as pieces:
            while True:
                try:
                    async with asyncio.timeout_at(ends):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    break
                yield piece
        raise self._overdue(seconds)

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        estimate = self.cost.of_embedding(sum(map(estimate_tokens, texts)))
        whose = origin or Origin(EMBEDDING)

        async def ask() -> Embeddings:
            try:
                made = await self._provider.embed(texts, model, None, dimensions)
                if len(made) != len(texts):
                    raise Malformed(self.name, f"{len(made)} vectors for {len(texts)} texts", "", made.usage)
            except ProviderError as error:
                error.conceal("\n".join(texts))
                if isinstance(error, Malformed):
                    error.of_request = False  # an unreadable response is the fault of the server or a proxy
                raise
            return made

        name = model or self.embedding_model
        return await self._try(lambda: Call(name, "embedding", whose, estimate, self._timeout), ask, None)

    async def close(self) -> None:
        await self._provider.close()

    def _overdue(self, seconds: float) -> Unavailable:
        kind = TimedOut if seconds < self._timeout else Unavailable
        return kind(self.name, f"timed out after {seconds:g} s", billed=True)

    def _require_room(self, chat: Chat) -> None:
        window = self.context_window
        need = chat.prompt_tokens + (chat.max_tokens or 0)
        if window is not None and need > window:
            raise TooLong(self.name, f"about {need} tokens exceed the context window of {window}")

    def _call(self, chat: Chat) -> Call:
        estimate = self.cost.of(chat.prompt_tokens, chat.max_tokens or EXPECTED_ANSWER)
        return Call(self.model, "completion", chat.origin, estimate, chat.timeout or self._timeout)

    async def _try(
        self, call: Callable[[], Call], ask: Callable[[], Awaitable[AnswerT]], prompt: Any
    ) -> AnswerT:
        for attempt in range(self._retry.attempts):
            try:
                return await self._once(call(), ask, prompt)
            except Unavailable:
                if attempt + 1 == self._retry.attempts:
                    raise
            await self._pause(attempt)
        raise AssertionError("at least one attempt is made")

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(self._retry.base * 2**attempt + random.random() * self._retry.jitter)

    async def _once(self, call: Call, ask: Callable[[], Awaitable[AnswerT]], prompt: Any) -> AnswerT:
        ticket = await self._admission.admit(call)
        started = time.perf_counter()
        trouble: ProviderError
        try:
            # The SDK's timeout applies to each read: a server that sends a byte a second never exceeds it.
            async with asyncio.timeout(call.timeout):
                answer = await ask()
        except TimeoutError:
            trouble = self._overdue(call.timeout)
        except ProviderError as error:
            trouble = error
        except BaseException:
            cancelled = Outcome("cancelled", time.perf_counter() - started, call.estimate, prompt=prompt)
            await self._settle(ticket, cancelled)
            raise
        else:
            await self._settle(ticket, self._success(answer, started, prompt))
            return replace(answer, call_id=call.id) if isinstance(answer, Reply) else answer
        await self._settle(ticket, self._failure(call, trouble, started, prompt))
        raise trouble

    async def _settle(self, ticket: Ticket, outcome: Outcome) -> None:
        call = ticket.call
        spans.called(
            "embeddings" if call.kind == "embedding" else "chat",
            call.model,
            self.name,
            outcome.seconds,
            {
                "gen_ai.response.model": outcome.model,
                "gen_ai.response.finish_reasons": outcome.finish_reason and [outcome.finish_reason],
                "gen_ai.usage.input_tokens": outcome.usage.prompt_tokens,
                "gen_ai.usage.output_tokens": outcome.usage.completion_tokens,
            },
            None if outcome.status == "ok" else outcome.status,
        )
        # Record the cost even if the task is being cancelled.
        await asyncio.shield(self._admission.settle(ticket, outcome))

    def _success(self, answer: Reply | Embeddings, started: float, prompt: Any) -> Outcome:
        seconds = time.perf_counter() - started
        if not isinstance(answer, Reply):
            return Outcome("ok", seconds, answer.usage, answer.model)
        kept = None if prompt is None else self._recorder.answer(answer)
        return Outcome(
            "ok", seconds, answer.usage, answer.model, finish_reason=answer.finish_reason, prompt=prompt,
            answer=kept,
        )  # fmt: skip

    def _failure(self, call: Call, error: ProviderError, started: float, prompt: Any) -> Outcome:
        status = next(status for kind, status in OUTCOMES if isinstance(error, kind))
        said = error.answer if isinstance(error, Malformed) else ""
        return Outcome(
            status, time.perf_counter() - started, call.estimate if error.usage is None else error.usage,
            error=self._recorder.masked(str(error)), prompt=prompt,
            retry_after=error.seconds if isinstance(error, Held) else None,
            answer=self._recorder.answer(Reply(said, call.model)) if said and prompt is not None else None,
        )  # fmt: skip
