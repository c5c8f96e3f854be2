"""Answers of people to tasks that wait for them: found, and checked against the schema of the wait."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from shiftboss.model.errors import NotFound, UsageError
from shiftboss.model.schema import validator

if TYPE_CHECKING:
    from shiftboss.db import Row

MOST_ERRORS = 20
MOST_AUDITED = 4000


class AnswerInvalid(UsageError):
    """The answer does not satisfy the schema of its question; `fields` names what is wrong."""

    def __init__(self, fields: list[dict[str, Any]]) -> None:
        told = "; ".join(
            f"{one['field']}: {one['message']}" if one["field"] else one["message"] for one in fields[:5]
        )
        super().__init__(
            f"the answer does not fit: {told}", hint="`shiftboss approvals --json` shows the schema"
        )
        self.fields = fields


def pick(open_ones: Sequence[Row], task: UUID, step: str | None) -> Row:
    """The open question that `step` (a name, or name#ordinal) means; without one, the only question."""
    found = [one for one in open_ones if step in (None, one["name"], f"{one['name']}#{one['ordinal']}")]
    if not found:
        what = "for an answer" if step is None else f"for an answer to {step!r}"
        raise NotFound(f"task {task} does not wait {what}", hint="`shiftboss approvals` lists what is open")
    if len(found) > 1 and step is None:
        names = ", ".join(f"{one['name']}#{one['ordinal']}" for one in found)
        raise UsageError(f"task {task} asks {len(found)} questions", hint=f"name one of: {names}")
    return found[0]


def check(schema: dict[str, Any] | None, answer: Any) -> None:
    """Raise AnswerInvalid unless the answer satisfies the schema; None stands for any JSON."""
    if schema is None:
        return
    try:
        checks = validator(json.dumps(schema))
    except ValueError as error:
        raise UsageError(f"the schema of the question cannot be used: {error}") from None
    wrong = [
        {"field": ".".join(map(str, error.absolute_path)), "message": error.message}
        for _, error in zip(range(MOST_ERRORS), checks.iter_errors(answer), strict=False)
    ]
    if wrong:
        raise AnswerInvalid(wrong)


def shortened(answer: Any) -> Any:
    """The answer as the audit log keeps it: the whole one is the result of its step."""
    text = orjson.dumps(answer, default=str)
    return answer if len(text) <= MOST_AUDITED else text[:MOST_AUDITED].decode(errors="ignore") + " …"
