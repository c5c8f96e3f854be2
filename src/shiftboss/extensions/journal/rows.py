"""The rows that the journal's SQL functions return; the HTTP API describes its answers with the same classes.

A test compares the keys of each class with the columns that its query returns.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12


class Revision(TypedDict):
    """An entry that the pipeline has not processed."""

    id: UUID
    user_id: str
    external_id: str
    revision: int


class Stored(Revision):
    """An imported entry; `outcome` is `new`, `changed` or `same`."""

    outcome: str


class LoadedEntry(Revision):
    """An entry with its results, as input of the pipeline."""

    processed_revision: int | None
    written_at: datetime
    timezone: str
    parts: list[dict[str, Any]]
    metadata: dict[str, Any]
    source: dict[str, Any]
    results: dict[str, dict[str, Any]]


class AnalysedEntry(TypedDict):
    """An entry of a writer's history, with the results that the context stages use."""

    id: UUID
    external_id: str
    revision: int
    written_at: datetime
    timezone: str
    location: str | None
    language: str
    text: str
    mood: float
    mood_confidence: float
    emotions: dict[str, float]
    topics: dict[str, float]
    themes: list[dict[str, Any]]
    activities: list[dict[str, Any]]
    entities: list[dict[str, Any]]
    hashes: dict[str, str]


class Found(TypedDict):
    """An entry that a search found."""

    id: UUID
    user_id: str
    external_id: str
    written_at: datetime
    timezone: str
    similarity: float
    excerpt: str


class Hit(TypedDict):
    """A search result; `score` is for ranking."""

    id: str
    user: str
    external_id: str
    written_at: str
    score: float
    excerpt: str


class Reference(TypedDict):
    """A similar entry of the same writer."""

    entry_id: UUID
    other_id: UUID
    external_id: str
    written_at: datetime
    similarity: float


class UserResult(TypedDict):
    """A result about a writer."""

    user_id: str
    task_type: str
    input_hash: str
    processed_data: dict[str, Any]
    confidence_score: float
    provider: str | None
    model: str | None
    stored_at: datetime


class Insight(TypedDict):
    """An insight; `evidence` has the ids that its entries came with."""

    user_id: str
    key: str
    kind: str
    text: str
    confidence: float
    evidence: list[str]
    found_at: datetime


class Owner(TypedDict):
    """A writer's preferences."""

    id: str
    timezone: str
    language: str
    preferences: dict[str, Any]
    created_at: datetime


class Entity(TypedDict):
    """A person, place or concept."""

    user_id: str
    entity_id: int
    kind: str
    name: str
    mentions: int
    first_seen: datetime
    last_seen: datetime
    mood: float
    confidence: float


class Relation(TypedDict):
    """Two people, places or concepts that occur in the same entries."""

    user_id: str
    entity_id: int
    other_id: int
    kind: str
    name: str
    other_kind: str
    other_name: str
    weight: int
    first_seen: datetime
    last_seen: datetime
    mood: float
    evolution: list[dict[str, Any]]


class Mood(TypedDict):
    """The mood of a period."""

    period: date
    entries: int
    mood: float
    lowest: float
    highest: float


class Writer(TypedDict):
    """A writer, with counts of entries and findings."""

    user_id: str
    entries: int
    processed: int
    results: int
    people: int
    places: int
    concepts: int
    insights: int
    first_written: datetime | None
    last_written: datetime | None


class Entry(TypedDict):
    """An entry in a list, with its findings if they are known."""

    id: UUID
    user_id: str
    external_id: str
    written_at: datetime
    timezone: str
    revision: int
    processed: bool
    title: str | None
    mood: float | None
    emotion: str | None
    themes: list[str] | None
