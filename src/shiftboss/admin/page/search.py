"""Search by meaning. The question is in the address, so that an answer can be sent to somebody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.forms import field
from shiftboss.admin.page.markup import card, empty, html, join
from shiftboss.model.errors import ShiftbossError

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Screen

Find = Callable[[str], Awaitable[list[dict[str, Any]]]]


async def search_card(
    screen: Screen, path: str, where: Markup, hint: str, find: Find, hit: Callable[[dict[str, Any]], Markup]
) -> None:
    """`where` is the choice of what is searched; `find` answers a question, `hit` shows one answer."""
    question = screen.query.get("q", "").strip()
    form = html(
        '<form class="filter" method="get" action="{}" role="search">{}{}'
        '<button class="btn main">Search</button></form>',
        path,
        where,
        field("q", "By meaning", question, "search", hint),
    )
    screen.show(card("Search", form + (await _hits(find, hit, question) if question else Markup(""))))


async def _hits(find: Find, hit: Callable[[dict[str, Any]], Markup], question: str) -> Markup:
    try:
        return join(map(hit, await find(question))) or empty("Nothing was found")
    except ShiftbossError as error:
        return empty(error.message, error.hint or "")
