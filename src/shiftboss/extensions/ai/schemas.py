"""Structured answers: converts schemas for providers and validates answers against them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from shiftboss.extensions.ai.errors import Malformed, Truncated
from shiftboss.extensions.ai.protocol import Chat, Message, Reply

#: Keywords that strict mode does not allow; pydantic checks them when it validates the answer.
LOOSE = ("default", "title", "minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems")
INSTRUCTION = (
    "Reply with one JSON object and nothing around it: no prose, no code fence. "
    "The object must satisfy this JSON schema:\n"
)
CORRECTION = (
    "That reply is invalid: {}\nSend the complete JSON object again with this corrected, and nothing else."
)


@cache
def json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    return schema.model_json_schema()


@cache
def strict_schema(schema: type[BaseModel]) -> dict[str, Any] | None:
    """Return the schema for strict mode, with every property required, or None if it cannot be expressed."""
    try:
        strict = _strict(json_schema(schema))
    except NotImplementedError:
        return None
    return strict if isinstance(strict, dict) else None


def _strict(part: Any) -> Any:
    if isinstance(part, list):
        return [_strict(item) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return {"$ref": part["$ref"]}  # strict mode allows no sibling keywords
    if part.get("type") == "object" or "properties" in part:
        return _strict_object(part)
    if not set(part) & {"type", "anyOf", "enum", "const"} or "prefixItems" in part:
        raise NotImplementedError("not supported by strict mode")
    return {key: _strict_part(key, value) for key, value in part.items() if key not in LOOSE}


def _strict_object(part: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in part or part.get("additionalProperties") not in (None, False):
        raise NotImplementedError("strict mode does not support mappings with arbitrary keys")
    kept = {key: _strict_part(key, value) for key, value in part.items() if key not in LOOSE}
    return kept | {"required": list(part["properties"]), "additionalProperties": False}


def _strict_part(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        return {name: _strict(item) for name, item in value.items()}
    return _strict(value) if key in ("items", "anyOf") else value


def instructed(chat: Chat) -> list[Message]:
    """Return the messages; if the chat has a schema, the system message describes it."""
    if chat.schema is None:
        return list(chat.messages)
    words = INSTRUCTION + orjson.dumps(json_schema(chat.schema)).decode()
    head, *rest = chat.messages
    if head["role"] != "system":
        return [{"role": "system", "content": words}, head, *rest]
    return [head | {"content": f"{head['content']}\n\n{words}"}, *rest]


def corrected(chat: Chat, bad: Malformed) -> Chat:
    return chat.correction(bad.answer, CORRECTION.format(bad.error))


def context_of(chat: Chat) -> dict[str, Any]:
    """Return the variables of the chat, which validators of the schema receive as `info.context`."""
    return dict(chat.variables)


def validated(chat: Chat, reply: Reply) -> Reply:
    """Return the reply with its payload validated against the schema, if there is one."""
    if chat.schema is None or reply.tool_calls:
        return reply
    try:
        value = _value(chat, reply)
    except ValidationError as error:
        if reply.finish_reason == "length":
            message = f"the answer was cut off after {reply.usage.completion_tokens} tokens"
            raise Truncated(reply.provider, message, hint="raise max_tokens", usage=reply.usage) from None
        raise Malformed(reply.provider, _described(error), reply.text, reply.usage) from None
    return replace(reply, payload=_storable(orjson.loads(value.model_dump_json())))


def _value(chat: Chat, reply: Reply) -> BaseModel:
    assert chat.schema is not None
    if isinstance(reply.payload, str):
        return chat.schema.model_validate_json(bare_json(reply.payload), context=context_of(chat))
    return chat.schema.model_validate(reply.payload, context=context_of(chat))


def _described(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}" for e in error.errors()[:5])


def _storable(value: Any) -> Any:
    """Return the JSON value without NUL characters, which PostgreSQL cannot store."""
    match value:
        case str():
            return value.replace("\x00", "")
        case list():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value


def bare_json(text: str) -> str:
    """Return the JSON object in the text, without the code fence or prose that models often add."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text
