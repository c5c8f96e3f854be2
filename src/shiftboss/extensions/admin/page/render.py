"""Render pages from templates. Every value put into a template is escaped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from shiftboss.extensions.admin.page import words
from shiftboss.extensions.admin.page.assets import asset
from shiftboss.extensions.admin.page.site import Context, Page, Site, Visit
from shiftboss.model.codec import shown

FRAME = ("title", "crumb", "side")
STILL, SHEET = "still_", "sheet_"


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else shown(value)


@dataclass(frozen=True)
class Piece:
    name: str
    html: Markup

    @property
    def live(self) -> bool:
        return not self.name.startswith(STILL)

    @property
    def digest(self) -> str:
        """A hash by which the server detects what the browser already shows."""
        return hashlib.blake2b(self.html.encode(), digest_size=6).hexdigest()


class Renderer:
    """The templates of one site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._env = Environment(
            loader=ChoiceLoader([FileSystemLoader(folder) for folder in site.folders]),
            autoescape=True,
            finalize=_finalize,  # replaces sealed payloads by a placeholder
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.filters |= words.FILTERS
        self._env.globals |= {"moment": words.moment, "count": words.count, "asset": asset}
        self._env.globals["ui"] = self._env.get_template("pieces.html").module

    def whole(self, page: Page, visit: Visit, context: Context, **more: Any) -> str:
        """Return the page as a complete HTML document."""
        blocks = self._blocks(page, visit, context, lambda name: not name.startswith(SHEET))
        frame = {name: blocks.pop(name, Markup("")) for name in FRAME}
        pieces = [Piece(name, html) for name, html in blocks.items()]
        frame["title"] = frame["title"] or Markup.escape(page.title)
        return self.frame(page, visit, pieces, **frame, **more)

    def frame(self, page: Page, visit: Visit, pieces: list[Piece], **more: Any) -> str:
        """Return the layout with the given pieces in it."""
        defaults: Context = {"crumb": "", "side": "", "told": None, "sheet": None, "alerts": Markup("")}
        return self._env.get_template("layout.html").render(
            defaults
            | {
                "page": page,
                "who": visit.who,
                "pieces": pieces,
                "navigation": self._site.navigation(visit.who),
                "section": self._site.section(page),
            }
            | more
        )

    def pieces(self, page: Page, visit: Visit, context: Context) -> list[Piece]:
        """Return the pieces that are updated while the page is open."""
        blocks = self._blocks(
            page, visit, context, lambda name: name not in FRAME and not name.startswith((SHEET, STILL))
        )
        return [Piece(name, html) for name, html in blocks.items()]

    def sheet(self, page: Page, visit: Visit, name: str, context: Context) -> Markup:
        """Return the content of a dialog."""
        wanted = SHEET + name
        return self._blocks(page, visit, context, lambda block: block == wanted)[wanted]

    def plain(self, template: str, **context: Any) -> str:
        """Return a page without navigation."""
        return self._env.get_template(template).render(context)

    def _blocks(self, page: Page, visit: Visit, context: Context, wanted: Any) -> dict[str, Markup]:
        template = self._env.get_template(page.template)
        inside = template.new_context({"may": visit.may, "query": visit.query, **context})
        return {
            name: Markup("".join(block(inside)).strip())  # noqa: S704 -- autoescaped by the template
            for name, block in template.blocks.items()
            if wanted(name)
        }
