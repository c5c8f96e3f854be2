"""The provider protocol: what is asked, what comes back, and what every provider can do and costs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
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
MOST_TOKENS = 2**31 - 1
ValueT = TypeVar("ValueT")


class Need(StrEnum):
    """How much language understanding a request wants; it decides which provider is asked first."""

    ADVANCED = "advanced"
    STANDARD = "standard"
    BASIC = "basic"


class Capability(StrEnum):
    COMPLETION = "completion"
    EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True)
class Origin:
    """On whose behalf a call is made; limits and spend go by it."""

    task_type: str
    task_id: UUID | None = None
    tenant: str | None = None
    key: str | None = None
    template: str | None = None
    template_version: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask for; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants this function called with these arguments."""

    id: str
    name: str
    arguments: dict[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        arguments = orjson.dumps(self.arguments).decode()
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}


@dataclass(frozen=True, slots=True)
class Chat:
    """One question as a provider gets it: the messages, and what the answer must be like.

    `name` is the template's, or the task type: the local provider picks its analyser by it and works on the
    variable `content`.
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
    def prompt_tokens(self) -> int:
        extra = orjson.dumps([tool.document for tool in self.tools]).decode() if self.tools else ""
        asked = estimate_tokens(orjson.dumps(self.messages, default=str).decode() + extra)
        return asked + (_schema_tokens(self.schema) if self.schema is not None else 0)

    def correction(self, answer: str, error: str, words: str) -> Chat:
        """The same once more, with the bad answer and what was wrong with it."""
        more = ({"role": "assistant", "content": answer}, {"role": "user", "content": words})
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
        prompt, completion = min(prompt_tokens, MOST_TOKENS), min(completion_tokens, MOST_TOKENS)
        return Usage(prompt, completion, prompt * self.prompt + completion * self.completion)

    def of_embedding(self, tokens: int) -> Usage:
        tokens = min(tokens, MOST_TOKENS)
        return Usage(tokens, 0, tokens * self.embedding)


def counted(tokens: Any, guess: int) -> int:
    """What a server counted; the estimate where the count is missing or impossible: no answer is free."""
    sane = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    return min(tokens, MOST_TOKENS) if sane else guess


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
    """What a provider said, not yet validated: text, or a value made in this process."""

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
    """One row of `vectors` per text; vectors of different models must never be compared."""

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
    """What came back. `value` is the text, or with a schema the validated object."""

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
        """The assistant's turn, to go on with: `messages + [answer.message, ...]`."""
        calls = [call.document for call in self.tool_calls]
        return {"role": "assistant", "content": self.text} | ({"tool_calls": calls} if calls else {})


class Wanted(NamedTuple):
    """Which embeddings: of a provider or model, or from another server or with another key of its kind."""

    provider: str | None = None
    model: str | None = None
    dimensions: int | None = None
    base_url: str | None = None
    api_key_name: str | None = None

    @property
    def elsewhere(self) -> bool:
        return self.base_url is not None or self.api_key_name is not None


@runtime_checkable
class Provider(Protocol):
    """Anything that can answer: a vendor, this process, or several of them in order."""

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
        """Answer. Raises a `ProviderError` of `shiftboss.extensions.ai.errors` and nothing else."""
        ...

    def stream(self, chat: Chat) -> AsyncGenerator[str | Reply, None]:
        """The answer in pieces as they come, and last of all the whole `Reply`."""
        ...

    async def embed(
        self,
        texts: Sequence[str],
        model: str | None = None,
        origin: Origin | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        """One vector per text, in order."""
        ...

    async def close(self) -> None: ...


@cache
def _schema_tokens(schema: type[BaseModel]) -> int:
    return estimate_tokens(orjson.dumps(schema.model_json_schema()).decode())


def estimate_tokens(text: str) -> int:
    """A cheap guess (about four bytes a token), used only until the real count is known."""
    return len(text.encode("utf-8", "replace")) // 4 + 1
