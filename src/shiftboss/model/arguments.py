"""Validation of task arguments against the JSON Schema that workers publish for the task type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shiftboss.model.errors import UsageError
from shiftboss.model.schema import validator

if TYPE_CHECKING:
    import jsonschema
    from jsonschema.protocols import Validator


class BadArguments(UsageError):
    """The task's params do not fit the handler's signature. The task is not retried."""


def check_arguments(task_type: str, params: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Raise BadArguments, naming each invalid argument and the type that is expected."""
    problems = _problems(params, schema)
    if problems:
        raise BadArguments(
            f"arguments of {task_type} are not valid: {'; '.join(problems)}",
            hint=f"{task_type} takes {signature(schema)}",
        )


def fits(value: Any, schema: Mapping[str, Any], name: str) -> bool:
    """Whether one argument may have this value. True if the schema does not mention the argument."""
    part = schema.get("properties", {}).get(name)
    if part is None:
        return True
    checks = _validator({"$defs": schema.get("$defs", {}), **part})
    return checks is None or checks.is_valid(value)


def signature(schema: Mapping[str, Any]) -> str:
    """Return the arguments in one line: `image_id: integer, size: integer = 128`."""
    needed = schema.get("required", ())
    return ", ".join(
        f"{name}: {kind(part, schema)}" + ("" if name in needed else f" = {_text(part.get('default'))}")
        for name, part in schema.get("properties", {}).items()
    ) or ("no arguments" if schema.get("additionalProperties") is False else "any arguments")


def secret(schema: Mapping[str, Any], name: Any) -> bool:
    """Whether this argument is or may contain a secret: Pydantic marks such types as write-only."""
    text = _text(schema.get("properties", {}).get(name))
    return "writeOnly" in (_text(schema) if "$ref" in text else text)


def kind(part: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Describe the type of a value in words."""
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        part = whole.get("$defs", {}).get(name, {})
    if "enum" in part or "const" in part:
        return " or ".join(_text(value) for value in part.get("enum", [part.get("const")]))
    if choices := part.get("anyOf") or part.get("oneOf"):
        return " or ".join(dict.fromkeys(kind(choice, whole) for choice in choices))
    if part.get("type") == "array" and part.get("items"):
        return f"array of {kind(part['items'], whole)}"
    return str(part.get("format") or part.get("type") or "anything")


def _problems(params: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    checks = _validator(schema)
    if checks is None:
        return []
    try:
        errors = list(checks.iter_errors(dict(params)))
    except RecursionError:
        return ["params: nested too deeply"]
    return list(dict.fromkeys(problem for error in errors for problem in _problem(error, schema)))


def _problem(error: jsonschema.ValidationError, schema: Mapping[str, Any]) -> list[str]:
    path, given = list(error.absolute_path), error.instance
    if error.validator == "required":
        missing = [[*path, name] for name in error.validator_value if name not in given]
        return [f"{_where(one)}: it is missing{_expected(one, schema)}" for one in missing]
    if error.validator == "additionalProperties" and isinstance(given, Mapping):
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        return [f"{_where([*path, name])}: there is no such argument" for name in given if name not in known]
    value = _text(given)
    shown = value if len(value) <= 100 else f"{value[:100]}…"
    if error.validator in ("type", "anyOf", "oneOf", "enum", "const", "format"):
        return [f"{_where(path)}: {shown} does not fit{_expected(path, schema)}"]
    return [f"{_where(path)}: {error.message}"]


def _expected(path: list[Any], schema: Mapping[str, Any]) -> str:
    part: Mapping[str, Any] = schema
    for step in path:
        if "$ref" in part:
            part = schema.get("$defs", {}).get(str(part["$ref"]).rpartition("/")[2], {})
        inner = part.get("items") if isinstance(step, int) else part.get("properties", {}).get(step)
        if not isinstance(inner, Mapping):
            return ""
        part = inner
    return f", {kind(part, schema)} is expected"


def _where(path: list[Any]) -> str:
    return ".".join(map(str, path)) or "params"


def _text(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def compiled(schema: Mapping[str, Any]) -> bool:
    """Whether this is a JSON Schema that arguments can be validated against."""
    return _validator(schema) is not None


def _validator(schema: Mapping[str, Any]) -> Validator | None:
    """Return None for an invalid schema, which then accepts everything."""
    try:
        return validator(_text(schema))
    except ValueError:
        return None
