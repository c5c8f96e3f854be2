"""The pages of runs: start a run, watch it, and list past runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.schemas import schema_fields, schema_values
from shiftboss.extensions.admin.page.site import Context, Page, Visit
from shiftboss.extensions.admin.page.tasks import parse_id
from shiftboss.extensions.bots.operations import BotOperations
from shiftboss.extensions.runs.card import cancel, run_id
from shiftboss.extensions.runs.store import Runs
from shiftboss.model.errors import UsageError

ACTIVE, IDLE = 5.0, 60.0
SHOWN = 50
STATES = {"pending": "waiting", "running": "running", "finished": "complete", "failed": "failed"}


def pace(context: Context) -> float:
    """Return the refresh interval: short while a run is active. Changes are also pushed."""
    return ACTIVE if context["active"] else IDLE


async def view(visit: Visit) -> Context:
    bot, status = visit.wanted("bot"), visit.wanted("status")
    if status not in (None, *STATES):
        raise UsageError(f"there is no status {status!r}", hint=f"choose one of: {', '.join(STATES)}")
    known, runs = visit.admin.use(BotOperations).bots, visit.admin.reads.family(Runs)
    bots = list(known.by_name.values())
    chosen = known.by_name.get(visit.wanted("run") or "") or next(iter(bots), None)
    return {
        "bots": bots,
        "chosen": chosen,
        "fields": schema_fields(chosen.schema()) if chosen else [],
        **known.choices(),
        "bot": bot,
        "status": status,
        "states": STATES,
        "active": await runs.active(),
        "past": await runs.list_runs(bot=bot, status=status, limit=SHOWN),
        "total": await runs.count_runs(bot=bot, status=status),
    }


async def view_run(visit: Visit) -> Context:
    row = await visit.admin.db.family(Runs).find(parse_id(visit.params["id"], "run"))
    live = row["status"] in ("pending", "running")
    return {"run": row, "live": live, "active": live, "hide": visit.hides}


async def start(visit: Visit, form: Form) -> str:
    operations = visit.admin.use(BotOperations)
    bot = operations.bots.by_name.get(form.arg)
    params: dict[str, Any] = schema_values(form, bot.schema()) if bot else {}
    run = await operations.start_run(visit.who, form.arg, form.text("city"), form.text("category"), params)
    return f"{form.arg} is started" if run.created else f"The same run of {form.arg} is already active"


async def retry(visit: Visit, form: Form) -> str:
    run = await visit.admin.use(BotOperations).retry_run(visit.who, run_id(form))
    return "A new run continues the work" if run.created else "The same run is already active"


_page = partial(Page, templates=Path(__file__).parent / "templates", every=pace, wakes=frozenset({"run"}))
PAGES = (
    _page(
        path="/runs",
        title="Runs",
        label="Runs",
        icon="M7 4l12 8-12 8z",
        order=40,
        template="runs.html",
        view=view,
        acts={"start-run": start, "cancel-run": cancel, "retry-run": retry},
    ),
    _page(
        path="/runs/{id}",
        title="Run",
        template="run.html",
        view=view_run,
        acts={"cancel-run": cancel, "retry-run": retry},
    ),
)
