"""Validators for JSON Schemas from other processes: no remote references, no slow regular expressions."""

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

#: JSON Schema formats as pydantic reads them in workers. A time without a time zone is valid, for example.
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
    """Return a validator for a schema, given as JSON text. Raises ValueError if the schema is unusable."""
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
        if keyword == "patternProperties":  # jsonschema matches it with backtracking expressions
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
    """Match patterns as pydantic does, in linear time. A pattern that it cannot parse accepts everything."""
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
    """Whether a reference points to a part of the same schema."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return isinstance(reference, Mapping)  # an argument with that name, not a reference
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
