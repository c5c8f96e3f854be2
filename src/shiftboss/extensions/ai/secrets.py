"""Masks the secrets of this process in texts, since servers often quote the request in their errors."""

from __future__ import annotations

import json
from urllib.parse import quote

MIN_LENGTH = 6  # shorter values occur in texts by chance
PREFIX = 8  # characters at the start of a secret that are masked even if the rest is missing
MASK = "[secret]"
_known: set[str] = set()


def remember_secret(value: str | None) -> None:
    """Make `redact` mask this value in all texts, also in its URL-encoded and JSON forms."""
    if value and len(value) >= MIN_LENGTH:
        _known.update((value, quote(value, safe=""), json.dumps(value)[1:-1]))


def redact(text: str) -> str:
    """Return the text with every known secret masked, even if only its beginning is present."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    for secret in sorted(_known, key=len, reverse=True):
        text = _without_prefix(text, secret)
    return text


def _without_prefix(text: str, secret: str) -> str:
    start = text.find(secret[:PREFIX]) if len(secret) > PREFIX else -1
    while start >= 0:
        end = start + PREFIX
        while end < len(text) and end - start < len(secret) and text[end] == secret[end - start]:
            end += 1
        text = text[:start] + MASK + text[end:]
        start = text.find(secret[:PREFIX], start + len(MASK))
    return text
