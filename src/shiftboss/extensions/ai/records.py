"""Which prompts and answers are kept to be looked up, and what is blacked out in them."""

from __future__ import annotations

import random
import re
from typing import Any

from shiftboss.extensions.ai.protocol import Chat, Reply
from shiftboss.extensions.ai.secrets import redact
from shiftboss.extensions.ai.settings import RecordSettings
from shiftboss.model.errors import ConfigError
from shiftboss.model.task import storable

BLACK = "[redacted]"


class Recorder:
    def __init__(self, settings: RecordSettings) -> None:
        self._settings = settings
        try:
            self._patterns = [re.compile(pattern) for pattern in settings.redact]
        except re.error as error:
            raise ConfigError(f"ai.record.redact: {error}", hint="it takes regular expressions") from error

    def prompt(self, chat: Chat) -> Any:
        """The messages as they may be kept; None if this call was not picked."""
        if random.random() >= self._settings.sample:
            return None
        return {"messages": self._kept(list(chat.messages))}

    def answer(self, reply: Reply) -> Any:
        calls = [call.document for call in reply.tool_calls]
        return {"text": self._kept(reply.text)} | ({"tool_calls": self._kept(calls)} if calls else {})

    def _kept(self, value: Any) -> Any:
        match value:
            case str():
                return self._black(value)
            case list() | tuple():
                return [self._kept(item) for item in value]
            case dict():
                return {str(name): self._kept(item) for name, item in value.items()}
            case _:
                return value

    def _black(self, text: str) -> str:
        """Secrets first and the cut last: what is left of a half secret would not be recognised."""
        text = redact(storable(text))
        for pattern in self._patterns:
            text = pattern.sub(BLACK, text)
        longest = self._settings.longest
        return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
