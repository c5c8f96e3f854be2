"""Search forms. The question is part of the address, so that results can be shared as a link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from shiftboss.extensions.admin.page.site import Context, Visit
from shiftboss.model.errors import ShiftbossError

Find = Callable[[str], Awaitable[list[dict[str, Any]]]]


async def answered(visit: Visit, find: Find) -> Context:
    """Return the question and its results. Refreshes of an open page do not search again."""
    question = visit.wanted("q")
    if question is None or visit.live:
        return {"question": question, "hits": None, "trouble": None}
    try:
        return {"question": question, "hits": await find(question), "trouble": None}
    except ShiftbossError as error:
        return {"question": question, "hits": None, "trouble": error}
