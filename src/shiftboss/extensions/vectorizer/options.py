"""Parsers for the structured options of `shiftboss vectorizer`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from shiftboss.model.errors import UsageError

CONDITION = re.compile(r"\s*([^<>=!]+?)\s*(>=|<=|<>|!=|=|<|>)\s*(.*)", re.DOTALL)
SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
UNITS = {"ms": 0.001, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def conditions(given: Iterable[str]) -> dict[str, dict[str, str]] | None:
    """Parse conditions such as `lang=en` and `hits>=5` into a search filter."""
    found: dict[str, dict[str, str]] = {}
    for text in given:
        if (match := CONDITION.fullmatch(text)) is None:
            raise UsageError(f"{text!r} is not a condition", hint="for example: lang=en or 'hits>=5'")
        column, operator, value = match.groups()
        found.setdefault(column, {})["<>" if operator == "!=" else operator] = value
    return found or None


def index_options(given: Iterable[str] | None) -> dict[str, Any] | None:
    """Parse index options such as `m=16` into an object. The database checks their names and values."""
    if not given:
        return None
    pairs = [text.partition("=") for text in given]
    if bad := [name for name, _, value in pairs if not value.isdecimal()]:
        raise UsageError(f"index option {bad[0]!r} is not a number", hint="for example: m=16")
    return {name: int(value) for name, _, value in pairs}


def seconds(text: str) -> float:
    """Parse a duration such as `5`, `5s`, `500ms`, `2m` or `1h` into seconds."""
    match = SPAN.fullmatch(text.strip())
    if match is None or not (span := float(match[1]) * UNITS[match[2]]):
        raise UsageError(f"{text!r} is not a positive duration", hint="for example: 5s, 500ms or 2m")
    return span
