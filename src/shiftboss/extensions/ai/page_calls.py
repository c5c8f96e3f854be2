"""The pages of AI calls: the list, and one call with its prompt and answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from shiftboss.extensions.admin.page.site import Context, Page, Visit
from shiftboss.extensions.admin.page.tasks import parse_id
from shiftboss.extensions.ai.calllist import FILTERS, STRETCH, calls
from shiftboss.extensions.ai.page import TABS
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.extensions.ai.story import text
from shiftboss.model.errors import NotFound

NAMES = {"provider": "Provider", "outcome": "Outcome", "task_type": "Type", "tenant": "Tenant", "key": "Key"}
OUTCOMES = (
    "ok", "cached", "running", "limited", "malformed", "truncated", "declined", "refused", "unavailable",
    "cancelled", "lost",
)  # fmt: skip
SHOWN = 50
TEMPLATES = Path(__file__).parent / "templates"


async def view(visit: Visit) -> Context:
    chosen = {name: value for name in FILTERS if (value := visit.wanted(name))}
    before = visit.wanted("before")
    rows, older = await calls(visit.admin.reads, chosen, before, SHOWN)
    engine = visit.admin.reads.family(AIEngine)
    return {
        "tabs": TABS,
        "rows": rows,
        "chosen": chosen,
        "filled": dict.fromkeys(NAMES) | chosen,
        "names": NAMES,
        "outcomes": OUTCOMES,
        "providers": [row["provider"] for row in await engine.ai_provider_status()],
        "older": urlencode(chosen | {"before": older}) if older else None,
        "first": before is None,
        "newest": urlencode(chosen),
        "bounded": "outcome" in chosen,
        "stretch": STRETCH,
    }


async def view_one(visit: Visit) -> Context:
    id = parse_id(visit.params["id"], "call")
    call = await visit.admin.db.family(AIEngine).call(id)
    if call is None:
        raise NotFound(f"there is no call {id}", hint="calls are deleted after 30 days")
    hide = visit.hides
    return {
        "call": call,
        "hide": hide,
        "messages": [] if hide else messages(call["prompt"]),
        "answer": None if hide else _answer(call["answer"]),
        "kept": call["prompt"] is not None or call["answer"] is not None,
    }


def messages(prompt: Any) -> list[dict[str, str]]:
    """Return the messages of a prompt, each with its role and text."""
    found = prompt.get("messages") if isinstance(prompt, dict) else prompt
    if not isinstance(found, list):
        return [] if prompt is None else [{"role": "prompt", "text": text(prompt)}]
    return [_message(one) for one in found]


def _message(one: Any) -> dict[str, str]:
    if not isinstance(one, dict):
        return {"role": "", "text": text(one)}
    more = {name: value for name, value in one.items() if name not in ("role", "content")}
    parts = [text(one.get("content")), text(more or None)]
    return {"role": str(one.get("role", "")), "text": "\n".join(filter(None, parts))}


def _answer(answer: Any) -> dict[str, str] | None:
    if not isinstance(answer, dict):
        return None if answer is None else {"text": text(answer), "tools": ""}
    return {"text": text(answer.get("text")), "tools": text(answer.get("tool_calls"))}


PAGES = (
    Page(
        templates=TEMPLATES,
        path="/ai/calls",
        parent="/providers",
        title="AI calls",
        template="ai_calls.html",
        view=view,
        every=lambda context: 5.0 if context["first"] else 60.0,
    ),
    Page(
        templates=TEMPLATES,
        path="/ai/calls/{id}",
        parent="/providers",
        title="AI call",
        template="ai_call.html",
        view=view_one,
        every=15.0,
    ),
)
