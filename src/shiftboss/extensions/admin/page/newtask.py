"""Create a task from a form, with fields from the schema that workers publish or with JSON."""

from __future__ import annotations

from typing import Any

import orjson

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.schemas import fits_form, schema_fields, schema_values
from shiftboss.extensions.admin.page.site import ActResult, Context, Visit
from shiftboss.model.errors import UsageError
from shiftboss.model.task import NewTask

PREFIX = "arg."


async def ask(visit: Visit, arg: str) -> Context:
    """Return a form for the type, or for the arguments of a type. `json TYPE` asks for them as JSON."""
    plain, _, named = arg.partition(" ")
    task_type = named if plain == "json" else arg
    published = [row["task_type"] for row in await visit.admin.db.schemas.all()]
    about = {"choosing": not arg, "task_type": task_type, "published": published}
    return about | await arguments(visit, task_type, as_json=plain == "json")


async def arguments(visit: Visit, task_type: str, given: Any = None, *, as_json: bool) -> Context:
    """Return the arguments of a task as fields of its schema if they fit one, and as JSON."""
    found = await visit.admin.db.schemas.get(task_type) if task_type and not as_json else None
    schema = found["schema"] if found and fits_form(found["schema"], given) else None
    fields = schema_fields(schema, given, PREFIX) if schema else []
    params = orjson.dumps(given or {}, option=orjson.OPT_INDENT_2).decode()
    return {"schema": schema, "fields": fields, "params": params}


async def create(visit: Visit, form: Form) -> ActResult:
    """Create a task. `form TYPE` posts the fields of the schema, `json TYPE` a JSON object."""
    kind, _, named = form.arg.partition(" ")
    task_type = named or form.text("task_type") or ""
    if not task_type:
        raise UsageError("the task type is missing", hint="choose one, or enter its name")
    return await enqueue(visit, form, task_type, as_json=kind != "form")


async def enqueue(visit: Visit, form: Form, task_type: str, *, as_json: bool) -> ActResult:
    """Enqueue a task with the arguments, queue and priority of the form."""
    found = None if as_json else await visit.admin.db.schemas.get(task_type)
    params = schema_values(form, found["schema"], PREFIX) if found else form.document("params")
    if params is None:
        raise UsageError("params must be a JSON object", hint="enter {} for a task without arguments")
    new = NewTask(
        task_type=task_type, params=params, queue=form.text("queue"), priority=form.figure("priority")
    )
    made = await visit.admin.commands.enqueue(visit.who, new)
    return ActResult(sheet="made", context={"id": made.id, "warning": made.warning})
