"""A form from a JSON Schema of plain fields, and the values back from what was filled in."""

from __future__ import annotations

from typing import Any

import orjson
from markupsafe import Markup

from shiftboss.admin.page.forms import check, field, select
from shiftboss.admin.page.markup import join
from shiftboss.model.errors import UsageError


def fields(schema: dict[str, Any]) -> Markup:
    return join(_field(name, _resolved(schema, one)) for name, one in schema.get("properties", {}).items())


def values_of(schema: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """What was filled in, as its kind; what was left empty is left to its default."""
    values = {}
    for name, one in schema.get("properties", {}).items():
        kind = _kind(_resolved(schema, one))
        if kind == "boolean":
            values[name] = name in given
        elif (text := given.get(name, "").strip()) != "":
            values[name] = _value(name, kind, text)
    return values


def _resolved(schema: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """The field itself: not the reference to it, not the choice between it and nothing."""
    if "$ref" in one:
        named: dict[str, Any] = schema["$defs"][one["$ref"].rpartition("/")[2]]
        return named | {key: value for key, value in one.items() if key != "$ref"}
    for choice in one.get("anyOf", ()):
        if choice.get("type") != "null":
            rest = {key: value for key, value in one.items() if key != "anyOf"}
            return _resolved(schema, choice) | rest
    return one


def _kind(one: dict[str, Any]) -> str:
    return str(one.get("type", "string"))


def _field(name: str, one: dict[str, Any]) -> Markup:
    label = one.get("title") or name
    about, default = one.get("description", ""), one.get("default")
    if _kind(one) == "boolean":
        return check(name, label, bool(default))
    if "enum" in one:
        return select(name, label, [str(option) for option in one["enum"]], str(default), none=None)
    shown = "" if default is None else default if isinstance(default, str | int | float) else _json(default)
    kind = "number" if _kind(one) == "integer" else "text"
    return field(name, label, shown, kind, about)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _value(name: str, kind: str, text: str) -> Any:
    if kind == "string":
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise UsageError(f"{name} should be of the kind {kind}, not {text!r}") from None
