"""The provider protocol: what is asked, what comes back, and what every provider can do and costs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel

Vectors = npt.NDArray[np.float32]
MOST_TOKENS = 2**31 - 1
ValueT = TypeVar("ValueT", bound=BaseModel)


class Need(StrEnum):
    """How much language understanding a request wants; it decides which provider is asked first."""

    ADVANCED = "advanced"
    STANDARD = "standard"
    BASIC = "basic"


class Capability(StrEnum):
    COMPLETION = "completion"
    EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True)
class Request(Generic[ValueT]):
    """One structured question. `schema` is the pydantic model that the answer must satisfy.

    The prompt comes from the template named `template` (by default the task type), which sees `content`
    and everything in `variables`. The local provider picks its analyser by `task_type`.
    """

    task_type: str
    content: str
    schema: type[ValueT]
    need: Need = Need.STANDARD
    variables: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    task_id: UUID | None = None

    @property
    def template_name(self) -> str:
        return self.template or self.task_type

    def content_hash(self, asked: str = "") -> str:
        """Equal for requests that would be answered alike, in any process; `asked` is who, and how."""
        parts = (self.template_name, self.schema.__name__, asked, self.content, dict(self.variables))
        packed = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
        return hashlib.sha256(packed).hexdigest()


@dataclass(frozen=True, slots=True)
class Correction:
    """A malformed answer and what was wrong with it, shown to the model once."""

    answer: str
    error: str


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
        prompt, completion = _counted(prompt_tokens), _counted(completion_tokens)
        return Usage(prompt, completion, prompt * self.prompt + completion * self.completion)

    def of_embedding(self, tokens: int) -> Usage:
        return Usage(_counted(tokens), 0, _counted(tokens) * self.embedding)


def _counted(tokens: Any) -> int:
    """A server may count strangely; what it says goes into an integer column, and never pays money back."""
    return min(max(tokens, 0), MOST_TOKENS) if isinstance(tokens, int) else 0


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
    """What a provider said to a request, not yet validated: JSON text, or a value made in this process."""

    payload: str | Mapping[str, Any]
    model: str
    usage: Usage = field(default_factory=Usage)
    provider: str = ""


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
    """A validated value, and where it came from."""

    value: ValueT
    provider: str
    model: str
    usage: Usage
    cached: bool = False


@runtime_checkable
class Provider(Protocol):
    """Anything that can answer requests: a vendor, this process, or several of them in order."""

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

    async def complete(self, request: Request[Any], correction: Correction | None = None) -> Reply:
        """Answer one request. Raises a `ProviderError` of `shiftboss.ai.errors` and nothing else."""
        ...

    async def embed(self, texts: Sequence[str], model: str | None = None) -> Embeddings:
        """One vector per text, in order."""
        ...

    async def close(self) -> None: ...


def estimate_tokens(text: str) -> int:
    """A cheap upper-side guess (about four characters a token), used only until the real count is known."""
    return len(text) // 4 + 1
