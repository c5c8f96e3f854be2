"""The `vectorizer` section of the settings."""

from __future__ import annotations

from pydantic import Field

from shiftboss.model.section import Section


class VectorizerSettings(Section):
    """Workers of vectorizers."""

    lease: float = Field(default=180.0, gt=0)
    """Seconds after which the rows of a dead worker are claimed by another."""
    poll: float = Field(default=5.0, gt=0)
    """Seconds between polls for work when no notification arrives."""
    run_seconds: float = Field(default=60.0, gt=0)
    """Seconds that one task works on a vectorizer before it yields to other tasks."""
