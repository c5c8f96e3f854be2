"""The task backend, and the app whose workers run Django's tasks."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.utils.module_loading import import_string, module_has_submodule

from shiftboss.app import App, Task
from shiftboss.db.callers import look_sync_on
from shiftboss.log import get_logger
from shiftboss.model.arguments import BadArguments
from shiftboss.model.errors import ConfigError, NotFound, UsageError
from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handler
from shiftboss.worker.retries import mark_final

_PACKAGE = "django.tasks" if find_spec("django.tasks") else "django_tasks"
if find_spec(_PACKAGE) is None:
    raise ImproperlyConfigured(
        "Django before version 6 needs the package django-tasks: pip install django-tasks"
    )
_base: Any = importlib.import_module(f"{_PACKAGE}.base")
_exceptions: Any = importlib.import_module(f"{_PACKAGE}.exceptions")
_Backend: Any = importlib.import_module(f"{_PACKAGE}.backends.base").BaseTaskBackend

STATUS = {
    "Queued": "READY",
    "In Progress": "RUNNING",
    "Complete": "SUCCESSFUL",
    "Failed": "FAILED",
    "Cancelled": "FAILED",
}

app = App("django")
log = get_logger(__name__)


@app.task("django.task", backoff=2)
def run(ctx: Context, path: str, args: list[Any], kwargs: dict[str, Any], backend: str) -> Any:
    """Run a Django task, given the path of its function."""
    task = _task(path).using(backend=backend, queue_name=ctx.task.queue)
    try:
        if not task.takes_context:
            return task.call(*args, **kwargs)
        result = task.get_backend().get_result(str(ctx.id))
        return task.call(_base.TaskContext(task_result=result), *args, **kwargs)
    except Exception as error:
        if "max_attempts" not in task.get_backend().options:
            mark_final(error)
        raise


@cache
def handler(path: str) -> Handler:
    """Return the handler that runs the Django task with this path, under its own name."""
    own: Handler = run.handler
    return replace(own, name=path)


def is_named(task: Any) -> bool:
    """Whether the task has its own name as type: workers find it in the module `tasks` of its application.

    The type of all others is `django.task`, because workers import their modules only to run them.
    """
    config = apps.get_containing_app_config(task.func.__module__)
    found = config and getattr(sys.modules.get(f"{config.name}.tasks"), task.func.__name__, None)
    return isinstance(found, _base.Task) and found.func is task.func


def discover() -> None:
    """Add a handler for each task in the modules `tasks` of the installed applications."""
    for config in apps.get_app_configs():
        if not module_has_submodule(config.module, "tasks"):
            continue
        try:
            inside = vars(importlib.import_module(f"{config.name}.tasks"))
        except ImportError as error:
            # A `tasks` module of another package may need a task queue that is not installed.
            log.warning(f"no tasks of {config.name}.tasks: it cannot be imported", reason=str(error))
            continue
        found = {one.module_path for one in inside.values() if isinstance(one, _base.Task) and is_named(one)}
        for path in sorted(found - app.handlers.by_name.keys()):
            app.handlers.add(handler(path))


app.handlers.discover = discover


class ShiftbossBackend(_Backend):  # type: ignore[misc]
    """A backend that enqueues Django tasks in Shiftboss.

    Options: `database` is the alias of the connection to enqueue on (`default`). Inside a transaction, the
    task exists only if the transaction commits. None uses a separate connection. `max_attempts` is how many
    attempts may fail. Without it, an exception of the task is final, but a task that lost its worker runs
    again, up to three attempts in all.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self.validate_task(task)
        _check(task, args, kwargs)
        call = self._task(task).call(task.module_path, list(args), dict(kwargs), self.alias)
        alias = self.options.get("database", "default")
        if alias is None:
            return self._result(app.sync.enqueue(call).look(), task)
        with transaction.atomic(using=alias):
            handle = app.sync.enqueue(call, conn=connections[alias])
        return self._new(task, str(handle.id), args, kwargs)

    def get_result(self, result_id: str) -> Any:
        try:
            handle = app.sync.handle(result_id)
            alias = self.options.get("database", "default")
            row = handle.look() if alias is None else look_sync_on(connections[alias], handle.id)
        except (NotFound, UsageError):
            row = None
        # Other programs may have stored any JSON as params.
        path = row["params"].get("path") if row and isinstance(row["params"], dict) else None
        if row is None or path is None or row["task_type"] not in (run.name, path):
            raise _exceptions.TaskResultDoesNotExist(result_id)
        task = _task(path).using(backend=self.alias, queue_name=row["queue"])
        return self._result(row, task)

    def _task(self, task: Any) -> Task[..., Any]:
        named = type(run)(app, handler(task.module_path)) if is_named(task) else run
        chosen: Task[..., Any] = named.options(
            queue=task.queue_name,
            priority=priority(task.priority),
            run_at=task.run_after,
            max_attempts=self.options.get("max_attempts"),
        )
        return chosen

    def _new(self, task: Any, id: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return _base.TaskResult(
            task=task,
            id=id,
            status=_base.TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _result(self, row: Mapping[str, Any], task: Any) -> Any:
        result = self._new(task, str(row["id"]), row["params"]["args"], row["params"]["kwargs"])
        worker = row["last_worker_id"]
        known = {
            "status": _base.TaskResultStatus(STATUS[row["status"]]),
            "enqueued_at": row["created_at"],
            "started_at": row["generation_started_at"],
            "last_attempted_at": row["generation_started_at"],
            "finished_at": row["generation_processed_at"],
            "worker_ids": [worker] if worker else [],
            "errors": [_error(row["error_message"])] if row["error_message"] else [],
            "_return_value": row["result_data"],
        }
        for name, value in known.items():
            object.__setattr__(result, name, value)
        return result


def priority(given: int) -> int:
    """Convert Django's priorities (-100 to 100, default 0) to ours (0 to 100, default 5)."""
    return 5 + round(given * 0.95) if given >= 0 else 5 + given * 5 // 100


def _task(path: str) -> Any:
    """Return the task whose function has this path."""
    found = import_string(path)
    return found if isinstance(found, _base.Task) else _base.task(found)


def _check(task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise BadArguments for a call that Python would refuse."""
    context = [None] if task.takes_context else []
    try:
        inspect.signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        raise BadArguments(f"wrong arguments for {task.module_path}: {error}") from None


def _error(text: str) -> Any:
    """Convert an error. Its first line has the name of the class, its traceback the full name."""
    short = text.partition("\n")[0].partition(":")[0]
    full = re.findall(rf"^([\w.]+\.{re.escape(short)})(?::|$)", text, re.MULTILINE)
    name = full[-1] if full else short
    path = name if "." in name else f"builtins.{name}"
    return _base.TaskError(exception_class_path=path, traceback=text)


if not apps.ready and not apps.loading:  # this module is the app of a worker
    if not settings.configured and "DJANGO_SETTINGS_MODULE" not in os.environ:
        raise ConfigError(
            "DJANGO_SETTINGS_MODULE is not set",
            hint="run `python manage.py shiftboss …` in place of `shiftboss …`, or set the variable",
        )
    django.setup()
