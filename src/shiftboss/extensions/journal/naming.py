"""Determines the people, places and concepts that entries mention, over all entries of a writer.

A single sentence often does not distinguish a person from a place. A name counts if it was recognised clearly
in one entry. Its kind is the one with most clear recognitions, and every entry with the name mentions it.
"""

from __future__ import annotations

import calendar
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from shiftboss.extensions.journal.history import Mention, Moment

KIND_OF = {
    "PERSON": "person",
    "LOCATION": "place",
    "EVENT": "concept",
    "CONCEPT": "concept",
    "ORGANIZATION": "concept",
}
CLEAR = 0.7
CALENDAR = {name.casefold() for name in [*calendar.month_name, *calendar.day_name] if name}
NOBODY = {"everybody", "everyone", "somebody", "someone", "nobody", "anybody", "anyone"}
THEME_CONFIDENCE = 0.6
LONGEST = 200  # characters; longer texts are not names, and do not fit into an index


def with_mentions(moments: Sequence[Moment]) -> list[Moment]:
    """Return the moments with their mentions."""
    known = resolve(moments)
    pattern = _pattern(known)
    return [replace(moment, mentions=_mentions(moment, known, pattern)) for moment in moments]


def resolve(moments: Iterable[Moment]) -> dict[str, Mention]:
    """Return all names that were recognised clearly at least once, by their case-folded spelling."""
    votes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    best: dict[str, tuple[float, str]] = {}
    for moment in moments:
        for kind, name, confidence in _recognised(moment):
            key = name.casefold()
            votes[key][kind] += confidence
            best[key] = max(best.get(key, (0.0, name)), (confidence, name))
    return {
        key: Mention(max(sorted(kinds), key=lambda kind: kinds[kind]), best[key][1], round(best[key][0], 3))
        for key, kinds in votes.items()
    }


def _recognised(moment: Moment) -> Iterable[tuple[str, str, float]]:
    for place in (moment.location or "").split(","):
        if 0 < len(place.strip()) <= LONGEST:
            yield "place", place.strip(), 1.0
    for entity in moment.entities:
        kind, name = KIND_OF.get(entity["type"]), _plain(entity["text"])
        clear = entity["confidence"] >= CLEAR and 0 < len(name) <= LONGEST
        if kind and clear and name.casefold() not in CALENDAR | NOBODY:
            yield kind, name, entity["confidence"]


def _plain(name: str) -> str:
    return re.sub(r"^my\s+", "", name.strip(), flags=re.IGNORECASE)


def _pattern(known: Mapping[str, Mention]) -> re.Pattern[str] | None:
    """Return a case-sensitive pattern for all known names: `Will` is a person, `will` is not."""
    names = sorted((mention.name for mention in known.values()), key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b") if names else None


def _mentions(moment: Moment, known: Mapping[str, Mention], pattern: re.Pattern[str] | None) -> list[Mention]:
    words = f"{moment.text} {moment.location or ''}"
    found = {name.casefold(): known[name.casefold()] for name in (pattern.findall(words) if pattern else [])}
    for theme in moment.themes:
        mention = Mention("concept", theme.replace("_", " ")[:LONGEST], THEME_CONFIDENCE)
        found.setdefault(mention.key, known.get(mention.key, mention))
    return sorted(found.values(), key=lambda mention: (mention.kind, mention.key))
