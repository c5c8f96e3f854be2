"""Answers to the questions of tasks: find the open question and validate the answer."""

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
    """The answer does not match the schema of its question; `fields` lists the problems."""

    def __init__(self, fields: list[dict[str, Any]]) -> None:
        problems = "; ".join(
            f"{one['field']}: {one['message']}" if one["field"] else one["message"] for one in fields[:5]
        )
        super().__init__(
            f"the answer is not valid: {problems}", hint="`shiftboss approvals --json` shows the schema"
        )
        self.fields = fields


def pick(open_ones: Sequence[Row], task: UUID, step: str | None) -> Row:
    """Return the open question of `step` (`name` or `name#ordinal`), or the only question without one."""
    found = [one for one in open_ones if step in (None, one["name"], f"{one['name']}#{one['ordinal']}")]
    if not found:
        what = "for an answer" if step is None else f"for an answer to {step!r}"
        raise NotFound(f"task {task} does not wait {what}", hint="`shiftboss approvals` lists open questions")
    if len(found) > 1 and step is None:
        names = ", ".join(f"{one['name']}#{one['ordinal']}" for one in found)
        raise UsageError(f"task {task} has {len(found)} open questions", hint=f"name one of: {names}")
    return found[0]


def check(schema: dict[str, Any] | None, answer: Any) -> None:
    """Raise AnswerInvalid if the answer does not match the schema. None accepts any JSON."""
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
    """Return the answer, truncated for the audit log. The step's result has the whole answer."""
    text = orjson.dumps(answer, default=str)
    return answer if len(text) <= MOST_AUDITED else text[:MOST_AUDITED].decode(errors="ignore") + " …"
