"""Adds the AI calls of a task to its timeline."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from shiftboss.extensions.admin.page.site import Story, TimelineEntry, Visit
from shiftboss.extensions.admin.page.words import line
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.codec import shown

SHOWN = 100


async def entries(visit: Visit, id: UUID) -> list[TimelineEntry]:
    calls = await visit.admin.db.family(AIEngine).calls(task_id=id, limit=SHOWN)
    return [_entry(call if not visit.hides else call | {"prompt": None, "answer": None}) for call in calls]


def _entry(call: dict[str, Any]) -> TimelineEntry:
    return TimelineEntry(
        key=f"call {call['call_id']}",
        at=call["started_at"],
        until=_ended(call),
        word="AI call",
        state=call["outcome"] or "running",
        template="task_call.html",
        one=call | {"asked": asked(call["prompt"]), "said": said(call["answer"])},
    )


def _ended(call: dict[str, Any]) -> Any:
    if call["latency_ms"] is not None:
        return call["started_at"] + timedelta(milliseconds=call["latency_ms"])
    return call["finished_at"]


def asked(prompt: Any) -> str:
    """Return the text of the last message."""
    prompt = prompt.get("messages", prompt) if isinstance(prompt, dict) else prompt
    if isinstance(prompt, list) and prompt and isinstance(prompt[-1], dict):
        return text(prompt[-1].get("content"))
    return text(prompt)


def said(answer: Any) -> str:
    return text(answer.get("text", answer) if isinstance(answer, dict) else answer)


def text(value: Any) -> str:
    """Return strings unchanged, anything else as JSON."""
    value = shown(value)
    return "" if value is None else value if isinstance(value, str) else line(value)


STORY = Story(entries, Path(__file__).parent / "templates")
