"""The `notes` section of the settings."""

from pydantic import Field

from shiftboss.model.section import Section


class NotesSettings(Section):
    """Notes."""

    longest: int = Field(default=1000, ge=1)
    """Most characters of a note."""
