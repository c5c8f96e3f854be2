"""Stage 4, context: compares each entry with earlier ones, in one pass over the history, oldest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from shiftboss.extensions.journal.entry import Result, digest
from shiftboss.extensions.journal.history import History, Moment
from shiftboss.extensions.journal.relationships import relationship_context
from shiftboss.extensions.journal.steps import Found
from shiftboss.extensions.journal.temporal import temporal_context

ENOUGH = 8  # earlier entries for a confidence of one half
MOST = 5
VERSION = 1


def evidence(count: int) -> float:
    """Return the confidence in findings based on `count` earlier entries, from 0 towards 1."""
    return count / (count + ENOUGH)


def user_context(history: History) -> Iterator[Found]:
    """Yield what was usual for the writer before each entry; the confidence grows with earlier entries."""
    moods: list[float] = []
    themes: Counter[str] = Counter()
    habits: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    for moment in history.moments:
        languages[moment.language] += 1
        patterns = {
            "typical_mood": round(median(moods), 3) if moods else None,
            "activity_patterns": _top(habits),
            "frequent_themes": _top(themes),
        }
        context = {
            "timezone": moment.timezone,
            "language": languages.most_common(1)[0][0],
            "preferences": dict(history.preferences),
            "historical_patterns": patterns,
        }
        yield Found({"user_context": context, "entries_before": len(moods)}, evidence(len(moods)))
        moods.append(moment.mood)
        themes.update(moment.themes)
        habits.update(_habits(moment))


def _habits(moment: Moment) -> list[str]:
    return [f"{moment.part_of_day}_{activity}" for activity in moment.activities]


def _top(counts: Counter[str]) -> list[str]:
    """Return the most frequent names; ties are sorted by name, so that the result is stable."""
    return [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST]]


CONTEXTS: dict[str, Callable[[History], Iterator[Found]]] = {
    "user_context": user_context,
    "temporal_context": lambda history: temporal_context(history, evidence),
    "relationship_context": relationship_context,
}


def context_results(history: History) -> Iterator[tuple[Moment, Result]]:
    """Yield the results that are new or whose past has changed."""
    chain = history.chain()
    for name, contexts in CONTEXTS.items():
        for moment, link, found in zip(history.moments, chain, contexts(history), strict=True):
            input_hash = digest([name, VERSION, link])
            if moment.hashes.get(name) != input_hash:
                yield moment, Result(name, found.processed_data, round(found.confidence, 3), input_hash)


def reference_result(moment: Moment, references: list[dict[str, Any]]) -> Result:
    """Return the entries that this one resembles; the confidence is the highest similarity."""
    data = {"references": references}
    best = max((reference["similarity"] for reference in references), default=0.0)
    confidence = round(min(1.0, max(0.0, best)), 3)
    return Result("cross_reference_embedding", data, confidence, digest(["cross_reference_embedding", data]))
