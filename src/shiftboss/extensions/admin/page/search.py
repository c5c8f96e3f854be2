"""Search by meaning. The question is in the address, so that an answer can be sent to somebody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from shiftboss.extensions.admin.page.site import Context, Visit
from shiftboss.model.errors import ShiftbossError

Find = Callable[[str], Awaitable[list[dict[str, Any]]]]


async def answered(visit: Visit, find: Find) -> Context:
    """The question and what was found; nothing is searched for the refreshes of an open page."""
    question = visit.wanted("q")
    if question is None or visit.live:
        return {"question": question, "hits": None, "trouble": None}
    try:
        return {"question": question, "hits": await find(question), "trouble": None}
    except ShiftbossError as error:
        return {"question": question, "hits": None, "trouble": error}
