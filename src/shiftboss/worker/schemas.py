"""The JSON Schema of a handler's arguments, which workers publish."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema

from shiftboss.model.terms import TERMS_KEY, to_json

if TYPE_CHECKING:
    from shiftboss.worker.handlers import Handler


class _Lenient(GenerateJsonSchema):
    """Generates a schema that accepts anything for types that JSON Schema cannot describe."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}


def schema_of(handler: Handler) -> dict[str, Any]:
    """Return the schema of a handler's arguments, with the function's docstring as description."""
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
