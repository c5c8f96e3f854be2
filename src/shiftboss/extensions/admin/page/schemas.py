"""Make forms from a JSON Schema and read their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.model.errors import UsageError

Schema = Mapping[str, Any]
PLAIN = ("boolean", "integer", "number", "string")
WHOLE = "value"  # the name of the only field if the value is not an object


def fits_form(schema: Any, given: Mapping[str, Any] | None = None) -> bool:
    """Whether a form can edit this object: its properties are known, and `given` has no others."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return False
    return set(given or ()) <= set(schema["properties"])


def schema_fields(
    schema: Schema, given: Mapping[str, Any] | None = None, prefix: str = ""
) -> list[dict[str, Any]]:
    """Return one field per property, as `ui.schema_field` expects it."""
    needed = schema.get("required", ())
    return [
        _field(key, _resolved(schema, one), prefix, given or {}, key in needed)
        for key, one in schema.get("properties", {}).items()
    ]


def schema_values(form: Form, schema: Schema, prefix: str = "") -> dict[str, Any]:
    """Return the values of the form. Empty fields are left out, so that their defaults apply."""
    values: dict[str, Any] = {}
    for field in schema_fields(schema, prefix=prefix):
        typed = form.text(field["name"])
        if field["kind"] == "boolean":
            values[field["key"]] = typed not in (None, "false")
        elif typed is not None:
            values[field["key"]] = _value(field, typed)
    return values


def as_object(schema: Any) -> dict[str, Any]:
    """Wrap a schema that is not an object, so that every schema can be shown as a form."""
    if fits_form(schema):
        found: dict[str, Any] = schema
        return found
    inside = schema if isinstance(schema, dict) else {}
    about = {"title": "Answer as JSON"} if not isinstance(inside.get("type"), str) else {"title": "Answer"}
    properties = {WHOLE: about | inside}
    return {"properties": properties, "required": [WHOLE], "$defs": inside.get("$defs", {})}


def from_object(schema: Any, values: dict[str, Any]) -> Any:
    """Return the value from those of the form made by `as_object`."""
    return values if fits_form(schema) else values.get(WHOLE)


def _field(key: str, one: Schema, prefix: str, given: Mapping[str, Any], needed: bool) -> dict[str, Any]:
    value = given.get(key, one.get("default"))
    options = list(one.get("enum", [one["const"]] if "const" in one else ()))
    kind = _kind(one, options)
    return {
        "name": prefix + key,
        "key": key,
        "label": str(one.get("title") or key),
        "kind": kind,
        "about": str(one.get("description", "")),
        "options": {_shown(option): str(option) for option in options},
        "default": value if kind == "boolean" else _shown(value),
        "needed": needed and value is None,
        "enum": options,
    }


def _kind(one: Schema, options: list[Any]) -> str:
    if options:
        return "choice"
    kind = one.get("type")
    return kind if isinstance(kind, str) and kind in PLAIN else "json"


def _shown(value: Any) -> str:
    """Return a value as the text of a field."""
    if value is None or isinstance(value, str):
        return value or ""
    return orjson.dumps(value, default=str).decode()


def _resolved(schema: Schema, one: Any, depth: int = 0) -> dict[str, Any]:
    """Follow references, and reduce an optional type to the type itself."""
    if not isinstance(one, dict) or depth > 8:
        return {}
    if isinstance(one.get("$ref"), str):
        named = schema.get("$defs", {}).get(one["$ref"].rpartition("/")[2], {})
        rest = {key: value for key, value in one.items() if key != "$ref"}
        return _resolved(schema, named, depth + 1) | rest
    some = [choice for choice in one.get("anyOf", ()) if choice.get("type") != "null"]
    if len(some) == 1:
        rest = {key: value for key, value in one.items() if key != "anyOf"}
        return _resolved(schema, some[0], depth + 1) | rest
    return one


def _value(field: Mapping[str, Any], text: str) -> Any:
    if field["kind"] == "string":
        return text
    if field["kind"] == "choice":
        return next((option for option in field["enum"] if _shown(option) == text), text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        what = "valid JSON" if field["kind"] == "json" else f"of type {field['kind']}"
        raise UsageError(f"{field['key']} must be {what}, not {text!r}") from None
