"""Raw data parsing: a typed entry out of free text, a voice transcript or an image description."""

from __future__ import annotations

import re
from typing import Any

from shiftboss.extensions.ai.providers.local.extraction import DATE
from shiftboss.extensions.ai.providers.local.phrases import key_phrases
from shiftboss.extensions.ai.providers.local.text import Text

FIELD = re.compile(r"^[ \t]*([A-Za-z][\w -]{0,30}?)[ \t]*[:=][ \t]*(\S.*)$", re.MULTILINE)
TAG = re.compile(r"(?<!\w)#(\w+)")
TIMESTAMP = re.compile(r"^\s*[\[(]?\d{1,2}:\d{2}(?::\d{2})?[\])]?\s*(?:[-–]\s*)?", re.MULTILINE)
SPEAKER = re.compile(r"^\s*(?:speaker\s*\d+|me|voice)\s*:\s*", re.IGNORECASE | re.MULTILINE)
FILLER = re.compile(r"\b(?:um+|uh+|erm+)\b,?\s*", re.IGNORECASE)
SPOKEN = re.compile(r"\b(?:um+|uh+|erm+|you know|i mean)\b", re.IGNORECASE)
IMAGE = re.compile(
    r"^\s*\(?\s*(?:an?\s+)?(?:image|photo|picture|photograph|screenshot|drawing)\b", re.IGNORECASE
)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
TRUTH = {"true": True, "yes": True, "false": False, "no": False}


def facts(text: Text, kind: str | None = None) -> dict[str, Any]:
    """What needs no judgement: the text without timestamps, speaker marks and filler sounds, and so on.

    Named values are told once more as fields, but stay in the text where they were written.
    """
    clean = Text(_clean(text.raw, kind or source_of(text.raw)))
    return {
        "text": clean.raw,
        "sentences": clean.sentences,
        "fields": _split_fields(text.raw)[1],
        "dates": list(dict.fromkeys(match.group() for match in DATE.finditer(clean.raw))),
        "tags": list(dict.fromkeys(tag.lower() for tag in TAG.findall(text.raw))),
    }


def parse_raw(text: Text, kind: str | None = None) -> dict[str, Any]:
    source = kind or source_of(text.raw)
    found = facts(text, source)
    clean = Text(found["text"])
    named = clean.language[1] if clean.words else 0.0
    fields = {name: value for name, value in found["fields"].items() if name != "title"}
    judged = {"title": title_of(text, source), "language": clean.language[0], "source": source}
    return {
        "processed_data": found | judged | {"fields": fields},
        "confidence_score": round(min(1.0, 0.5 * named + 0.5 * min(1.0, 0.3 + len(clean.words) / 20)), 3),
    }


def title_of(text: Text, source: str) -> str:
    """The title that the text states, or its first sentence if that is short, or its best phrase."""
    body, fields = _split_fields(text.raw)
    return str(fields.get("title") or _title(Text(_clean(body, source))))


def source_of(raw: str) -> str:
    if IMAGE.match(raw):
        return "image_description"
    if TIMESTAMP.search(raw) or SPEAKER.search(raw) or len(SPOKEN.findall(raw)) >= 2:
        return "voice_transcript"
    return "text"


def _split_fields(raw: str) -> tuple[str, dict[str, Any]]:
    """`Name: value` lines become fields; what is left is the text. A lone clock time is no field."""
    fields: dict[str, Any] = {}

    def take(match: re.Match[str]) -> str:
        name, value = match.group(1).strip().lower(), match.group(2).strip()
        if len(name.split()) > 3 or name.startswith(("speaker", "me", "voice", "http")):
            return match.group()
        fields[name.replace(" ", "_").replace("-", "_")] = _typed(value)
        return ""

    return FIELD.sub(take, raw).strip(), fields


def _typed(value: str) -> Any:
    if value.lower() in TRUTH:
        return TRUTH[value.lower()]
    if NUMBER.fullmatch(value):
        return float(value) if "." in value else int(value)
    if "," in value and all(len(part.split()) <= 3 for part in value.split(",")):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _clean(body: str, source: str) -> str:
    if source == "voice_transcript":
        body = FILLER.sub("", SPEAKER.sub("", TIMESTAMP.sub("", body)))
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in body.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _title(text: Text) -> str:
    if not text.sentences:
        return ""
    first = text.sentences[0].lstrip("# ").rstrip(".!?… ")
    if len(first) <= 60:
        return first
    phrases = key_phrases(text, most=1)
    return phrases[0].capitalize() if phrases else first[:57].rsplit(" ", 1)[0] + "…"
