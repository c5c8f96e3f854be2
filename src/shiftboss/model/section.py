"""The base class of all sections of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from shiftboss.model.settings import Settings

Secret = Annotated[str | None, Field(repr=False)]


class Section(BaseModel):
    """The settings of one package. A section can contain sections: `shop.mail.host`."""

    # The validator is built on first use: a section with its defaults needs none.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
    variables: ClassVar[Mapping[str, str]] = {}
    """Environment variables of other programs that are read if a field is not set, by field."""

    def variable(self, field: str) -> str | None:
        """Return the environment variable that is read if this field is not set."""
        return self.variables.get(field)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return this section of the settings, or its defaults if the settings do not have it."""
        for name in type(settings).model_fields:
            if isinstance(value := getattr(settings, name), cls):
                return value
        return cls()
