"""Notes over HTTP."""

from shiftboss.extensions.admin.access import Caller
from shiftboss.extensions.admin.api.common import Out, make_router
from shiftboss.extensions.admin.backend import At
from shiftboss_notes.store import Notes

router = make_router("notes")


class Note(Out):
    id: int
    body: str
    words: int | None


@router.get("/notes")
async def notes(admin: At, who: Caller) -> list[Note]:
    """Every note."""
    return [Note.model_validate(row) for row in await admin.db.family(Notes).all()]
