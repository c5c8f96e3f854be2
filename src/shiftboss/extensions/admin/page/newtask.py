"""Create a task from a form, with fields from the schema that workers publish or with JSON."""

from __future__ import annotations

from typing import Any

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.schemas import fits_form, schema_fields, schema_values
from shiftboss.extensions.admin.page.site import Answer, Context, Visit
from shiftboss.model.errors import UsageError
from shiftboss.model.task import NewTask

PREFIX = "arg."


async def ask(visit: Visit, arg: str) -> Context:
    """Return a form for the type, or for the arguments of a type. `json TYPE` asks for them as JSON."""
    plain, _, named = arg.partition(" ")
    task_type = named if plain == "json" else arg
    found = await visit.admin.db.schemas.get(task_type) if task_type else None
    schema = found["schema"] if found and plain != "json" else None
    return {
        "choosing": not arg,
        "task_type": task_type,
        "published": [row["task_type"] for row in await visit.admin.db.schemas.all()],
        "fields": schema_fields(schema, prefix=PREFIX) if schema and fits_form(schema) else [],
        "schema": schema,
    }


async def create(visit: Visit, form: Form) -> Answer:
    """Create a task. `form TYPE` posts the fields of the schema, `json TYPE` a JSON object."""
    kind, _, named = form.arg.partition(" ")
    task_type = named or form.text("task_type") or ""
    if not task_type:
        raise UsageError("the task type is missing", hint="choose one, or enter its name")
    found = await visit.admin.db.schemas.get(task_type) if kind == "form" else None
    form.arg = kind
    return await enqueue(visit, form, task_type, found["schema"] if found else None)


async def enqueue(visit: Visit, form: Form, task_type: str, schema: dict[str, Any] | None) -> Answer:
    """Enqueue a task with the arguments, queue and priority of the form."""
    if form.arg == "form" and schema is not None:
        params = schema_values(form, schema, PREFIX)
    elif (typed := form.document("params")) is not None:
        params = typed
    else:
        raise UsageError("params must be a JSON object", hint="enter {} for a task without arguments")
    new = NewTask(
        task_type=task_type, params=params, queue=form.text("queue"), priority=form.figure("priority")
    )
    made = await visit.admin.commands.enqueue(visit.who, new)
    return Answer(sheet="made", context={"id": made.id, "warning": made.warning})
