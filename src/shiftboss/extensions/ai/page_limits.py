"""The page of AI limits for tenants, task types and keys, with their use today."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import Context, Page, Visit
from shiftboss.extensions.ai.operations import AIOperations, Scope
from shiftboss.extensions.ai.page import TABS
from shiftboss.extensions.ai.store import AIEngine
from shiftboss.model.errors import UsageError

SCOPES = {"tenant": "tenant", "task_type": "task type", "key": "key"}
FIGURES = ("daily_budget", "requests_per_minute", "tokens_per_minute")
TEMPLATES = Path(__file__).parent / "templates"


async def view(visit: Visit) -> Context:
    rows = [_row(row) for row in await visit.admin.db.family(AIEngine).ai_limit_status()]
    return {"tabs": TABS, "rows": rows, "scopes": SCOPES}


def _row(row: Context) -> Context:
    budget = row["daily_budget"]
    spent = float(row["spend_today"])
    share = None if budget is None else 100.0 if budget <= spent else spent / float(budget) * 100
    limited = any(row[name] is not None for name in FIGURES)
    return row | {"share": share, "limited": limited, "spent": share == 100.0}


def _named(arg: str) -> tuple[Scope, str]:
    scope, _, name = arg.partition(" ")
    if scope not in SCOPES or not name.strip():
        raise UsageError(
            "the tenant, task type or key has no name", hint="enter a name, or * for each one without a limit"
        )
    return cast(Scope, scope), name.strip()


async def _ask(visit: Visit, arg: str) -> Context:
    rows = await visit.admin.db.family(AIEngine).ai_limit_status()
    empty: Context = dict.fromkeys(("scope", "name", *FIGURES))
    row = next((row for row in rows if f"{row['scope']} {row['name']}" == arg), empty)
    return {"row": row, "scopes": SCOPES}


async def _set(visit: Visit, form: Form) -> str:
    scope, name = _named(form.arg or f"{form.text('scope') or ''} {form.text('name') or ''}")
    budget = form.amount("daily_budget")
    requests, tokens = form.figure("requests_per_minute"), form.figure("tokens_per_minute")
    if budget is None and not requests and not tokens:
        raise UsageError("at least one limit is needed", hint="press Remove to remove all limits")
    await visit.admin.use(AIOperations).set_ai_limit(
        visit.who, scope, name, daily_budget=budget, requests_per_minute=requests, tokens_per_minute=tokens
    )
    return f"The limits of {SCOPES[scope]} {name} are saved"


async def _remove(visit: Visit, form: Form) -> str:
    scope, name = _named(form.arg)
    await visit.admin.use(AIOperations).set_ai_limit(visit.who, scope, name)
    return f"The limits of {SCOPES[scope]} {name} are removed"


PAGES = (
    Page(
        templates=TEMPLATES,
        path="/ai/limits",
        parent="/providers",
        title="AI limits",
        template="ai_limits.html",
        view=view,
        every=10.0,
        acts={"set": _set, "remove": _remove},
        sheets={"set": _ask},
    ),
)
