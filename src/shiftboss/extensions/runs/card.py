"""The card of active runs on the overview page."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import Card, Context, Visit
from shiftboss.extensions.admin.page.tasks import parse_id
from shiftboss.extensions.runs.operations import RunOperations
from shiftboss.extensions.runs.store import Runs

SHOWN = 20


async def view(visit: Visit) -> Context:
    return {"runs": (await visit.admin.reads.family(Runs).active())[:SHOWN]}


def run_id(form: Form) -> UUID:
    return parse_id(form.arg, "run")


async def cancel(visit: Visit, form: Form) -> str:
    await visit.admin.use(RunOperations).cancel_run(visit.who, run_id(form))
    return "The run is being cancelled"


CARD = Card(
    template="runs_card.html",
    view=view,
    acts={"cancel-run": cancel},
    templates=Path(__file__).parent / "templates",
)
