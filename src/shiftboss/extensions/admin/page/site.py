"""Define pages and collect them. Any package can add pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from shiftboss.extensions.admin.backend import Backend
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import ShiftbossError

Context = dict[str, Any]
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Visit:
    """One request for a page: the caller, the path parameters and the query."""

    admin: Backend
    who: Principal
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    """The address of the service as the browser uses it."""
    live: bool = False
    """True for a refresh of an open page, which needs only the live pieces."""

    @property
    def may(self) -> bool:
        """Whether the caller may carry out actions."""
        return self.who.may(Role.OPERATOR)

    @property
    def hides(self) -> bool:
        """Whether this service hides payloads."""
        return self.admin.hides

    def wanted(self, name: str) -> str | None:
        """Return a value of the query, or None if it is missing or empty."""
        return self.query.get(name, "").strip() or None


@dataclass(frozen=True)
class ActResult:
    """The result of an action. `sheet` names a block of the template to show in a dialog."""

    told: str = ""
    bad: bool = False
    sheet: str = ""
    context: Context = field(default_factory=dict)


View = Callable[[Visit], Awaitable[Context]]
SheetView = Callable[[Visit, str], Awaitable[Context]]
Act = Callable[[Visit, "Form"], Awaitable[str | ActResult]]
Pace = Callable[[Context], float]


@dataclass(frozen=True)
class Page:
    """One page, with data from `view` and markup from `template`.

    The template is a set of blocks. `title`, `crumb` and `side` go into the layout. Blocks whose names start
    with `sheet_` are dialogs. The others are the pieces of the page, in the order of the file. Pieces are
    updated while the page is open, except those whose names start with `still_`.
    """

    path: str
    title: str
    template: str
    view: View
    label: str | None = None
    """The label in the navigation, or None for a page that is reached from other pages."""
    parent: str = ""
    """The page in the navigation that it belongs to, if its own path does not start with that page's path."""
    icon: str = ""
    """An SVG path of strokes, 24 by 24 units."""
    order: int = 100
    role: Role = Role.VIEWER
    acting: Role = Role.OPERATOR
    """The role that its actions and dialogs need."""
    acts: Mapping[str, Act] = field(default_factory=dict)
    sheets: Mapping[str, SheetView] = field(default_factory=dict)
    every: float | Pace = 5.0
    """Seconds between two refreshes while the page is open."""
    wakes: frozenset[str] = frozenset()
    """Kinds of changes that refresh the page at once: event, run."""
    templates: Path = TEMPLATES
    folders: tuple[Path, ...] = ()
    """More template folders, for example of the cards on the page."""

    def pace(self, context: Context) -> float:
        return self.every(context) if callable(self.every) else self.every


@dataclass(frozen=True)
class Card:
    """A card that an extension adds to the overview. Its template gets the result of `view` as `card`."""

    template: str
    view: View
    templates: Path
    acts: Mapping[str, Act] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TimelineEntry:
    """One entry of a task's timeline. The template gets `one`."""

    key: str
    """Unique within the timeline, and stable across refreshes."""
    at: datetime
    until: datetime | None = None
    """When it ended, or None if it has no duration or has not ended."""
    word: str
    """The kind of entry, for example "step" or "AI call"."""
    state: str = ""
    """The state, which sets the colour."""
    template: str
    one: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """A source of timeline entries in an extension, with the folder of their templates."""

    entries: Callable[[Visit, UUID], Awaitable[list[TimelineEntry]]]
    templates: Path


class Site:
    """The pages and routes of one service."""

    def __init__(self) -> None:
        self._pages: dict[str, Page] = {}

    def add(self, *pages: Page) -> None:
        for page in pages:
            if page.path in self._pages:
                raise ValueError(f"two pages have the path {page.path!r}")
            self._pages[page.path] = page

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages.values())

    @property
    def folders(self) -> list[Path]:
        own = (folder for page in self for folder in (page.templates, *page.folders))
        return list(dict.fromkeys([TEMPLATES, *own]))

    def navigation(self, who: Principal) -> list[Page]:
        """Return the pages in the navigation that the caller may open, in order."""
        return sorted(self._labelled(who), key=lambda page: page.order)

    def _labelled(self, who: Principal) -> Iterable[Page]:
        return (page for page in self if page.label and who.may(page.role))

    def section(self, page: Page) -> str:
        """Return the path of the page in the navigation that a page belongs to."""
        if page.label or page.parent:
            return page.parent or page.path
        inside = (one.path for one in self if one.label and page.path.startswith(f"{one.path}/"))
        return max(inside, key=len, default="/")


async def answered(visit: Visit, find: Callable[[str], Awaitable[Sequence[Mapping[str, object]]]]) -> Context:
    """Search for the question in the address. Refreshes of an open page do not search again."""
    question = visit.wanted("q")
    if question is None or visit.live:
        return {"question": question, "hits": None, "trouble": None}
    try:
        return {"question": question, "hits": await find(question), "trouble": None}
    except ShiftbossError as error:
        return {"question": question, "hits": None, "trouble": error}
