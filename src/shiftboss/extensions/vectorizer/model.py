"""The settings of a vectorizer and its claimed rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

Chunking = Literal["sentences", "characters", "separators", "tokens", "markdown", "none"]
IndexMethod = Literal["hnsw", "ivfflat", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorizerSpec:
    """The columns of `ai.vectorizer` that a worker needs."""

    id: int
    name: str
    generation: int | None = None
    replaces: int | None = None
    columns: list[str] | None = None
    template: str | None = None
    watched: list[str] = field(default_factory=list)
    chunking: Chunking = "sentences"
    chunk_size: int = 800
    chunk_overlap: int = 100
    separators: list[str] | None = None
    provider: str = "local"
    model: str | None = None
    dimensions: int = 256
    send_dimensions: bool = False
    base_url: str | None = None
    api_key_name: str | None = None
    batch_size: int = 256
    concurrency: int = 4

    @classmethod
    def of(cls, row: dict[str, Any]) -> VectorizerSpec:
        return cls(**{each.name: row[each.name] for each in fields(cls)})

    @property
    def counted_as(self) -> int:
        """The id that progress is counted for: a replacement counts for the vectorizer it replaces."""
        return self.replaces or self.id


@dataclass(slots=True)
class SourceRow:
    """A claimed row. `tid` and `ticket` identify the claim (extending it changes `tid`)."""

    tid: str
    ticket: int
    present: bool
    fields: list[str | None]
