"""The keywords of `complete` and `stream`, and how they become a question for a provider."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict
from uuid import UUID

import orjson
from pydantic import BaseModel

from shiftboss.extensions.ai.prompts import Prompts
from shiftboss.extensions.ai.protocol import Chat, Message, Need, Origin, Tool
from shiftboss.extensions.ai.schemas import json_schema
from shiftboss.model.errors import UsageError
from shiftboss.model.task import storable

PLAIN = "completion"  # the task type of a question that has neither a task nor a template
ROLES = ("system", "developer", "user", "assistant", "tool")


class Ask(TypedDict, total=False):
    """The keywords of `complete` and `stream`. Give a prompt, `messages` or a `template`."""

    messages: Sequence[Message]
    """The conversation so far, as `{"role": ..., "content": ...}`."""
    template: str
    """A prompt template by name; `summary@2` names a version."""
    variables: Mapping[str, Any]
    """What the template is filled with."""
    system: str
    """A system prompt in front of a plain prompt."""
    model: str | None
    """A model of `ai.models`, a provider, or a provider's model; else the `need` decides."""
    need: Need
    """How able the model must be: `advanced`, `standard` (default) or `basic`."""
    tools: Sequence[Tool | type[BaseModel] | Mapping[str, Any]]
    """Functions that the model may ask for: pydantic models, or the JSON that OpenAI takes."""
    max_tokens: int | None
    """The longest answer."""
    temperature: float | None
    """0 for the likeliest answer; above it, answers are not cached unless `cache` says so."""
    timeout: float | None
    """Seconds for one call; the provider's own setting unless given."""
    tenant: str | None
    """Whose limits and budget count; in a handler the task's."""
    key: str | None
    """A further name to limit and count by, such as a user or an API key of yours."""
    task_type: str | None
    task_id: UUID | None
    cache: bool | None
    """False: ask again. True: also with a temperature."""
    emit: bool
    """Show the text in the stream of the task that asks, piece by piece as it comes."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question that is ready to be sent, and by which way."""

    chat: Chat
    need: Need
    model: str | None
    cached: bool

    def key(self, asked: str) -> str:
        """Equal for questions that would be answered alike, in any process; `asked` is who is asked first."""
        chat = self.chat
        parts = (
            asked, chat.messages, dict(chat.variables), chat.max_tokens, chat.temperature,
            json_schema(chat.schema) if chat.schema else None, [tool.document for tool in chat.tools],
        )  # fmt: skip
        packed = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str)
        return f"processed:{chat.origin.task_type}:{hashlib.sha256(packed).hexdigest()}"


def inquiry(prompt: str | None, schema: type[BaseModel] | None, ask: Ask, prompts: Prompts) -> Inquiry:
    """Checks what was asked; a contradiction is a `UsageError` here, before anything is paid."""
    template = ask.get("template")
    if sum(part is not None for part in (prompt, ask.get("messages"), template)) != 1:
        raise UsageError("give one of a prompt, messages or a template")
    variables = {name: _clean(value) for name, value in (ask.get("variables") or {}).items()}
    origin = Origin(
        ask.get("task_type") or template or PLAIN, ask.get("task_id"), ask.get("tenant"), ask.get("key")
    )
    if template is not None:
        found = prompts.get(template)
        messages = found.messages(variables)
        origin = replace(origin, template=found.name, template_version=found.version)
    elif variables:
        raise UsageError("variables belong to a template", hint="give template= as well")
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


def _messages(prompt: str | None, ask: Ask) -> list[Message]:
    if prompt is not None:
        system = ask.get("system")
        head = [{"role": "system", "content": storable(system)}] if system else []
        return [*head, {"role": "user", "content": storable(prompt)}]
    messages = [{**message} for message in ask.get("messages") or ()]
    if not messages:
        raise UsageError("there are no messages")
    for message in messages:
        if message.get("role") not in ROLES:
            raise UsageError(
                f"a message has the role {message.get('role')!r}", hint=f"one of {', '.join(ROLES)}"
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
        raise UsageError("a tool has no name", hint='{"name": ..., "description": ..., "parameters": {...}}')
    return Tool(function["name"], function.get("description", ""), function.get("parameters", {}))
