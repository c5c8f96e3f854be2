"""The terms of a task type that workers publish beside its JSON Schema.

A client that enqueues by name (the command line, HTTP) has no decorator to read them from. A key that
is a template, such as `{user_id}`, applies there too. A key that is a function applies only in Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from shiftboss.model.errors import UsageError
from shiftboss.model.task import NewTask

#: The keyword of the published schema that has them. JSON Schema ignores unknown keywords.
TERMS_KEY = "x-shiftboss"
#: The published term that names the keys which only Python can compute.
COMPUTED = "computed"
KEYS = ("concurrency_key", "dedup_key")
#: The terms that apply together with the `dedup_key`.
PERIODS = ("dedup_for", "debounce", "debounce_max")
_BACKOFF = ("backoff", "backoff_factor", "backoff_max")
PUBLISHED_TERMS = ("queue", "priority", "max_attempts", *_BACKOFF, "origin", "requires", "timeout")
_SPANS = ("backoff", "backoff_max", "timeout", *PERIODS)
_FIELD = re.compile(r"\{(\w+)\}")


def to_json(handler: object) -> dict[str, Any]:
    """Return the terms that the handler declares; time spans are seconds."""
    declared = {name: getattr(handler, name) for name in (*PUBLISHED_TERMS, *KEYS, *PERIODS)}
    computed = [name for name in KEYS if callable(declared[name])]
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in (declared | {COMPUTED: computed or None}).items()
        if value is not None and not callable(value)
    }


def fill_in(task: NewTask, schema: Mapping[str, Any]) -> list[str]:
    """Set the terms that the task leaves open to those that its type declares.

    Return the names of the keys that the task lacks because only Python can compute them.
    """
    terms = schema.get(TERMS_KEY, {})
    open_keys = [name for name in KEYS if getattr(task, name) is None]
    found = {name: terms.get(name) for name in PUBLISHED_TERMS}
    for name in set(open_keys) & terms.keys():
        found[name] = template_key(task.task_type, name, terms[name], _defaults(schema) | task.params)
    if found.get("dedup_key") is not None:
        found |= {name: terms.get(name) for name in PERIODS}
    for name, value in found.items():
        if value is not None and getattr(task, name) is None:
            setattr(task, name, timedelta(seconds=value) if name in _SPANS else value)
    return [name for name in open_keys if name in terms.get(COMPUTED, ())]


def template_key(task_type: str, option: str, template: str, arguments: Mapping[str, Any]) -> str:
    """Return the key that a template makes of a task's arguments. They are JSON data."""
    missing = [name for name in fields(template) if name not in arguments]
    if missing:
        raise needs_argument(task_type, option, missing[0])
    key = _FIELD.sub(lambda field: _text(arguments[field[1]]), template)
    return type_key(task_type, option, key)


def type_key(task_type: str, option: str, key: str) -> str:
    """Return a key as it is stored: dedup keys are shared by all types, so they have the type as a prefix."""
    return f"{task_type}:{key}" if option == "dedup_key" else key


def needs_argument(task_type: str, option: str, name: str) -> UsageError:
    return UsageError(
        f"the {option} of {task_type} needs the argument {name}, which has no value yet",
        hint="pass it, or set the key with `.options(...)`: a key cannot use the result of another task",
    )


def fields(template: str) -> list[str]:
    """Return the names of the arguments in a template."""
    return _FIELD.findall(template)


def is_template(text: str) -> bool:
    """Whether braces occur only around the name of an argument."""
    return not re.search("[{}]", _FIELD.sub("", text))


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    parts = schema.get("properties", {}).items()
    return {name: part["default"] for name, part in parts if isinstance(part, Mapping) and "default" in part}


def _text(value: Any) -> str:
    """Write a value so that equal arguments give equal keys: 7 and 7.0 are the same number in JSON."""
    if isinstance(value, str):
        return value
    plain = int(value) if isinstance(value, float) and value.is_integer() else value
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
