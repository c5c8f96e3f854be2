"""What a page is, and the pages that there are. Any package can add pages of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.model.access import Principal, Role

if TYPE_CHECKING:
    from shiftboss.extensions.admin.backend import Backend
    from shiftboss.extensions.admin.page.forms import Form

Context = dict[str, Any]
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Visit:
    """One look at a page: whose, where, and with which query."""

    admin: Backend
    who: Principal
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    """The service's address as this browser knows it."""
    live: bool = False
    """True: only the pieces that follow the fleet are wanted, so what is dear and still can be left out."""

    @property
    def may(self) -> bool:
        """Whether this visitor may act."""
        return self.who.may(Role.OPERATOR)

    @property
    def hides(self) -> bool:
        """Whether this service shows no payloads: params, results, prompts, answers, parts of streams."""
        return AdminSettings.of(self.admin.settings).hide_payloads

    def wanted(self, name: str) -> str | None:
        """A value of the query; None for an empty one."""
        return self.query.get(name, "").strip() or None


@dataclass(frozen=True)
class Answer:
    """What became of an action. `sheet` names a block of the template to show in a dialog."""

    told: str = ""
    bad: bool = False
    sheet: str = ""
    context: Context = field(default_factory=dict)


View = Callable[[Visit], Awaitable[Context]]
SheetView = Callable[[Visit, str], Awaitable[Context]]
Act = Callable[[Visit, "Form"], Awaitable[str | Answer]]
Pace = Callable[[Context], float]


@dataclass(frozen=True)
class Page:
    """One page: data from `view`, markup from `template`.

    The template is a set of blocks. `title`, `crumb` and `side` go into the frame; blocks whose names begin
    with `sheet_` are dialogs; the others are the pieces of the page, in the order of the file. Pieces follow
    the fleet while the page is open, except those whose names begin with `still_`.
    """

    path: str
    title: str
    template: str
    view: View
    label: str | None = None
    """In the navigation; None: it is reached from other pages."""
    parent: str = ""
    """The page in the navigation that it belongs to, where its own path does not begin with that one."""
    icon: str = ""
    """Strokes on a field of 24 by 24."""
    order: int = 100
    role: Role = Role.VIEWER
    acting: Role = Role.OPERATOR
    """The role that its actions and dialogs need."""
    acts: Mapping[str, Act] = field(default_factory=dict)
    sheets: Mapping[str, SheetView] = field(default_factory=dict)
    every: float | Pace = 5.0
    """Seconds between two looks while it is open."""
    wakes: frozenset[str] = frozenset()
    """Changes after which to look at once: event, run."""
    templates: Path = TEMPLATES
    folders: tuple[Path, ...] = ()
    """More folders of templates, of the cards on it."""

    def pace(self, context: Context) -> float:
        return self.every(context) if callable(self.every) else self.every


@dataclass(frozen=True)
class Card:
    """A piece of the overview that an extension brings: its template sees what `view` returns as `card`."""

    template: str
    view: View
    templates: Path
    acts: Mapping[str, Act] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a task's timeline. The template shows `one`."""

    key: str
    """Unique within the timeline, and the same at the next look."""
    at: datetime
    until: datetime | None = None
    """When it ended; None for a moment, or for what goes on."""
    word: str
    """What it is: step, AI call."""
    state: str = ""
    """How it stands, for the colour."""
    template: str
    one: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """What an extension knows about a task: entries of its timeline, with the folder of their templates."""

    entries: Callable[[Visit, UUID], Awaitable[list[Entry]]]
    templates: Path


class Site:
    """The pages and routes of one service."""

    def __init__(self) -> None:
        self._pages: dict[str, Page] = {}

    def add(self, *pages: Page) -> None:
        for page in pages:
            if page.path in self._pages:
                raise ValueError(f"two pages have the path {page.path}")
            self._pages[page.path] = page

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages.values())

    @property
    def folders(self) -> list[Path]:
        own = (folder for page in self for folder in (page.templates, *page.folders))
        return list(dict.fromkeys([TEMPLATES, *own]))

    def navigation(self, who: Principal) -> list[Page]:
        """The pages that this visitor may open, in order."""
        return sorted(self._labelled(who), key=lambda page: page.order)

    def _labelled(self, who: Principal) -> Iterable[Page]:
        return (page for page in self if page.label and who.may(page.role))

    def section(self, page: Page) -> str:
        """The path of the page in the navigation that a page belongs to."""
        if page.label or page.parent:
            return page.parent or page.path
        inside = (one.path for one in self if one.label and page.path.startswith(f"{one.path}/"))
        return max(inside, key=len, default="/")
