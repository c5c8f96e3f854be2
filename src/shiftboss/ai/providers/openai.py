"""OpenAI, and any server that speaks its protocol, through the vendor's SDK."""

from __future__ import annotations

import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

import numpy as np
import openai
from openai import AsyncOpenAI

from shiftboss.ai.errors import Held, Limited, Malformed, ProviderError, Refused, Unavailable, Unsuitable
from shiftboss.ai.prompts import messages
from shiftboss.ai.protocol import Capability, Correction, Cost, Embeddings, Latency, Reply, Request, Vectors
from shiftboss.model.settings_ai import ProviderSettings

DEFAULT_RETRY_AFTER = 20.0
QUOTA_HOLD = 3600.0
LONGEST_HOLD = 86_400.0
PER_MILLION = 1e-6


def cost_of(settings: ProviderSettings) -> Cost:
    return Cost(
        settings.prompt_cost * PER_MILLION,
        settings.completion_cost * PER_MILLION,
        settings.embedding_cost * PER_MILLION,
    )


class OpenAIProvider:
    name = "openai"
    capabilities = frozenset({Capability.COMPLETION, Capability.EMBEDDING})

    def __init__(self, settings: ProviderSettings, key: str) -> None:
        self.model = settings.model
        self.embedding_model = settings.embedding_model
        self.cost = cost_of(settings)
        self.latency = Latency()
        self._dimensions = settings.embedding_dimensions
        self._client = self.connect(settings, key)

    def connect(self, settings: ProviderSettings, key: str) -> AsyncOpenAI:
        # Retries are the guard's: the SDK's own would spend requests that no limit has admitted.
        return AsyncOpenAI(api_key=key, base_url=settings.base_url, timeout=settings.timeout, max_retries=0)

    async def complete(self, request: Request[Any], correction: Correction | None = None) -> Reply:
        schema = {"name": request.task_type, "schema": request.schema.model_json_schema(), "strict": False}
        wanted: Any = {"type": "json_schema", "json_schema": schema}
        asked: Any = messages(request, correction)
        started = time.perf_counter()
        try:
            said = await self._client.chat.completions.create(
                model=self.model, messages=asked, response_format=wanted
            )
            reply = self._reply(said)
        except Exception as error:  # the SDK checks no shapes: an odd answer fails wherever it is first used
            self._raise(error)
        self.latency.observe(time.perf_counter() - started)
        return reply

    def _reply(self, said: Any) -> Reply:
        counted = getattr(said, "usage", None)
        prompt, completion = (counted.prompt_tokens, counted.completion_tokens) if counted else (0, 0)
        usage = self.cost.of(prompt, completion)
        if not getattr(said, "choices", None):
            raise Malformed(self.name, "no choices in the answer", "", usage)
        message = said.choices[0].message
        if getattr(message, "refusal", None):
            raise Unsuitable(self.name, "the model declined to answer")
        return Reply(str(message.content or ""), str(said.model or self.model), usage, self.name)

    async def embed(self, texts: Sequence[str], model: str | None = None) -> Embeddings:
        extra: Any = {"dimensions": self._dimensions} if self._dimensions else {}
        name = model or self.embedding_model
        started = time.perf_counter()
        try:
            made = await self._client.embeddings.create(
                model=name, input=list(texts), encoding_format="float", **extra
            )
            rows = [item.embedding for item in sorted(made.data, key=lambda item: item.index)]
            usage = self.cost.of_embedding(made.usage.prompt_tokens if made.usage else 0)
            vectors = matrix(rows)
        except Exception as error:
            self._raise(error)
        self.latency.observe(time.perf_counter() - started)
        return Embeddings(vectors, self.name, name, usage)

    async def close(self) -> None:
        await self._client.close()

    def _raise(self, error: Exception) -> NoReturn:
        raise translate(self.name, error) from error


def translate(name: str, error: Exception) -> ProviderError:
    """The SDK's error as one of ours. A server may quote a refused key, so what it says of it is left out."""
    match error:
        case ProviderError():
            return error
        case openai.APITimeoutError():
            return Unavailable(name, "timed out")
        case openai.APIConnectionError():
            return Unavailable(name, f"connection failed: {error.__cause__ or error}")
        case openai.RateLimitError() if error.code == "insufficient_quota":
            return Held(name, "budget spent", QUOTA_HOLD)
        case openai.RateLimitError():
            return Limited(name, retry_after(error.response.headers))
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            return Refused(name, f"key refused ({error.status_code})", hint="check the key and its rights")
        case openai.NotFoundError():
            return Refused(name, "model or address not found (404)", hint="check model and base_url")
        case openai.APIStatusError() if error.status_code >= 500 or error.status_code in (408, 409):
            return Unavailable(name, f"server error ({error.status_code})")
        case openai.APIStatusError():
            return Unsuitable(name, f"request rejected ({error.status_code}): {error.message[:200]}")
        case _:
            return Malformed(name, f"unreadable answer: {error}"[:300], "")


def retry_after(headers: Any) -> float:
    """Seconds the server asks to wait, at most a day: after that it is worth another question."""
    try:
        return min(max(0.0, _asked_wait(headers)), LONGEST_HOLD)
    except (ValueError, OverflowError):
        return DEFAULT_RETRY_AFTER


def _asked_wait(headers: Any) -> float:
    """In milliseconds, seconds or a date."""
    if millis := headers.get("retry-after-ms"):
        return float(millis) / 1000
    asked = headers.get("retry-after")
    if asked is None:
        return DEFAULT_RETRY_AFTER
    if asked.replace(".", "", 1).isdecimal():
        return float(asked)
    return parsedate_to_datetime(asked).timestamp() - time.time()


def matrix(rows: Any) -> Vectors:
    """One line per vector; anything else is an error."""
    vectors = np.asarray(rows, dtype=np.float32)
    if vectors.ndim != 2:
        raise ValueError("the vectors are not lists of numbers")
    return vectors
