"""Ollama, through its SDK."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NoReturn

import httpx
import ollama

from shiftboss.ai.errors import Limited, Malformed, ProviderError, Refused, Unavailable, Unsuitable
from shiftboss.ai.prompts import messages
from shiftboss.ai.protocol import Capability, Correction, Embeddings, Latency, Reply, Request
from shiftboss.ai.providers.openai import DEFAULT_RETRY_AFTER, cost_of, matrix, retry_after
from shiftboss.model.settings_ai import ProviderSettings

TROUBLE = (ollama.ResponseError, ollama.RequestError, httpx.HTTPError, ConnectionError, ValueError)


class OllamaProvider:
    name = "ollama"
    capabilities = frozenset({Capability.COMPLETION, Capability.EMBEDDING})

    def __init__(self, settings: ProviderSettings, key: str | None = None) -> None:
        self.model = settings.model
        self.embedding_model = settings.embedding_model
        self.cost = cost_of(settings)
        self.latency = Latency()
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

    async def complete(self, request: Request[Any], correction: Correction | None = None) -> Reply:
        started = time.perf_counter()
        try:
            said = await self._client.chat(
                model=self.model,
                messages=messages(request, correction),
                format=request.schema.model_json_schema(),
                options={"temperature": 0},
            )
        except TROUBLE as error:
            self._raise(error)
        self.latency.observe(time.perf_counter() - started)
        usage = self.cost.of(said.prompt_eval_count or 0, said.eval_count or 0)
        return Reply(said.message.content or "", said.model or self.model, usage, self.name)

    async def embed(self, texts: Sequence[str], model: str | None = None) -> Embeddings:
        name = model or self.embedding_model
        started = time.perf_counter()
        try:
            made = await self._client.embed(model=name, input=list(texts))
            vectors = matrix(made.embeddings)
        except TROUBLE as error:
            self._raise(error)
        self.latency.observe(time.perf_counter() - started)
        return Embeddings(vectors, self.name, name, self.cost.of_embedding(made.prompt_eval_count or 0))

    async def close(self) -> None:
        await self._client.close()  # type: ignore[no-untyped-call]

    def _raise(self, error: Exception) -> NoReturn:
        raise self._translate(error) from error

    def _translate(self, error: Exception) -> ProviderError:
        match error:
            case ollama.ResponseError(status_code=429):
                return Limited(self.name, self._retry_after)
            case ollama.ResponseError(status_code=401 | 403):
                return Refused(self.name, f"refused ({error.status_code})", hint="check the key")
            case ollama.ResponseError(status_code=404):
                return Refused(self.name, f"no model {self.model!r} (404)", hint=f"ollama pull {self.model}")
            case ollama.ResponseError() if error.status_code < 0 or error.status_code >= 500:
                return Unavailable(self.name, f"server error ({error.status_code})")
            case ollama.ResponseError():
                return Unsuitable(self.name, f"request rejected: {error}"[:200])
            case httpx.TimeoutException():
                return Unavailable(self.name, "timed out")
            case httpx.HTTPError() | ConnectionError():
                return Unavailable(self.name, f"connection failed: {error}")
            case _:
                return Malformed(self.name, f"unreadable answer: {error}"[:300], "")
