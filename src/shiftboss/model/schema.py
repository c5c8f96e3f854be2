"""JSON Schemas written by other processes: values are checked, nothing is fetched, and no pattern stalls."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import orjson
from pydantic import AnyUrl, StringConstraints, TypeAdapter, ValidationError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

#: JSON Schema's formats as the workers' models read them: a time without a time zone is fine, for example.
FORMATS: dict[str, Any] = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": UUID,
    "uri": AnyUrl,
}


@lru_cache(maxsize=1000)
def validator(schema: str) -> Validator:
    """What checks values against a schema, given as JSON text. ValueError: the schema cannot be used."""
    from jsonschema import FormatChecker, SchemaError
    from referencing import Registry

    parsed = json.loads(schema)
    kind = _kind()
    try:
        kind.check_schema(parsed)
    except SchemaError as error:
        raise ValueError(error.message) from None
    for keyword, value in _keywords(parsed):
        if keyword in ("$ref", "$dynamicRef") and not _resolves(parsed, value):
            raise ValueError(f"a schema may refer to its own parts only, not to {value}")
        if keyword == "patternProperties":  # matched by Python's backtracking expressions
            raise ValueError("patternProperties is not supported")
    checker = FormatChecker(formats=())
    for name in FORMATS:
        checker.checks(name)(_reader(FORMATS[name]))
    return kind(parsed, format_checker=checker, registry=Registry())


@cache
def _kind() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    return extend(Draft202012Validator, {"pattern": _pattern})


def _pattern(_: Validator, pattern: str, value: Any, __: Any) -> Iterator[Exception]:
    """Patterns are matched as pydantic does, in linear time. One that it cannot read refuses nothing."""
    from jsonschema import ValidationError as Wrong
    from pydantic_core import SchemaError

    if isinstance(value, str):
        try:
            fits = _reader(Annotated[str, StringConstraints(pattern=pattern)])(value)
        except SchemaError:
            return
        if not fits:
            yield Wrong(f"{value!r} does not match {pattern!r}")


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    stack = [schema]
    while stack:
        match stack.pop():
            case Mapping() as inner:
                yield from inner.items()
                stack.extend(inner.values())
            case list() as inner:
                stack.extend(inner)


def _resolves(schema: Any, reference: Any) -> bool:
    """Whether a reference leads to a part of the same schema."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return isinstance(reference, Mapping)  # an argument of that name, not a reference
    part = schema
    for step in reference[1:].split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, Mapping) or step not in part:
            return False
        part = part[step]
    return reference in ("#",) or reference.startswith("#/")


@lru_cache(maxsize=1000)
def _reader(kind: Any) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def reads(text: Any) -> bool:
        try:
            return (
                not isinstance(text, str) or adapter.validate_json(orjson.dumps(text)) is not NotImplemented
            )
        except ValidationError:
            return False

    return reads
