"""What workers do for this extension."""

from shiftboss.worker.context import Context
from shiftboss.worker.handlers import Handlers
from shiftboss_notes.store import Notes

handlers = Handlers()


@handlers.task("notes.count")
async def count(ctx: Context, id: int) -> int:
    """Count the words of a note."""
    return await ctx.db.family(Notes).count(id)
