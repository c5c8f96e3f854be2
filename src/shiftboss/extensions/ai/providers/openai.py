"""OpenAI and servers with its protocol, through OpenAI's SDK."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import numpy as np
import openai
import orjson
from openai import AsyncOpenAI

from shiftboss.extensions.ai.errors import (
    Declined,
    Held,
    Limited,
    Malformed,
    ProviderError,
    Refused,
    TooLong,
    Unavailable,
    Unsuitable,
)
from shiftboss.extensions.ai.protocol import (
    Capability,
    Chat,
    Cost,
    Embeddings,
    Latency,
    Origin,
    Reply,
    ToolCall,
    Usage,
    Vectors,
    counted,
    estimate_tokens,
)
from shiftboss.extensions.ai.schemas import instructed, json_schema, strict_schema
from shiftboss.extensions.ai.settings import ProviderSettings

DEFAULT_RETRY_AFTER = 20.0
QUOTA_HOLD = 60.0  # a rejected call costs nothing, and work goes on soon after the quota is raised
LONGEST_HOLD = 86_400.0
PER_MILLION = 1e-6
try:  # newer versions of the SDK come with a client library of their own
    import httpx2

    LIBRARIES: tuple[Any, ...] = (httpx, httpx2)
except ImportError:
    LIBRARIES = (httpx,)
BROKEN: tuple[type[Exception], ...] = tuple(each.HTTPError for each in LIBRARIES)
UNSENT: tuple[type[Exception], ...] = tuple(
    kind for each in LIBRARIES for kind in (each.ConnectError, each.ConnectTimeout, each.PoolTimeout)
)


def cost_of(settings: ProviderSettings) -> Cost:
    return Cost(
        settings.prompt_cost * PER_MILLION,
        settings.completion_cost * PER_MILLION,
        settings.embedding_cost * PER_MILLION,
    )


class OpenAIProvider:
    capabilities = frozenset({Capability.COMPLETION, Capability.EMBEDDING})

    def __init__(self, settings: ProviderSettings, key: str, name: str = "openai") -> None:
        self.name = name
        self.model = settings.model
        self.embedding_model = settings.embedding_model
        self.cost = cost_of(settings)
        self.latency = Latency()
        self._strict = settings.strict
        self._max_tokens = self.max_tokens_parameter(settings)
        self._dimensions = settings.embedding_dimensions
        self._client = self.connect(settings, key)

    def connect(self, settings: ProviderSettings, key: str) -> AsyncOpenAI:
        # No retries in the SDK: they would bypass admission.
        return AsyncOpenAI(api_key=key, base_url=settings.base_url, timeout=settings.timeout, max_retries=0)

    def max_tokens_parameter(self, settings: ProviderSettings) -> str:
        """Return the parameter for the length of the answer; only OpenAI itself supports the new name."""
        return "max_tokens" if settings.base_url else "max_completion_tokens"

    async def complete(self, chat: Chat) -> Reply:
        started = time.perf_counter()
        try:
            said = await self._client.chat.completions.create(**self._question(chat))
            reply = self._reply(chat, said)
            self.latency.observe(time.perf_counter() - started)
            return reply
        except Exception as error:  # the SDK does not validate answers, so malformed ones fail anywhere here
            trouble = translate(self.name, error)
        raise trouble  # outside the except block, since the SDK's error as its context could reveal the key

    async def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        said = Pieces()
        asked = self._question(chat) | {"stream": True, "stream_options": {"include_usage": True}}
        try:
            async with await self._client.chat.completions.create(**asked) as events:
                async for event in events:
                    if text := said.take(event):
                        yield text
            yield self._whole(chat, said)
            return
        except Exception as error:
            trouble = translate(self.name, error)
            if said.text and trouble.usage is not None and not trouble.usage.tokens:
                trouble.usage = self._usage(chat, said.usage, said.text)
        raise trouble

    def _question(self, chat: Chat) -> Any:
        """Return the arguments for the SDK."""
        strict = strict_schema(chat.schema) if chat.schema is not None and self._strict else None
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": list(chat.messages) if strict else instructed(chat),
            self._max_tokens: chat.max_tokens,
            "temperature": chat.temperature,
            "tools": [tool.document for tool in chat.tools] or None,
        }
        if chat.schema is not None:
            schema = {"schema": strict or json_schema(chat.schema), "strict": strict is not None}
            described = {"name": _name(chat.schema.__name__), **schema}
            asked["response_format"] = {"type": "json_schema", "json_schema": described}
        return {name: value for name, value in asked.items() if value is not None}

    def _usage(self, chat: Chat, said: Any, text: str) -> Usage:
        prompt = counted(getattr(said, "prompt_tokens", None), chat.prompt_tokens)
        return self.cost.of(prompt, counted(getattr(said, "completion_tokens", None), estimate_tokens(text)))

    def _reply(self, chat: Chat, said: Any) -> Reply:
        choices = getattr(said, "choices", None)
        if not choices:
            usage = self._usage(chat, getattr(said, "usage", None), "") if hasattr(said, "usage") else Usage()
            raise Malformed(self.name, "no choices in the answer", "", usage)
        message, finish = choices[0].message, choices[0].finish_reason
        text = str(message.content or "")
        usage = self._usage(chat, getattr(said, "usage", None), text)
        refusal = getattr(message, "refusal", None)
        calls = tuple(self._tool_call(call, usage) for call in getattr(message, "tool_calls", None) or ())
        return self._finished(text, str(said.model or self.model), usage, finish, refusal, calls)

    def _whole(self, chat: Chat, said: Pieces) -> Reply:
        usage = self._usage(chat, said.usage, said.text)
        calls = tuple(self._tool_call(call, usage) for _, call in sorted(said.calls.items()))
        if said.finish is None and not said.text and not calls:
            raise Malformed(self.name, "the stream is empty", "", usage)
        model = said.model or self.model
        return self._finished(said.text, model, usage, said.finish, said.refusal or None, calls)

    def _finished(
        self,
        text: str,
        model: str,
        usage: Usage,
        finish: Any,
        refusal: str | None,
        calls: tuple[ToolCall, ...],
    ) -> Reply:
        if refusal or finish == "content_filter":
            reason = "the model declined to answer" if refusal else "stopped by the content filter"
            raise Declined(self.name, reason, usage=usage)
        return Reply(text, model, usage, self.name, str(finish or "stop"), calls)

    def _tool_call(self, call: Any, usage: Usage) -> ToolCall:
        try:
            arguments = orjson.loads(call.function.arguments or "{}")
        except ValueError:
            raise Malformed(
                self.name, "the arguments of a tool call are not JSON", str(call.function.arguments), usage
            ) from None
        return ToolCall(str(call.id), str(call.function.name), arguments)

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        wanted = dimensions or self._dimensions
        extra: Any = {"dimensions": wanted} if wanted else {}
        name = model or self.embedding_model
        started = time.perf_counter()
        try:
            # Raw response: the SDK's parsing of large vectors takes longer than the network.
            said = await self._client.embeddings.with_raw_response.create(
                model=name, input=list(texts), encoding_format="float", **extra
            )
            made = orjson.loads(said.content)
            rows = [item["embedding"] for item in sorted(made["data"], key=lambda item: item["index"])]
            reported = (made.get("usage") or {}).get("prompt_tokens")
            tokens = counted(reported, sum(map(estimate_tokens, texts)))
            vectors = matrix(rows)
            self.latency.observe(time.perf_counter() - started)
            return Embeddings(vectors, self.name, name, self.cost.of_embedding(tokens))
        except Exception as error:
            trouble = translate(self.name, error)
        raise trouble

    async def close(self) -> None:
        await self._client.close()


class Function:
    """A tool call that is assembled from pieces."""

    def __init__(self) -> None:
        self.id = self.name = self.arguments = ""

    @property
    def function(self) -> Function:
        return self


class Pieces:
    """The part of a streamed answer received so far."""

    def __init__(self) -> None:
        self.text = self.refusal = ""
        self.finish: str | None = None
        self.model: str | None = None
        self.usage: Any = None
        self.calls: dict[int, Function] = {}

    def take(self, event: Any) -> str:
        """Add an event and return its text."""
        self.usage = getattr(event, "usage", None) or self.usage
        self.model = getattr(event, "model", None) or self.model
        if not getattr(event, "choices", None):
            return ""
        choice = event.choices[0]
        self.finish = choice.finish_reason or self.finish
        self.refusal += getattr(choice.delta, "refusal", None) or ""
        for piece in getattr(choice.delta, "tool_calls", None) or ():
            call = self.calls.setdefault(piece.index, Function())
            call.id = piece.id or call.id
            call.name += piece.function.name or ""
            call.arguments += piece.function.arguments or ""
        text = str(choice.delta.content or "") if choice.delta else ""
        self.text += text
        return text


def _name(name: str) -> str:
    """Return the name in the protocol's alphabet: at most 64 letters, digits, _ and -."""
    return "".join(ch if ch.isascii() and (ch.isalnum() or ch in "_-") else "_" for ch in name)[:64]


def translate(name: str, error: Exception) -> ProviderError:
    """Return the SDK's error as a `ProviderError`."""
    match error:
        case ProviderError():
            return error
        case openai.APITimeoutError():
            return Unavailable(name, "timed out", billed=not isinstance(error.__cause__, UNSENT))
        case openai.APIConnectionError():
            billed = not isinstance(error.__cause__, UNSENT)
            return Unavailable(name, "connection failed", detail=str(error.__cause__ or error), billed=billed)
        case _ if isinstance(error, BROKEN):  # while streaming
            return Unavailable(name, "connection broken", detail=str(error), billed=True)
        case openai.RateLimitError() if error.code == "insufficient_quota":
            return Held(name, "the vendor's quota is spent", QUOTA_HOLD)
        case openai.RateLimitError():
            return Limited(name, retry_after(error.response.headers))
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return Refused(
                name, f"key refused ({error.status_code})", hint="check the key and its permissions"
            )
        case openai.NotFoundError():
            return Refused(
                name,
                "model or address not found (404)",
                detail=_reason(error),
                hint="check model and base_url",
            )
        case openai.APIStatusError() if error.status_code >= 500 or error.status_code in (408, 409):
            return Unavailable(name, f"server error ({error.status_code})")
        case openai.APIStatusError() if error.code == "context_length_exceeded":
            return TooLong(name, "the request exceeds the model's context window")
        case openai.APIStatusError() if error.code == "content_filter":
            return Declined(name, "the content filter rejected the request")
        case openai.APIStatusError():
            return Unsuitable(name, f"request rejected ({error.status_code})", detail=_reason(error))
        case _:
            return Malformed(name, f"unreadable answer: {error}", "")


def _reason(error: openai.APIStatusError) -> str:
    """Return the code and the message of a rejection, without the rest of the body."""
    message = error.body.get("message") if isinstance(error.body, dict) else None
    return ": ".join(str(part) for part in (error.code, message or error.message) if part)


def retry_after(headers: Any) -> float:
    """Return the seconds that the server asks to wait, at most a day."""
    try:
        return min(max(0.0, _requested_wait(headers)), LONGEST_HOLD)
    except (ValueError, OverflowError):
        return DEFAULT_RETRY_AFTER


def _requested_wait(headers: Any) -> float:
    """Parse the headers, which give milliseconds, seconds or a date."""
    if millis := headers.get("retry-after-ms"):
        return float(millis) / 1000
    asked = headers.get("retry-after")
    if asked is None:
        return DEFAULT_RETRY_AFTER
    if asked.replace(".", "", 1).isdecimal():
        return float(asked)
    return parsedate_to_datetime(asked).timestamp() - time.time()


def matrix(rows: Any) -> Vectors:
    """Return the vectors as a matrix, or raise `ValueError`."""
    vectors = np.asarray(rows, dtype=np.float32)
    if vectors.ndim != 2:
        raise ValueError("the vectors are not equally long lists of numbers")
    return vectors
