"""Questions that tasks ask people, shown on their own page and on the page of each task."""

from __future__ import annotations

from uuid import UUID

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.schemas import as_object, from_object, schema_fields, schema_values
from shiftboss.extensions.admin.page.site import Context, Page, Visit
from shiftboss.extensions.admin.page.tasks import parse_id
from shiftboss.operations.approvals import pick

PREFIX = "answer."
SHOWN = 100


async def questions(visit: Visit, task: UUID | None = None) -> list[Context]:
    """Return the open questions, each with the form fields of its answer."""
    return [_question(row) for row in await visit.admin.db.steps.approvals(task, SHOWN)]


def _question(row: Context) -> Context:
    fields = schema_fields(as_object(row["schema"]), prefix=PREFIX)
    yes_or_no = [field for field in fields if field["kind"] == "boolean"]
    decision = yes_or_no[0] if len(yes_or_no) == 1 else None
    rest = [field for field in fields if field is not decision]
    return row | {"fields": rest, "decision": decision, "step": f"{row['name']}#{row['ordinal']}"}


async def view(visit: Visit) -> Context:
    return {"questions": await questions(visit)}


async def answer(visit: Visit, form: Form) -> str:
    id, _, step = form.arg.partition(" ")
    task = parse_id(id, "task")
    asked = pick(await visit.admin.db.steps.approvals(task), task, step or None)
    schema = asked["schema"]
    value = from_object(schema, schema_values(form, as_object(schema), PREFIX))
    await visit.admin.commands.answer(visit.who, task, value, step or None)
    return "The task continues with your answer"


PAGES = (
    Page(
        path="/approvals",
        title="Approvals",
        label="Approvals",
        icon="M4 12l5 5L20 6",
        order=25,
        template="approvals.html",
        view=view,
        acts={"answer": answer},
    ),
)
