"""Relationship context: connects an entry with earlier ones through people, places and concepts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Any

from shiftboss.extensions.journal.history import History, Mention, Moment
from shiftboss.extensions.journal.steps import Found

MOST_CONNECTIONS = 5
AWAY_DAYS = 60  # days without a mention, after which the next one is a return
PLURAL = {"person": "people", "place": "places", "concept": "concepts"}


@dataclass(slots=True)
class Acquaintance:
    """The earlier entries that mention a person, place or concept."""

    seen: list[Moment] = field(default_factory=list)

    def describe(self, mention: Mention, now: Moment) -> dict[str, Any]:
        told = {"name": mention.name, "confidence": mention.confidence, "mentions_before": len(self.seen)}
        if not self.seen:
            return told | {"state": "new"}
        away = now.day - self.seen[-1].day
        return told | {
            "state": "returning" if away > AWAY_DAYS else "recurring",
            "first_seen": self.seen[0].local_time.date().isoformat(),
            "days_since": away,
            "mood": round(fmean(moment.mood for moment in self.seen), 3),
            "evolution": self._evolution(now),
        }

    def _evolution(self, now: Moment) -> str:
        """Return whether mentions grew or fell from the previous quarter to the last one."""
        ages = [now.day - moment.day for moment in self.seen]
        lately, before = sum(age <= 90 for age in ages) + 1, sum(90 < age <= 180 for age in ages)
        return "growing" if lately > before + 1 else "fading" if lately < before else "steady"


def relationship_context(history: History) -> Iterator[Found]:
    """Yield the mentions of each entry with their past, and related entries.

    The confidence is the mean confidence of the names.
    """
    known: dict[str, Acquaintance] = defaultdict(Acquaintance)
    edges: Counter[tuple[str, str]] = Counter()
    for moment in history.moments:
        pairs = list(combinations([mention.name for mention in moment.mentions], 2))
        data: dict[str, Any] = {
            PLURAL[kind]: [known[m.key].describe(m, moment) for m in moment.mentions if m.kind == kind]
            for kind in PLURAL
        }
        data["connections"] = _connections(moment, known)
        data["edges"] = [{"a": a, "b": b, "together_before": edges[a, b]} for a, b in pairs if edges[a, b]]
        sure = [mention.confidence for mention in moment.mentions]
        yield Found(data, fmean(sure) if sure else 0.0)
        edges.update(pairs)
        for mention in moment.mentions:
            known[mention.key].seen.append(moment)


def _connections(moment: Moment, known: dict[str, Acquaintance]) -> list[dict[str, Any]]:
    """Return the earlier entries that share most names; frequent names count less."""
    weights: Counter[str] = Counter()
    shared: dict[str, list[str]] = defaultdict(list)
    for mention in moment.mentions:
        seen = known[mention.key].seen
        for other in seen:
            weights[other.external_id] += 1 / len(seen)  # type: ignore[assignment]  # a Counter of floats
            shared[other.external_id].append(mention.name)
    ranked = sorted(weights, key=lambda entry: (-weights[entry], entry))[:MOST_CONNECTIONS]
    return [{"entry": entry, "shared": shared[entry], "weight": round(weights[entry], 3)} for entry in ranked]
