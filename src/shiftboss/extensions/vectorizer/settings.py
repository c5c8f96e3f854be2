"""The `vectorizer` section of the settings."""

from __future__ import annotations

from pydantic import Field

from shiftboss.model.section import Section


class VectorizerSettings(Section):
    """Embeddings that follow tables."""

    lease: float = Field(default=180.0, gt=0)
    """Seconds after which rows claimed by a dead worker are claimed again."""
    poll: float = Field(default=5.0, gt=0)
    """Seconds between looks for work while no notification arrives."""
    run_seconds: float = Field(default=60.0, gt=0)
    """How long one task works on a vectorizer before it makes room for others."""
