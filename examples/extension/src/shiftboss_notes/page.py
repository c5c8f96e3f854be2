"""A page of the dashboard: every note with its count."""

from pathlib import Path

from shiftboss.extensions.admin.page.site import Context, Page, Visit
from shiftboss_notes.store import Notes


async def view(visit: Visit) -> Context:
    return {"notes": await visit.admin.db.family(Notes).all()}


PAGES = (
    Page(
        path="/notes",
        title="Notes",
        label="Notes",
        icon="M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h7",
        order=200,
        template="notes.html",
        templates=Path(__file__).parent / "templates",
        view=view,
    ),
)
