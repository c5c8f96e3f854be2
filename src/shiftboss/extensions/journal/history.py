"""The analysed entries of a writer, in the order of writing.

The context of an entry depends on earlier entries only, so it does not change when later ones arrive. A chain
of hashes shows for each entry whether it or its past has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from shiftboss.extensions.journal.entry import digest
from shiftboss.extensions.journal.rows import AnalysedEntry

SOUTHERN = ("Australia/", "Antarctica/", "Pacific/Auckland", "America/Argentina/", "America/Sao_Paulo",
            "America/Santiago", "America/Montevideo", "Africa/Johannesburg")  # fmt: skip
SEASONS = ("winter", "spring", "summer", "autumn")


@dataclass(frozen=True, slots=True)
class Moment:
    """The facts of an analysed entry that contexts are computed from."""

    id: UUID
    external_id: str
    revision: int
    local_time: datetime
    timezone: str
    language: str
    location: str | None
    text: str
    mood: float
    mood_confidence: float
    emotions: Mapping[str, float]
    themes: list[str]
    activities: list[str]
    entities: list[dict[str, Any]]
    hashes: Mapping[str, str]
    mentions: list[Mention] = field(default_factory=list)

    @property
    def season(self) -> str:
        shift = 2 if self.timezone.startswith(SOUTHERN) else 0
        return SEASONS[(self.local_time.month % 12 // 3 + shift) % 4]

    @property
    def part_of_day(self) -> str:
        hour = self.local_time.hour
        return (
            "night"
            if hour < 5 or hour >= 23
            else "morning"
            if hour < 12
            else "afternoon"
            if hour < 18
            else "evening"
        )

    @property
    def weekday(self) -> str:
        return self.local_time.strftime("%A").lower()

    @property
    def day(self) -> int:
        return self.local_time.toordinal()

    @property
    def dominant_emotion(self) -> str:
        return max(self.emotions, key=lambda name: self.emotions[name], default="neutral")

    def facts(self) -> list[Any]:
        mentions = [[m.kind, m.name, m.confidence] for m in self.mentions]
        when = [self.local_time.isoformat(), self.timezone, self.location, self.language]
        return [str(self.id), when, self.mood, self.emotions, self.themes, self.activities, mentions]

    @classmethod
    def from_row(cls, row: AnalysedEntry) -> Moment:
        return cls(
            id=row["id"],
            external_id=row["external_id"],
            revision=row["revision"],
            local_time=row["written_at"].astimezone(ZoneInfo(row["timezone"])),
            timezone=row["timezone"],
            language=row["language"],
            location=row["location"],
            text=row["text"],
            mood=row["mood"],
            mood_confidence=row["mood_confidence"],
            emotions=row["emotions"],
            themes=[theme["theme"] for theme in row["themes"]],
            activities=[activity["activity"] for activity in row["activities"]],
            entities=row["entities"],
            hashes=row["hashes"],
        )


@dataclass(frozen=True, slots=True)
class Mention:
    kind: str
    name: str
    confidence: float

    @property
    def key(self) -> str:
        return self.name.casefold()


@dataclass(frozen=True, slots=True)
class History:
    user_id: str
    preferences: Mapping[str, Any]
    moments: Sequence[Moment]

    def chain(self) -> list[str]:
        """Return for each moment a hash of it and of all earlier ones."""
        hashes, last = [], digest([self.user_id, self.preferences])
        for moment in self.moments:
            last = digest([last, moment.facts()])
            hashes.append(last)
        return hashes

    def moods(self) -> list[float]:
        return [moment.mood for moment in self.moments]
