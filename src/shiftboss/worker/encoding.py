"""Conversion of results to and from JSON that PostgreSQL can store."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, get_type_hints

import orjson
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from shiftboss.model.errors import ResultInvalid, UsageError

JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def to_json(what: str, result: Any, most: int) -> bytes | None:
    """Encode a result as JSON; None stays None. Raises UsageError if it cannot be stored."""
    if result is None:
        return None
    try:
        text = orjson.dumps(result, default=_plain, option=JSON)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the result of {what} is not JSON: {error}") from None
    if len(text) > most:
        raise UsageError(
            f"the result of {what} has {len(text)} bytes; at most {most} can be stored",
            hint="store it elsewhere and return a reference",
        )
    if b"\\u0000" in text:
        raise UsageError(f"the result of {what} contains a NUL character, which PostgreSQL cannot store")
    return text


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def decode(what: str, value: Any, kind: Any) -> Any:
    """Convert JSON to the type `kind`, or return it unchanged without a type."""
    adapter = None if kind in (None, Any) else _adapter(kind)
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ResultInvalid(
            f"the stored result of {what} does not have the requested type: {first['msg']}",
            hint="correct the type, or restart from that step: shiftboss tasks retry ID --from STEP",
        ) from None


@lru_cache(1000)
def _adapter(kind: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(kind)
    except (PydanticUserError, PydanticSchemaGenerationError):  # not a type that pydantic can validate
        return None


def schema_of(kind: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of the values that `decode` accepts for this type, or None for any JSON."""
    adapter = None if kind in (None, Any) else _adapter(kind)
    try:
        return adapter.json_schema() if adapter else None
    except PydanticUserError:  # pydantic can validate the type, but has no schema for it
        return None


def returns(function: Any) -> Any:
    """Return the annotated return type of a function, or None without an annotation."""
    if not getattr(function, "__annotations__", None):
        return None  # this also keeps lambdas out of the cache
    return _return_type(function)


@lru_cache(1000)
def _return_type(function: Any) -> Any:
    try:
        return get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None


def hints_of(function: Any) -> dict[str, Any]:
    """Return the evaluated annotations of a function, or none if one is imported for type checking only."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError:
        return {}
