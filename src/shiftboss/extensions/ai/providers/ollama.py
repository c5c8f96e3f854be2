"""Ollama, through its SDK."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any
from uuid import uuid4

import httpx
import ollama
import orjson

from shiftboss.extensions.ai.errors import Limited, Malformed, ProviderError, Refused, Unavailable, Unsuitable
from shiftboss.extensions.ai.protocol import (
    Capability,
    Chat,
    Embeddings,
    Latency,
    Message,
    Origin,
    Reply,
    ToolCall,
    counted,
    estimate_tokens,
)
from shiftboss.extensions.ai.providers.openai import DEFAULT_RETRY_AFTER, UNSENT, cost_of, matrix, retry_after
from shiftboss.extensions.ai.schemas import instructed, json_schema
from shiftboss.extensions.ai.settings import ProviderSettings

TROUBLE = (
    ollama.ResponseError, ollama.RequestError, httpx.HTTPError, ConnectionError, ValueError, TypeError,
    AttributeError,
)  # fmt: skip


class OllamaProvider:
    capabilities = frozenset({Capability.COMPLETION, Capability.EMBEDDING})

    def __init__(self, settings: ProviderSettings, key: str | None = None, name: str = "ollama") -> None:
        self.name = name
        self.model = settings.model
        self.embedding_model = settings.embedding_model
        self.cost = cost_of(settings)
        self.latency = Latency()
        self._window = settings.context_window
        self._retry_after = DEFAULT_RETRY_AFTER
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = ollama.AsyncClient(
            host=settings.base_url,
            timeout=settings.timeout,
            headers=headers,
            event_hooks={"response": [self._note_retry_after]},
        )

    async def _note_retry_after(self, response: httpx.Response) -> None:
        # The SDK's error keeps only the status, not the headers.
        if response.status_code == 429:
            self._retry_after = retry_after(response.headers)

    async def complete(self, chat: Chat) -> Reply:
        started = time.perf_counter()
        try:
            said = await self._client.chat(**self._question(chat))
            reply = self._reply(chat, said, said.message.content or "", _calls(said))
            self.latency.observe(time.perf_counter() - started)
            return reply
        except TROUBLE as error:
            trouble = self._translate(error)
        raise trouble

    async def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        text, last = "", None
        calls: tuple[ToolCall, ...] = ()
        try:
            async for last in await self._client.chat(**self._question(chat), stream=True):
                piece = last.message.content or ""
                calls = (*calls, *_calls(last))
                text += piece
                if piece:
                    yield piece
            if last is None:
                raise Malformed(self.name, "the stream is empty", "")
            yield self._reply(chat, last, text, calls)
            return
        except TROUBLE as error:
            trouble = self._translate(error)
            if text:
                trouble.usage = self.cost.of(chat.prompt_tokens, estimate_tokens(text))
        raise trouble

    def _question(self, chat: Chat) -> Any:
        """Return the arguments for the SDK."""
        temperature = 0 if chat.temperature is None and chat.schema is not None else chat.temperature
        # Without num_ctx, Ollama silently truncates long prompts.
        options = {"temperature": temperature, "num_predict": chat.max_tokens, "num_ctx": self._window}
        return {
            "model": self.model,
            "messages": [_message(message) for message in instructed(chat)],
            "format": json_schema(chat.schema) if chat.schema is not None else None,
            "tools": [tool.document for tool in chat.tools] or None,
            "options": {name: value for name, value in options.items() if value is not None},
        }

    def _reply(self, chat: Chat, said: Any, text: str, calls: tuple[ToolCall, ...]) -> Reply:
        usage = self.cost.of(
            counted(said.prompt_eval_count, chat.prompt_tokens),
            counted(said.eval_count, estimate_tokens(text)),
        )
        return Reply(text, said.model or self.model, usage, self.name, said.done_reason or "stop", calls)

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        name = model or self.embedding_model
        started = time.perf_counter()
        try:
            made = await self._client.embed(model=name, input=list(texts), dimensions=dimensions)
            vectors = matrix(made.embeddings)
            tokens = counted(made.prompt_eval_count, sum(map(estimate_tokens, texts)))
            self.latency.observe(time.perf_counter() - started)
            return Embeddings(vectors, self.name, name, self.cost.of_embedding(tokens))
        except TROUBLE as error:
            trouble = self._translate(error, name)
        raise trouble

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    def _translate(self, error: Exception, model: str | None = None) -> ProviderError:
        model = model or self.model
        match error:
            case ollama.ResponseError(status_code=429):
                return Limited(self.name, self._retry_after)
            case ollama.ResponseError(status_code=401 | 403):
                return Refused(self.name, f"key refused ({error.status_code})", hint="check the key")
            case ollama.ResponseError(status_code=404):
                return Refused(self.name, f"no model {model!r} (404)", hint=f"run `ollama pull {model}`")
            case ollama.ResponseError() if error.status_code < 0 or error.status_code >= 500:
                return Unavailable(self.name, f"server error ({error.status_code})")
            case ollama.ResponseError():
                return Unsuitable(
                    self.name, f"request rejected ({error.status_code})", detail=str(error.error)
                )
            case httpx.TimeoutException():
                return Unavailable(self.name, "timed out", billed=not isinstance(error, UNSENT))
            case httpx.HTTPError() | ConnectionError():
                # The SDK raises ConnectionError if httpx cannot connect.
                billed = not isinstance(error, (*UNSENT, ConnectionError))
                return Unavailable(self.name, "connection failed", detail=str(error), billed=billed)
            case _:
                return Malformed(self.name, f"unreadable answer: {error}", "")


def _calls(said: Any) -> tuple[ToolCall, ...]:
    """Return the tool calls, with generated ids, since Ollama has none."""
    return tuple(
        ToolCall(f"call_{uuid4().hex[:12]}", call.function.name, dict(call.function.arguments or {}))
        for call in said.message.tool_calls or ()
    )


def _message(message: Message) -> Message:
    """Convert a message from OpenAI's format: Ollama takes arguments as an object, and no call ids."""
    calls = message.get("tool_calls")
    if not calls:
        return {name: value for name, value in message.items() if name != "tool_call_id"}
    functions = [call["function"] for call in calls]
    plain = [
        {"function": {"name": each["name"], "arguments": orjson.loads(each["arguments"] or "{}")}}
        for each in functions
    ]
    return message | {"tool_calls": plain}
