"""Content extraction: key phrases and entities by rules, unclear names typed by described labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from shiftboss.ai.providers.local.labels import LabelSet, label_set, not_names
from shiftboss.ai.providers.local.phrases import key_phrases
from shiftboss.ai.providers.local.text import Text

NAME = re.compile(
    r"\b[A-Z][\w’'-]+(?:\s+(?:of|de|van|von|the)\s+(?=[A-Z])|\s+(?=[A-Z]))?(?:[A-Z][\w’'-]+\s?){0,3}"
)
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"
DATE = re.compile(
    rf"\b(?:\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}"
    rf"|(?:{MONTHS})\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?|\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{MONTHS})"
    rf"|(?:(?:next|last|this)\s+)?(?:{DAYS})|today|yesterday|tomorrow|tonight|(?:next|last)\s+(?:week|month|year))\b",
    re.IGNORECASE,
)
KIN = re.compile(
    r"\b(?:my\s+)?(?:mother|father|mum|mom|dad|sister|brother|wife|husband|son|daughter"
    r"|grandmother|grandfather|grandma|grandpa|aunt|uncle|cousin|girlfriend|boyfriend|boss|manager"
    r"|best friend|therapist|neighbou?r)\b",
    re.IGNORECASE,
)
EVENT = re.compile(
    r"\b(?:(?:team|birthday|family|board|weekly|annual|farewell|dinner|christmas|wedding|job|staff|school)\s+)?"
    r"(?:meeting|party|wedding|birthday|conference|interview|funeral|concert|festival|exam|workshop|reunion"
    r"|graduation|anniversary|marathon|standup|presentation|appointment|ceremony|exhibition)\b",
    re.IGNORECASE,
)
PLACE = re.compile(
    r"\b(?:office|work|home|gym|park|school|university|hospital|airport|library|restaurant|café|cafe|beach|church"
    r"|supermarket|station|museum|cinema|garden|forest|kitchen)\b",
    re.IGNORECASE,
)
PLACE_TAIL = re.compile(
    r"\b(?:Street|Avenue|Road|Park|Lake|River|Mountains?|Beach|Island|City|Square|Bridge|Bay)$"
)
FIRM_TAIL = re.compile(
    r"\b(?:Inc|Ltd|LLC|GmbH|Corp|Company|University|College|Hospital|Bank|Institute|School|Club)\.?$"
)
TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|Aunt|Uncle|Grandma|Grandpa)\.?\s*$")
NEAR_PERSON = re.compile(
    r"\b(?:with|met|called|told|asked|and|thanked|hugged|helped|visited|saw|from|by|for|miss|missed|invited|friend"
    r"|sister|brother|colleague|boss|son|daughter|wife|husband|cousin|named)\s+$",
    re.IGNORECASE,
)
NEAR_PLACE = re.compile(
    r"\b(?:in|to|from|near|through|across|around|towards?|into|visiting|explored|left)\s+$", re.IGNORECASE
)
NEAR_FIRM = re.compile(r"\b(?:at|joined|for|by)\s+$", re.IGNORECASE)
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
    for sentence in text.sentences:
        for name, kind, confidence in _mentions(sentence):
            key = (name.lower(), kind)
            if key not in best or best[key]["confidence"] < confidence:
                best[key] = {"text": name, "type": kind, "confidence": confidence}
    return list(best.values())


def _mentions(sentence: str) -> Iterator[tuple[str, str, float]]:
    taken: list[tuple[int, int]] = []

    def free(match: re.Match[str]) -> bool:
        return all(match.end() <= start or match.start() >= end for start, end in taken)

    for pattern, kind, confidence in ((DATE, "DATE", 0.95), (EVENT, "EVENT", 0.85), (KIN, "PERSON", 0.85)):
        for match in filter(free, pattern.finditer(sentence)):
            taken.append(match.span())
            yield match.group().strip(), kind, confidence
    for match in filter(free, NAME.finditer(sentence)):
        name = match.group().strip(" '’").removesuffix("'s").removesuffix("’s")
        if _is_name(name, at_start=not sentence[: match.start()].strip(" \"'“‘(")):
            taken.append(match.span())
            yield (name, *_type_of(name, sentence[: match.start()], sentence[match.start() + len(name) :]))
    for match in filter(free, PLACE.finditer(sentence)):
        yield match.group(), "LOCATION", 0.7


def _is_name(name: str, *, at_start: bool) -> bool:
    first = name.split()[0].lower()
    if first in not_names() or len(name) < 2:
        return False
    return not (at_start and " " not in name and first.endswith(("ing", "ed", "ly", "s")))


def _type_of(name: str, before: str, after: str) -> tuple[str, float]:
    if TITLED.search(before) or TITLED.match(name):
        return "PERSON", 0.9
    if PLACE_TAIL.search(name):
        return "LOCATION", 0.9
    if FIRM_TAIL.search(name):
        return "ORGANIZATION", 0.9
    if NEAR_PLACE.search(before):
        return "LOCATION", 0.8
    if PERSON_VERB.match(after) or NEAR_PERSON.search(before):
        return "PERSON", 0.8
    if NEAR_FIRM.search(before):
        return "ORGANIZATION", 0.6
    return _nearest_type(f"{before[-60:]} {name} {after[:60]}")


def _nearest_type(context: str) -> tuple[str, float]:
    labels = label_set("entities")
    shares = LabelSet.shares(labels.scores([context])[0])
    best = int(shares.argmax())
    return labels.names[best], round(0.3 + 0.4 * float(shares[best]), 3)
