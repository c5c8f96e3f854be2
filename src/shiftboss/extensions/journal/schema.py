"""Infers a JSON Schema from one example, and the processing rules for kinds of content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"
RULES = {
    "text": "clean the text",
    "voice_transcript": "remove fillers, speaker names and time stamps",
    "image_description": "use for entities and themes, not for mood",
}


def infer_schema(document: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Return a schema that the document satisfies, and the share of values with a clear type."""
    counts = {"clear": 0, "all": 0}
    schema = {"$schema": DRAFT} | _of(document, counts)
    return schema, counts["clear"] / max(1, counts["all"])


def _of(value: Any, counts: dict[str, int]) -> dict[str, Any]:
    if isinstance(value, dict):
        properties = {key: _of(item, counts) for key, item in value.items()}
        required = sorted(key for key, item in value.items() if item is not None)
        return {"type": "object", "properties": properties, "required": required}
    if isinstance(value, list):
        return _of_list(value, counts)
    counts["all"] += 1
    counts["clear"] += value is not None
    return _of_scalar(value)


def _of_list(items: list[Any], counts: dict[str, int]) -> dict[str, Any]:
    shapes: list[dict[str, Any]] = []
    for item in items:
        shape = _of(item, counts)
        if shape not in shapes:
            shapes.append(shape)
    if not shapes:
        return {"type": "array"}
    return {"type": "array", "items": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}}


def _of_scalar(value: Any) -> dict[str, Any]:
    if value is None:
        return {"type": "null"}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": "integer"}
    if isinstance(value, float):
        return {"type": "number"}
    return {"type": "string"} | _format(value)


def _format(text: str) -> dict[str, str]:
    if re.fullmatch(r"https?://\S+", text):
        return {"format": "uri"}
    if not re.match(r"\d{4}-\d{2}-\d{2}", text):
        return {}
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return {}
    return {"format": "date" if len(text) == 10 else "date-time"}


def content_type(kinds: Sequence[str]) -> str:
    return kinds[0] if len(set(kinds)) == 1 else "mixed"


def processing_rules(kinds: Sequence[str]) -> list[str]:
    return [rule for kind, rule in RULES.items() if kind in kinds]
