"""Answers of a promised shape: the schema as a provider wants it, and the answer checked against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from shiftboss.extensions.ai.errors import Malformed, Truncated
from shiftboss.extensions.ai.protocol import Chat, Message, Reply

#: What a strict schema may not say; our own check says it afterwards.
LOOSE = ("default", "title", "minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems")
INSTRUCTION = (
    "Reply with one JSON object and nothing around it: no prose, no code fence. "
    "The object must satisfy this JSON schema:\n"
)
CORRECTION = (
    "That reply cannot be used: {}\nSend the whole JSON object again with this put right, and nothing else."
)


@cache
def json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    return schema.model_json_schema()


@cache
def strict_schema(schema: type[BaseModel]) -> dict[str, Any] | None:
    """The schema as strict mode takes it, every property required; None if that cannot express it."""
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
        return {"$ref": part["$ref"]}  # nothing may stand beside it
    if part.get("type") == "object" or "properties" in part:
        return _strict_object(part)
    if not set(part) & {"type", "anyOf", "enum", "const"} or "prefixItems" in part:
        raise NotImplementedError("what strict mode does not know")
    return {key: _strict_part(key, value) for key, value in part.items() if key not in LOOSE}


def _strict_object(part: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in part or part.get("additionalProperties") not in (None, False):
        raise NotImplementedError("a mapping with free keys")
    kept = {key: _strict_part(key, value) for key, value in part.items() if key not in LOOSE}
    return kept | {"required": list(part["properties"]), "additionalProperties": False}


def _strict_part(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        return {name: _strict(item) for name, item in value.items()}
    return _strict(value) if key in ("items", "anyOf") else value


def instructed(chat: Chat) -> list[Message]:
    """The messages, with the schema in words where the answer must satisfy one."""
    if chat.schema is None:
        return list(chat.messages)
    words = INSTRUCTION + orjson.dumps(json_schema(chat.schema)).decode()
    head, *rest = chat.messages
    if head["role"] != "system":
        return [{"role": "system", "content": words}, head, *rest]
    return [head | {"content": f"{head['content']}\n\n{words}"}, *rest]


def corrected(chat: Chat, bad: Malformed) -> Chat:
    return chat.correction(bad.answer, bad.error, CORRECTION.format(bad.error))


def context_of(chat: Chat) -> dict[str, Any]:
    """What validators of a schema see as `info.context`: the variables that the answer is about."""
    return dict(chat.variables)


def validated(chat: Chat, reply: Reply) -> Reply:
    """The reply with its payload brought into the shape of the schema, if there is one."""
    if chat.schema is None or reply.tool_calls:
        return reply
    try:
        value = _value(chat, reply)
    except ValidationError as error:
        if reply.finish_reason == "length":
            told = f"the answer was cut off after {reply.usage.completion_tokens} tokens"
            raise Truncated(reply.provider, told, hint="raise max_tokens", usage=reply.usage) from None
        raise Malformed(reply.provider, _told(error), reply.text, reply.usage) from None
    return replace(reply, payload=_storable(orjson.loads(value.model_dump_json())))


def _value(chat: Chat, reply: Reply) -> BaseModel:
    assert chat.schema is not None
    if isinstance(reply.payload, str):
        return chat.schema.model_validate_json(bare_json(reply.payload), context=context_of(chat))
    return chat.schema.model_validate(reply.payload, context=context_of(chat))


def _told(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}" for e in error.errors()[:5])


def _storable(value: Any) -> Any:
    """The same JSON without NUL, which PostgreSQL keeps nowhere: not in the cache, not in a result."""
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
    """The object in a text: models like to wrap it in a code fence or a sentence."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text
