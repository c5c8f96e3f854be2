"""The provider protocol: requests, replies, and the capabilities and costs of a provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel

Vectors = npt.NDArray[np.float32]
Message = dict[str, Any]
MAX_TOKENS = 2**31 - 1  # PostgreSQL's int
ValueT = TypeVar("ValueT")


class Need(StrEnum):
    """How capable a model the request needs; it decides which provider is asked first."""

    ADVANCED = "advanced"
    STANDARD = "standard"
    BASIC = "basic"


class Capability(StrEnum):
    COMPLETION = "completion"
    EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True)
class Origin:
    """The task, tenant and key that a call is made for; limits and spend are counted for them."""

    task_type: str
    task_id: UUID | None = None
    tenant: str | None = None
    key: str | None = None
    template: str | None = None
    template_version: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may request; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request of the model to call a function with these arguments."""

    id: str
    name: str
    arguments: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        arguments = orjson.dumps(self.arguments).decode()
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


@dataclass(frozen=True, slots=True)
class Chat:
    """One request to a provider: the messages, and requirements for the answer.

    `name` is the name of the template, or the task type. The local provider chooses its analyser by it and
    analyses the variable `content`.
    """

    messages: tuple[Message, ...]
    origin: Origin
    name: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)
    schema: type[BaseModel] | None = None
    tools: tuple[Tool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    timeout: float | None = None
    corrected: bool = False

    @property
    def content(self) -> str:
        return str(self.variables.get("content", ""))

    @property
    def own_text(self) -> str:
        """What the user wrote: the variables of a template, or else the messages before a correction."""
        asked = self.messages[:-2] if self.corrected else self.messages
        return "\n".join(_texts(self.variables or [message.get("content") for message in asked]))

    @property
    def prompt_tokens(self) -> int:
        extra = _json([tool.document for tool in self.tools]) if self.tools else ""
        asked = estimate_tokens(_json(self.messages) + extra)
        return asked + (_schema_tokens(self.schema) if self.schema is not None else 0)

    def correction(self, answer: str, request: str) -> Chat:
        """Return this chat continued with the invalid answer and a request to correct it."""
        more = ({"role": "assistant", "content": answer}, {"role": "user", "content": request})
        return replace(self, messages=(*self.messages, *more), corrected=True)


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars per token."""

    prompt: float = 0.0
    completion: float = 0.0
    embedding: float = 0.0

    def of(self, prompt_tokens: int, completion_tokens: int) -> Usage:
        prompt, completion = min(prompt_tokens, MAX_TOKENS), min(completion_tokens, MAX_TOKENS)
        return Usage(prompt, completion, prompt * self.prompt + completion * self.completion)

    def of_embedding(self, tokens: int) -> Usage:
        tokens = min(tokens, MAX_TOKENS)
        return Usage(tokens, 0, tokens * self.embedding)


def counted(tokens: Any, estimate: int) -> int:
    """Return the token count that a server reported, or the estimate if it is missing or invalid."""
    valid = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    return min(tokens, MAX_TOKENS) if valid else estimate


@dataclass(slots=True)
class Latency:
    """Observed seconds per call, as an exponentially weighted moving average."""

    seconds: float | None = None
    weight: float = 0.2

    def observe(self, seconds: float) -> None:
        previous = seconds if self.seconds is None else self.seconds
        self.seconds = previous + self.weight * (seconds - previous)


@dataclass(frozen=True, slots=True)
class Reply:
    """A provider's reply before validation: text, or a value that the local provider computed."""

    payload: str | Mapping[str, Any]
    model: str
    usage: Usage = field(default_factory=Usage)
    provider: str = ""
    finish_reason: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: UUID | None = None

    @property
    def text(self) -> str:
        return self.payload if isinstance(self.payload, str) else orjson.dumps(self.payload).decode()


@dataclass(frozen=True, slots=True)
class Embeddings:
    """One row of `vectors` per text. Vectors of different models cannot be compared."""

    vectors: Vectors
    provider: str
    model: str
    usage: Usage = field(default_factory=Usage)

    @property
    def dimensions(self) -> int:
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return int(self.vectors.shape[0])


@dataclass(frozen=True, slots=True)
class Answer(Generic[ValueT]):
    """An answer. `value` is its text, or the validated object if the request had a schema."""

    value: ValueT
    text: str
    provider: str
    model: str
    usage: Usage
    cached: bool = False
    call_id: UUID | None = None
    finish_reason: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    template: str | None = None
    template_version: str | None = None

    @property
    def message(self) -> Message:
        """The assistant's message, to continue the conversation: `messages + [answer.message, ...]`."""
        calls = [call.document for call in self.tool_calls]
        return {"role": "assistant", "content": self.text} | ({"tool_calls": calls} if calls else {})


class Wanted(NamedTuple):
    """The embeddings to request, optionally from another server or with another key."""

    provider: str | None = None
    model: str | None = None
    dimensions: int | None = None
    base_url: str | None = None
    api_key_name: str | None = None

    @property
    def custom(self) -> bool:
        """Whether the address or the key differs from the settings."""
        return self.base_url is not None or self.api_key_name is not None


@runtime_checkable
class Provider(Protocol):
    """Answers requests: a vendor, the local models, or a sequence of other providers."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def embedding_model(self) -> str: ...
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    @property
    def cost(self) -> Cost: ...
    @property
    def latency(self) -> Latency: ...

    async def complete(self, chat: Chat) -> Reply:
        """Return the reply. The only exception raised is `shiftboss.extensions.ai.errors.ProviderError`."""
        ...

    def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        """Yield the text of the answer in pieces as they arrive, then the complete `Reply`."""
        ...

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        """Return one vector per text, in order."""
        ...

    async def close(self) -> None: ...


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
    elif value is not None:
        yield str(value)


@cache
def _schema_tokens(schema: type[BaseModel]) -> int:
    return estimate_tokens(_json(schema.model_json_schema()))


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens (about four bytes each), until the provider reports the real count."""
    return len(text.encode("utf-8", "replace")) // 4 + 1
