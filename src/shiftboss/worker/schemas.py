"""The JSON Schema of a handler's arguments, as workers publish it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema

from shiftboss.model.terms import TERMS_KEY, to_json

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler


class _Lenient(GenerateJsonSchema):
    """A type that JSON Schema cannot describe may be anything."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base has it

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}


def schema_of(handler: Handler) -> dict[str, Any]:
    """What the arguments must look like as JSON; the function's docstring is the description."""
    model = handler.arguments
    schema: dict[str, Any] = {"type": "object"}
    if model is not None:
        schema = model.model_json_schema(schema_generator=_Lenient)
    schema["title"] = handler.name
    if about := inspect.getdoc(handler.function):
        schema["description"] = about
    if terms := to_json(handler):
        schema[TERMS_KEY] = terms
    return schema
