"""Converts a raw record of any app to the fields of an entry.

Field names are normalised (`voiceNote`, `Voice Note` and `voice_note` are the same), dates become timestamps
with a time zone, and text, voice and image become parts. Unknown fields are kept under `metadata.extra`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import orjson

from shiftboss.extensions.journal.entry import KINDS, Kind, digest
from shiftboss.model.errors import UsageError

ALIASES: dict[str, tuple[str, ...]] = {
    "id": ("id", "entry_id", "external_id", "uuid", "key"),
    "user": ("user", "user_id", "author", "owner", "username", "writer"),
    "written_at": ("written_at", "date", "datetime", "timestamp", "created_at", "written", "when"),
    "timezone": ("timezone", "tz", "time_zone"),
    "language": ("language", "lang"),
    "title": ("title", "subject", "heading"),
    "tags": ("tags", "labels", "categories"),
    "weather": ("weather",),
    "location": ("location", "place", "where", "city"),
    "mood": ("mood", "self_mood"),
    "duration_seconds": ("duration_seconds", "voice_seconds", "duration"),
    "parts": ("parts",),
}
PART_ALIASES: dict[Kind, tuple[str, ...]] = {
    "text": ("text", "body", "content", "entry", "note", "journal"),
    "voice_transcript": ("voice_transcript", "voice", "voice_note", "transcript", "audio"),
    "image_description": ("image_description", "image", "photo", "picture", "caption"),
}
LONGEST_ENTRY = 1_000_000  # characters; the analysis of such an entry takes a minute
LONGEST_NAME = 500  # bytes; two names must fit into an index
OURS = ("results",)  # fields that an export adds
FIELD_OF = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
KIND_OF: dict[str, Kind] = {alias: kind for kind, aliases in PART_ALIASES.items() for alias in aliases}


class BadEntry(UsageError):
    """A record is not a valid entry."""


@dataclass(frozen=True, slots=True)
class Parsed:
    user_id: str
    external_id: str
    written_at: datetime
    timezone: str
    language: str | None
    parts: list[dict[str, Any]]
    metadata: dict[str, Any]
    source: dict[str, Any]
    renamed: dict[str, str]

    def row(self) -> dict[str, Any]:
        """Return the row for `journal.upsert_entries`."""
        at = self.written_at.isoformat()
        content = [at, self.timezone, self.parts, self.metadata]
        return {
            "user_id": self.user_id,
            "external_id": self.external_id,
            "content_hash": digest(content),
            "written_at": at,
            "timezone": self.timezone,
            "language": self.language,
            "parts": self.parts,
            "metadata": self.metadata,
            "source": self.source,
        }


def parse(raw: Mapping[str, Any], *, user: str | None = None) -> Parsed:
    """Return the entry. Raises `BadEntry` if writer, time or content is missing or invalid."""
    raw = _plain(raw)
    fields, parts, extra, renamed = _sort_fields(raw)
    parts = [*_listed_parts(fields.get("parts")), *parts]
    if not parts:
        raise BadEntry("no content", hint="add `text`, `voice_transcript`, `image_description` or `parts`")
    if sum(len(part["content"]) for part in parts) > LONGEST_ENTRY:
        raise BadEntry(f"longer than {LONGEST_ENTRY} characters", hint="split it into several entries")
    writer = _short("user", str(fields.get("user") or user or "").strip())
    if not writer:
        raise BadEntry("no user", hint="add a `user` field or import with --user")
    _attach_duration(parts, fields.get("duration_seconds"))
    zone = _zone(fields.get("timezone"))
    written_at = _moment(fields.get("written_at"), zone)
    language = _text(fields.get("language"))
    given = _short("id", _text(fields.get("id")))
    return Parsed(
        user_id=writer,
        external_id=given or digest([writer, written_at.isoformat(), parts])[:32],
        written_at=written_at,
        timezone=zone.key,
        language=language,
        parts=parts,
        metadata=_metadata(fields, language, extra),
        source=dict(raw),
        renamed=renamed,
    )


def snake(name: str) -> str:
    """Return the name in snake case: `voiceNote`, `Voice Note` and `voice-note` become `voice_note`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


Sorted = tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any], dict[str, str]]


def _sort_fields(raw: Mapping[str, Any]) -> Sorted:
    fields: dict[str, Any] = {}
    parts: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    for name, value in raw.items():
        key = snake(name)
        if key in OURS:
            continue
        known = FIELD_OF.get(key) or KIND_OF.get(key)
        if known and known != name:
            renamed[name] = known
        if key in FIELD_OF:
            fields.setdefault(FIELD_OF[key], value)
        elif key in KIND_OF:
            if isinstance(value, str) and value.strip():
                parts.append({"kind": KIND_OF[key], "content": value})
        elif value not in (None, ""):
            extra[key or name] = value
    parts.sort(key=lambda part: KINDS.index(part["kind"]))
    return fields, parts, extra, renamed


def _listed_parts(listed: Any) -> list[dict[str, Any]]:
    if listed is None:
        return []
    if not isinstance(listed, list):
        raise BadEntry("`parts` is not a list", hint="write a list of objects with `kind` and `content`")
    return [_listed_part(part) for part in listed]


def _listed_part(part: Any) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        raise BadEntry("a part is not an object with `kind` and `content`")
    kind = KIND_OF.get(snake(str(part.get("kind") or part.get("type") or "text")))
    content = part.get("content") or part.get("text")
    if kind is None:
        raise BadEntry(f"unknown kind of part {part.get('kind')!r}", hint=f"use one of {', '.join(KINDS)}")
    if not isinstance(content, str) or not content.strip():
        raise BadEntry(f"a part of kind {kind} has no content")
    rest = {key: value for key, value in part.items() if key not in ("kind", "type", "content", "text")}
    return {"kind": kind, "content": content, **rest}


def _attach_duration(parts: list[dict[str, Any]], seconds: Any) -> None:
    for part in parts:
        if part["kind"] == "voice_transcript" and isinstance(seconds, int | float):
            part.setdefault("duration_seconds", seconds)


def _zone(value: Any) -> ZoneInfo:
    name = str(value or "UTC")
    if name not in _zones():
        raise BadEntry(f"unknown time zone {value!r}", hint="use an IANA name such as Europe/Lisbon")
    return ZoneInfo(name)


@cache
def _zones() -> set[str]:
    """Return the names that PostgreSQL also has and that do not depend on the machine."""
    return available_timezones() - {"localtime", "Factory"}


def _moment(value: Any, zone: ZoneInfo) -> datetime:
    if isinstance(value, int | float) and not isinstance(value, bool):
        moment = _from_unix(value)
    else:
        moment = _from_iso(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    if not 1000 <= moment.year <= 9000:
        raise BadEntry(f"the year {moment.year} is out of range")
    return moment.astimezone(UTC)


def _from_iso(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(value or "").strip())
    except ValueError as error:
        what = "no date" if not value else f"cannot read the date {value!r}"
        raise BadEntry(what, hint="write `written_at` in ISO 8601, such as 2025-03-01T21:30") from error


def _from_unix(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds / 1000 if abs(seconds) > 1e11 else seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise BadEntry(f"the Unix time {seconds} is out of range") from error


def _metadata(fields: Mapping[str, Any], language: str | None, extra: dict[str, Any]) -> dict[str, Any]:
    found = {
        "title": _text(fields.get("title")),
        "tags": _tags(fields.get("tags")),
        "weather": _weather(fields.get("weather")),
        "location": _location(fields.get("location")),
        "language": language,
        "mood": fields.get("mood"),
        "extra": extra,
    }
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _text(value: Any) -> str | None:
    return str(value).strip() or None if value is not None else None


def _tags(value: Any) -> list[str]:
    words = value if isinstance(value, list) else re.split(r"[,;]", str(value or ""))
    tags = (str(word).strip().lstrip("#").lower() for word in words)
    return list(dict.fromkeys(tag for tag in tags if tag))


def _weather(value: Any) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    text = _text(value)
    if text is None:
        return None
    degrees = re.search(r"-?\d+(?:\.\d+)?(?=\s*°?\s*C\b)", text)
    condition = re.split(r"[,;]", text)[0].strip()
    return {"condition": condition} | ({"temperature_c": float(degrees[0])} if degrees else {})


def _location(value: Any) -> str | None:
    return _text(value.get("name") if isinstance(value, Mapping) else value)


def _short(what: str, text: str | None) -> str | None:
    if text and len(text.encode()) > LONGEST_NAME:
        raise BadEntry(f"the {what} is longer than {LONGEST_NAME} bytes", hint=f"use a shorter `{what}`")
    return text


def _plain(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record as plain JSON, since YAML may contain other types."""
    try:
        plain: dict[str, Any] = orjson.loads(orjson.dumps(raw, default=str, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, RecursionError) as error:
        raise BadEntry(f"cannot be stored as JSON: {error}") from error
    _refuse_nul(plain)
    return plain


def _refuse_nul(value: Any) -> None:
    if isinstance(value, str) and "\x00" in value:
        raise BadEntry("contains a NUL character", hint="remove it: PostgreSQL cannot store it")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_nul(key)
            _refuse_nul(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_nul(item)
