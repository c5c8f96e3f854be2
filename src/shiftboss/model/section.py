"""What a section of the settings is made of."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Secret = Annotated[str | None, Field(repr=False)]


class Section(BaseModel):
    """What a room may be told. A section may hold sections: `ai.openai.model`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
