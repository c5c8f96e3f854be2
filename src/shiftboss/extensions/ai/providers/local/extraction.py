"""Content extraction: key phrases and entities by rules, unclear names typed by described labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from shiftboss.extensions.ai.providers.local.labels import LabelSet, label_set
from shiftboss.extensions.ai.providers.local.names import (
    PLACE_TAIL,
    POSSESSIVE,
    Lexicon,
    common_place_names,
    first_names,
    lexicon,
    not_names,
    ordinary,
    places,
    regions,
)
from shiftboss.extensions.ai.providers.local.phrases import key_phrases
from shiftboss.extensions.ai.providers.local.text import Text

WORD = r"[A-ZÀ-ÞŁŚŞČŽ][^\W\d_]*(?:[’'-][^\W\d_]+)*"
NAME = re.compile(rf"\b{WORD}(?:\s+(?:(?:of|de|da|do|dos|del|di|van|von)\s+)?{WORD}){{0,3}}")
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
DATE = re.compile(
    rf"\b(?:\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}"
    rf"|(?:{MONTHS})\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?|\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{MONTHS})"
    rf"|(?:(?:next|last|this)\s+)?(?:{DAYS})|today|yesterday|tomorrow|tonight|(?:next|last)\s+(?:week|month|year))\b",
    re.IGNORECASE,
)
EVENT = re.compile(
    r"\b(?:(?:team|birthday|family|board|weekly|annual|farewell|dinner|christmas|wedding|job|staff|school)\s+)?"
    r"(?:meeting|party|wedding|birthday|conference|interview|funeral|concert|festival|exam|workshop|reunion"
    r"|graduation|anniversary|marathon|standup|presentation|appointment|ceremony|exhibition)\b",
    re.IGNORECASE,
)
FIRM_TAIL = re.compile(
    r"\b(?:Inc|Ltd|LLC|GmbH|Corp|Company|University|College|Hospital|Bank|Institute|School|Club)\.?$"
)
OPENERS = " \"'“‘(¡¿–—-"
JOINED = re.compile(r"(?:,|,?\s+(?:and|und|e|y|e\s+[oa]))\s+$")
PERSON_VERB = re.compile(
    r"^(?:['’]s\b|\s+(?:said|told|asked|called|laughed|smiled|came|helped|gave|was|is|and I|texted"
    r"|showed|thinks|thought|wants|wanted|invited|cooked|brought|left|made|has|had)\b)",
)


def extract_content(text: Text) -> dict[str, Any]:
    entities = find_entities(text)
    phrases = key_phrases(text)
    found = min(1.0, (len(phrases) + len(entities)) / 6)
    return {
        "processed_data": {
            "extracted_text": re.sub(r"\s+", " ", text.raw).strip(),
            "key_phrases": phrases,
            "entities": entities,
            "word_count": len(text.words),
            "reading_time_minutes": text.reading_minutes,
            "language": text.language[0],
        },
        "confidence_score": round(text.evidence * (0.55 + 0.4 * found), 3),
    }


def find_entities(text: Text) -> list[dict[str, Any]]:
    """Each entity once, the surest mention of it, in the order of the text."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    words = lexicon(text.language[0])
    for sentence in text.sentences:
        for name, kind, confidence in _mentions(sentence, words):
            key = (name.lower(), kind)
            if key not in best or best[key]["confidence"] < confidence:
                best[key] = {"text": name, "type": kind, "confidence": confidence}
    return list(best.values())


def plain_name(name: str) -> str:
    """The name without the possessive before it: "my mother" is the same person as "mother"."""
    return re.sub(rf"^(?:{POSSESSIVE})\s+", "", name.strip(), flags=re.IGNORECASE)


def is_common_place(name: str) -> bool:
    return name.lower() in common_place_names()


def _mentions(sentence: str, words: Lexicon) -> Iterator[tuple[str, str, float]]:
    taken: list[tuple[int, int]] = []

    def free(match: re.Match[str]) -> bool:
        return all(match.end() <= start or match.start() >= end for start, end in taken)

    fixed = ((DATE, "DATE", 0.95), (EVENT, "EVENT", 0.85), (words.titled, "PERSON", 0.9))
    for pattern, kind, confidence in fixed:
        for match in filter(free, pattern.finditer(sentence)):
            taken.append(match.span())
            yield _bare(match.group()), kind, confidence
    names = list(_names(sentence, words, free))
    for start, name, _, _ in names:
        taken.append((start, start + len(name)))
    named = {start for start, _, kind, _ in names if kind == "PERSON"}
    for match in filter(free, words.kin.finditer(sentence)):
        if match.end() + 1 not in named:  # "my sister Anna" is Anna
            yield _relative(match.group(), words), "PERSON", 0.85
    yield from ((name, kind, confidence) for _, name, kind, confidence in names)
    for match in filter(free, words.common_places.finditer(sentence)):
        yield match.group(), "LOCATION", 0.7


def _bare(name: str) -> str:
    return re.sub(r"['’]s$", "", name.strip(" '’"))


def _relative(name: str, words: Lexicon) -> str:
    known = words.words("kin")
    genitive = words.language == "de" and name.lower().endswith("s") and plain_name(name).lower() not in known
    return name[:-1] if genitive else name


Named = tuple[int, str, str, float]


def _names(sentence: str, words: Lexicon, free: Callable[[re.Match[str]], bool]) -> Iterator[Named]:
    """Capitalised words that are names; in a row such as "Jonas, Mei and I" one person makes the next one."""
    last = -1
    for match in filter(free, NAME.finditer(sentence)):
        for start, name in _split(match, sentence, words):
            before, after = sentence[:start], sentence[start + len(name) :]
            joined = last >= 0 and JOINED.search(before) is not None and start - last < 8
            found = _type_of(name, before, after, words, joined=joined)
            if found is None:
                continue
            last = start + len(name) if found[0] == "PERSON" else -1
            yield start, name, *found


def _split(match: re.Match[str], sentence: str, words: Lexicon) -> Iterator[tuple[int, str]]:
    """A run of capitalised words as names: the longest known place, a whole name, or each word."""
    start, run = match.start(), _bare(match.group())
    if _opens(sentence, start, run):
        word = run.split()[0]
        start, run = start + run.index(run.split()[1]), run[len(word) :].lstrip()
    while run:
        name = _longest(run, words)
        yield start, _bare(_genitive(name, words))
        rest = run[len(name) :]
        start += len(name) + len(rest) - len(rest.lstrip())
        run = rest.lstrip()


def _opens(sentence: str, start: int, run: str) -> bool:
    """Whether the first word has its capital from the beginning of the sentence, and a name follows it."""
    first, *rest = run.split()
    if sentence[:start].strip(OPENERS) or not rest:
        return False
    known, follows = ((word in first_names() or word in places()) for word in (first, rest[0]))
    return follows and not known


def _longest(run: str, words: Lexicon) -> str:
    parts = run.split()
    for count in range(len(parts), 1, -1):
        if " ".join(parts[:count]) in places():
            return " ".join(parts[:count])
    if parts[0] in places() or parts[0].lower() in not_names() or words.language == "de":
        follows = parts[0] in first_names() and len(parts) == 2 and parts[1] in first_names()
        return " ".join(parts) if follows else parts[0]
    return run


def _genitive(name: str, words: Lexicon) -> str:
    known = name in first_names() or name in places() or not name.endswith("s")
    return name[:-1] if words.language == "de" and not known and name[:-1] in first_names() else name


def _type_of(name: str, before: str, after: str, words: Lexicon, *, joined: bool) -> tuple[str, float] | None:
    first, opening = name.split()[0], not before.strip(OPENERS)
    verb = bool(PERSON_VERB.match(after))
    shouted = name.isupper() and len(name) > 3  # "NEVER AGAIN" names nobody
    never = shouted or first.lower() in not_names() or first.lower() in words.words("kin")
    if len(name) < 2 or never or (opening and first.lower() in ordinary() and not verb):
        return None
    person, place = first in first_names(), name in places() or PLACE_TAIL.search(name) is not None
    if place and (not person or " " in name or name in regions()):
        return "LOCATION", 0.9
    if person:
        to_place = place and words.before_place.search(before) and not words.before_person.search(before)
        return ("LOCATION", 0.75) if to_place else ("PERSON", 0.9 if name.split()[0] != name else 0.85)
    if FIRM_TAIL.search(name):
        return "ORGANIZATION", 0.9
    return _unlisted(name, before, after, words, joined=joined, opening=opening, verb=verb)


def _unlisted(
    name: str, before: str, after: str, words: Lexicon, *, joined: bool, opening: bool, verb: bool
) -> tuple[str, float] | None:
    """A capitalised word on no list: by its neighbours; German capitalises every noun."""
    if words.language == "de":
        return None
    if opening:
        return ("PERSON", 0.7) if re.match(r"['’]s\b|\s+(?:and|y|e)\s+(?:I|yo|eu)\b", after) else None
    if joined or verb:
        return "PERSON", 0.75
    if words.before_place.search(before) and not (verb or words.before_person.search(before)):
        return "LOCATION", 0.75
    if words.before_person.search(before):
        return "PERSON", 0.75
    return _nearest_type(f"{before[-60:]} {name} {after[:60]}")


def _nearest_type(context: str) -> tuple[str, float]:
    """A guess that is never clear enough to count as a person or a place."""
    labels = label_set("entities")
    shares = LabelSet.shares(labels.scores([context])[0])
    shares[[labels.names.index("PERSON"), labels.names.index("LOCATION")]] = 0.0
    best = int(shares.argmax())
    return labels.names[best], round(0.3 + 0.4 * float(shares[best]), 3)
