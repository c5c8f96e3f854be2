"""Secrets that this process knows, and texts without them: servers like to quote what they were sent."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

SHORTEST = 6  # a shorter value occurs in any text by chance
ENOUGH = 8  # as much of a secret's beginning is hidden even if the rest was cut off
MASK = "[secret]"
_known: set[str] = set()


def remember_secret(value: str | None) -> None:
    """From now on `redact` takes this value out of any text, also as it looks in a URL or in JSON."""
    if value and len(value) >= SHORTEST:
        _known.update((value, quote(value, safe=""), json.dumps(value)[1:-1]))


def redact(text: str) -> str:
    """The text with every known secret masked, whole or cut off after its beginning."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    for secret in sorted(_known, key=len, reverse=True):
        text = _without_beginning(text, secret)
    return text


def _without_beginning(text: str, secret: str) -> str:
    start = text.find(secret[:ENOUGH]) if len(secret) > ENOUGH else -1
    while start >= 0:
        end = start + ENOUGH
        while end < len(text) and end - start < len(secret) and text[end] == secret[end - start]:
            end += 1
        text = text[:start] + MASK + text[end:]
        start = text.find(secret[:ENOUGH], start + len(MASK))
    return text


def redact_json(value: Any) -> Any:
    match value:
        case str():
            return redact(value)
        case list() | tuple():
            return [redact_json(item) for item in value]
        case dict():
            return {redact(str(key)): redact_json(item) for key, item in value.items()}
        case _:
            return value
