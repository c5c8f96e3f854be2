"""Turns the keywords of `complete` and `stream` into a request to a provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict
from uuid import UUID

import orjson
from pydantic import BaseModel

from shiftboss.extensions.ai.prompts import Prompts
from shiftboss.extensions.ai.protocol import MAX_TOKENS, Chat, Message, Need, Origin, Tool
from shiftboss.extensions.ai.schemas import json_schema
from shiftboss.model.codec import current
from shiftboss.model.errors import UsageError
from shiftboss.model.sources import similar
from shiftboss.model.task import storable

PLAIN = "completion"  # the task type of a request that has neither a task nor a template
RANGES: dict[str, tuple[tuple[type, ...], float, float]] = {
    "max_tokens": ((int,), 1, MAX_TOKENS),
    "temperature": ((int, float), 0, 2),
    "timeout": ((int, float), 0.001, 86_400),
}
ROLES = ("system", "developer", "user", "assistant", "tool")


class Ask(TypedDict, total=False):
    """The keywords of `complete` and `stream`. Give a prompt, `messages` or a `template`."""

    messages: Sequence[Message]
    """The conversation so far, as `{"role": ..., "content": ...}`."""
    template: str
    """A prompt template by name; `summary@2` names a version."""
    variables: Mapping[str, Any]
    """Values for the variables of the template."""
    system: str
    """A system prompt in front of a plain prompt."""
    model: str | None
    """A model of `ai.models`, a provider, or a provider's model; by default the `need` decides."""
    need: Need
    """How capable the model must be: `advanced`, `standard` (default) or `basic`."""
    tools: Sequence[Tool | type[BaseModel] | Mapping[str, Any]]
    """Functions that the model may request: pydantic models, or JSON in OpenAI's format."""
    max_tokens: int | None
    """The maximum length of the answer."""
    temperature: float | None
    """0 for the most likely answer. With a higher value, answers are cached only if `cache` is True."""
    timeout: float | None
    """Seconds for one call; by default the provider's setting."""
    tenant: str | None
    """The tenant whose limits and budget apply; in a handler, the task's tenant by default."""
    key: str | None
    """Another name to limit and count calls by, such as a user or one of your API keys."""
    task_type: str | None
    task_id: UUID | None
    cache: bool | None
    """False ignores the cache. True uses it even with a temperature."""
    emit: bool
    """Append the text to the stream of the task as it arrives."""


class EmbedAsk(TypedDict, total=False):
    """The keywords of `embed`."""

    tenant: str | None
    """The tenant whose limits and budget apply; in a handler, the task's tenant by default."""
    key: str | None
    """Another name to limit and count calls by, such as a user or one of your API keys."""
    dimensions: int | None
    """The length of the vectors, for models that can shorten them."""
    base_url: str | None
    """Another server with the provider's protocol."""
    api_key_name: str | None
    """The environment variable with its key."""


def require_known(function: str, given: Mapping[str, Any], keywords: type) -> None:
    """Raise `UsageError` for an unknown keyword: a misspelt `tenant` would spend outside its budget."""
    known = [*keywords.__annotations__, "schema"] if keywords is Ask else list(keywords.__annotations__)
    for name in given:
        if name not in known:
            near = similar(name, known)
            raise UsageError(
                f"{function}() has no keyword {name!r}",
                hint=f"did you mean {near!r}?" if near else f"use one of {', '.join(known)}",
            )


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A request that is ready to be sent, and how to route it."""

    chat: Chat
    need: Need
    model: str | None
    cached: bool

    def key(self, route: str) -> str:
        """Return the cache key, the same for equal requests in every process; `route` is the route's name."""
        chat = self.chat
        parts = (
            route, chat.messages, dict(chat.variables), chat.max_tokens, chat.temperature,
            json_schema(chat.schema) if chat.schema else None, [tool.document for tool in chat.tools],
        )  # fmt: skip
        packed = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
        return f"processed:{chat.origin.task_type}:{current().fingerprint(packed)}"


def inquiry(prompt: str | None, schema: type[BaseModel] | None, ask: Ask, prompts: Prompts) -> Inquiry:
    """Check the keywords and return the request. Raises `UsageError` before anything is charged."""
    template = ask.get("template")
    if sum(part is not None for part in (prompt, ask.get("messages"), template)) != 1:
        raise UsageError("give exactly one of a prompt, messages or a template")
    _require_valid(ask, schema)
    if ask.get("system") and prompt is None:
        raise UsageError("system is for a plain prompt", hint="put it into the messages or the template")
    variables = {name: _clean(value) for name, value in (ask.get("variables") or {}).items()}
    kind = ask.get("task_type") or (template or PLAIN).partition("@")[0]  # limits apply to all versions
    origin = Origin(kind, ask.get("task_id"), ask.get("tenant"), ask.get("key"))
    if template is not None:
        found = prompts.get(template)
        messages = found.messages(variables)
        origin = replace(origin, template=found.name, template_version=found.version)
    elif variables:
        raise UsageError("variables need a template", hint="add template=...")
    else:
        messages = _messages(prompt, ask)
    temperature = ask.get("temperature")
    chat = Chat(
        messages=tuple(messages), origin=origin, name=template or origin.task_type, variables=variables,
        schema=schema, tools=tuple(_tool(tool) for tool in ask.get("tools") or ()),
        max_tokens=ask.get("max_tokens"), temperature=temperature, timeout=ask.get("timeout"),
    )  # fmt: skip
    cached = ask.get("cache")
    return Inquiry(
        chat, Need(ask.get("need", Need.STANDARD)), ask.get("model"),
        cached if cached is not None else not temperature,
    )  # fmt: skip


def _require_valid(ask: Ask, schema: Any) -> None:
    """Check values that the provider would reject: its errors count against it for the whole fleet."""
    if schema is not None and not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        raise UsageError(f"schema is {schema!r}", hint="pass a pydantic model class")
    if ask.get("need", Need.STANDARD) not in set(Need):
        raise UsageError(f"need is {ask.get('need')!r}", hint=f"use one of {', '.join(Need)}")
    for name, (kinds, lowest, highest) in RANGES.items():
        value: Any = ask.get(name)
        number = isinstance(value, kinds) and not isinstance(value, bool)
        if value is not None and not (number and lowest <= float(value) <= highest):
            raise UsageError(f"{name} is {value!r}", hint=f"use a number from {lowest:g} to {highest:g}")


def _messages(prompt: str | None, ask: Ask) -> list[Message]:
    if prompt is not None:
        system = ask.get("system")
        head = [{"role": "system", "content": storable(system)}] if system else []
        return [*head, {"role": "user", "content": storable(prompt)}]
    messages = [{**message} for message in ask.get("messages") or ()]
    if not messages:
        raise UsageError("messages is empty")
    for message in messages:
        if message.get("role") not in ROLES:
            raise UsageError(
                f"a message has the invalid role {message.get('role')!r}",
                hint=f"use one of {', '.join(ROLES)}",
            )
        message["content"] = _clean(message.get("content"))
    return messages


def _clean(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value


def _tool(given: Tool | type[BaseModel] | Mapping[str, Any]) -> Tool:
    if isinstance(given, Tool):
        return given
    if isinstance(given, type):
        return Tool(given.__name__, (given.__doc__ or "").strip(), json_schema(given))
    function = given.get("function", given)
    if not function.get("name"):
        raise UsageError(
            "a tool has no name", hint='pass {"name": ..., "description": ..., "parameters": {...}}'
        )
    return Tool(function["name"], function.get("description", ""), function.get("parameters", {}))
