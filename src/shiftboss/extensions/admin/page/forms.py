"""Posted forms and the values in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from starlette.datastructures import UploadFile

from shiftboss.model.errors import UsageError

Pairs = Iterable[tuple[str, str | UploadFile]]


class Form:
    """A posted form. `act` is the name of the action and `arg` its target."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = list(pairs)
        self.act, _, self.arg = (self.text("act") or "").partition(" ")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name and isinstance(value, str)]

    def text(self, name: str) -> str | None:
        """Return the text of a field, or None if it is empty."""
        return next((value.strip() for value in self.all(name)), "") or None

    def flag(self, name: str) -> bool:
        return bool(self.all(name))

    def figure(self, name: str) -> int | None:
        """Return a whole number, or None if the field is empty."""
        typed = self.text(name)
        if typed is None:
            return None
        if not (typed.isascii() and typed.isdigit() and len(typed) <= 9):
            raise UsageError(f"{name.replace('_', ' ')} must be a whole number, not {typed!r}")
        return int(typed)

    def amount(self, name: str) -> float | None:
        """Return a positive number, or None if the field is empty."""
        typed = self.text(name)
        if typed is None:
            return None
        try:
            value = float(typed)
        except ValueError:
            raise UsageError(f"{name} must be a number, not {typed!r}") from None
        if not 0 < value <= 36_500:
            raise UsageError(f"{name} must be more than 0 and at most 36,500, not {typed}")
        return value

    def document(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object, or None if the field is empty."""
        typed = self.text(name)
        if typed is None:
            return None
        try:
            value = orjson.loads(typed)
        except orjson.JSONDecodeError as error:
            raise UsageError(f"{name} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise UsageError(f"{name} must be a JSON object", hint='for example {"days": 7}')
        return value

    def file(self, name: str) -> UploadFile | None:
        found = (value for key, value in self._pairs if key == name and isinstance(value, UploadFile))
        return next((file for file in found if file.filename), None)
