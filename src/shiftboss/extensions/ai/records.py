"""Chooses the prompts and answers to record, and redacts them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from shiftboss.extensions.ai.protocol import Chat, Reply
from shiftboss.extensions.ai.secrets import redact
from shiftboss.extensions.ai.settings import RecordSettings
from shiftboss.model.codec import current
from shiftboss.model.errors import ConfigError
from shiftboss.model.task import storable

MASK = "[redacted]"


def sealed(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its prompt, answer and error encrypted, if there is a key."""
    codec = current()
    texts = {name: codec.value(call[name]) for name in ("prompt", "answer") if call.get(name) is not None}
    return {**call, **texts, "error": codec.text(call.get("error"))}


class Recorder:
    def __init__(self, settings: RecordSettings) -> None:
        self._settings = settings
        try:
            self._patterns = [re.compile(pattern) for pattern in settings.redact]
        except re.error as error:
            raise ConfigError(f"ai.record.redact: {error}", hint="use valid regular expressions") from error

    def prompt(self, chat: Chat) -> Any:
        """Return the redacted messages, or None if the call is not in the sample."""
        if random.random() >= self._settings.sample:
            return None
        return {"messages": self._redacted(list(chat.messages))}

    def answer(self, reply: Reply) -> Any:
        calls = [call.document for call in reply.tool_calls]
        return {"text": self._redacted(reply.text)} | ({"tool_calls": self._redacted(calls)} if calls else {})

    def _redacted(self, value: Any) -> Any:
        match value:
            case str():
                return self._short(self.masked(value))  # mask first: a part of a secret is not recognised
            case list() | tuple():
                return [self._redacted(item) for item in value]
            case dict():
                return {str(name): self._redacted(item) for name, item in value.items()}
            case _:
                return value

    def masked(self, text: str) -> str:
        """Return the text without secrets and without matches of `ai.record.redact`."""
        text = redact(storable(text))
        for pattern in self._patterns:
            text = pattern.sub(MASK, text)
        return text

    def _short(self, text: str) -> str:
        longest = self._settings.longest
        return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
