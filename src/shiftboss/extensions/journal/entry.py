"""An entry and the results of its steps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson

from shiftboss.extensions.journal.rows import LoadedEntry

Kind = Literal["text", "voice_transcript", "image_description"]
KINDS: tuple[Kind, ...] = ("text", "voice_transcript", "image_description")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a step. docs/how-to/journal.md describes its `confidence_score`.

    `input_hash` covers all inputs of the step. While it is the same, the step does not run again.
    """

    task_type: str
    processed_data: dict[str, Any]
    confidence_score: float
    input_hash: str = ""
    provider: str | None = None
    model: str | None = None
    vector: list[float] | None = None

    @classmethod
    def from_json(cls, task_type: str, found: Mapping[str, Any]) -> Result:
        """Return a stored result; its confidence is a float even if JSON has an integer, as in its hash."""
        return cls(task_type=task_type, **{**found, "confidence_score": float(found["confidence_score"])})

    def document(self) -> dict[str, Any]:
        """Return the documented JSON form."""
        return {
            "task_type": self.task_type,
            "processed_data": self.processed_data,
            "confidence_score": self.confidence_score,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    id: UUID
    user_id: str
    external_id: str
    revision: int
    written_at: datetime
    timezone: str
    parts: list[dict[str, Any]]
    metadata: dict[str, Any]
    source: dict[str, Any]
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def local_time(self) -> datetime:
        return self.written_at.astimezone(ZoneInfo(self.timezone))

    @classmethod
    def from_row(cls, row: LoadedEntry) -> Entry:
        results = {name: Result.from_json(name, found) for name, found in row["results"].items()}
        return cls(
            row["id"], row["user_id"], row["external_id"], row["revision"], row["written_at"],
            row["timezone"], row["parts"], row["metadata"], row["source"], results,
        )  # fmt: skip


def digest(value: Any) -> str:
    """Return the hash of a JSON value, independent of the order of keys."""
    packed = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
    return hashlib.sha256(packed).hexdigest()
