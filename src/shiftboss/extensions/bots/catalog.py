"""Cities and categories for runs, from YAML files that are read again when they change."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Generic, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from shiftboss.log import get_logger
from shiftboss.model.errors import ConfigError

log = get_logger(__name__)


class CatalogEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = ""
    name: str = Field(min_length=1)


class City(CatalogEntry):
    country: str = Field(pattern="^[A-Z]{2}$")
    box: tuple[float, float, float, float]
    """South, west, north, east."""

    @field_validator("box")
    @classmethod
    def _sensible(cls, box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        south, west, north, east = box
        if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
            raise ValueError("the box must be [south, west, north, east] in degrees")
        return box

    def contains(self, lat: float, lon: float) -> bool:
        south, west, north, east = self.box
        return south <= lat <= north and west <= lon <= east


class Category(CatalogEntry):
    tags: dict[str, list[str]] = Field(min_length=1)
    description: str = Field(min_length=1)

    def fits(self, tags: Mapping[str, Any]) -> bool:
        return any(tags.get(key) in values for key, values in self.tags.items())


EntryT = TypeVar("EntryT", bound=CatalogEntry)


class Book(Generic[EntryT]):
    """A file with one mapping, named like the file. While it is invalid, the last valid version applies."""

    def __init__(self, path: Path, kind: TypeAdapter[dict[str, EntryT]]) -> None:
        self.path, self._kind = path, kind
        self.error: str | None = None
        """Why the file is invalid now."""
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, EntryT] | None = None

    def entries(self) -> dict[str, EntryT]:
        """Return the entries by key, after reading the file again if its size or time has changed."""
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if self._entries is None or stamp != self._stamp:
                self._entries, self._stamp = self._read(), stamp
            self.error = None
        except (OSError, ValueError, yaml.YAMLError) as error:
            message = f"{self.path} is invalid: {_reason(error)}"
            if self._entries is None:
                raise ConfigError(message, hint="check bots.config_dir") from error
            if message != self.error:
                log.error("invalid configuration, keeping the last valid one", reason=message)
            self.error = message
        return self._entries

    def _read(self) -> dict[str, EntryT]:
        document, heading = yaml.safe_load(self.path.read_text(encoding="utf-8")), self.path.stem
        mapping = document.get(heading) if isinstance(document, dict) else None
        if not isinstance(mapping, dict) or not mapping:
            raise ValueError(f"it has no mapping `{heading}:`")
        keyed = {str(key): {**value, "key": str(key)} if isinstance(value, dict) else value
                 for key, value in mapping.items()}  # fmt: skip
        return self._kind.validate_python(keyed)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return " ".join(str(error).split())


class Catalog:
    """The current cities and categories."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or _default_folder()
        self._cities = Book(folder / "cities.yml", TypeAdapter(dict[str, City]))
        self._categories = Book(folder / "categories.yml", TypeAdapter(dict[str, Category]))

    @property
    def cities(self) -> dict[str, City]:
        return self._cities.entries()

    @property
    def categories(self) -> dict[str, Category]:
        return self._categories.entries()

    @property
    def errors(self) -> list[str]:
        """The errors of files that are invalid now."""
        return [book.error for book in (self._cities, self._categories) if book.error]


def _default_folder() -> Path:
    """Return `./config` if it has both files, else the folder in the package."""
    here = Path("config").resolve()
    if (here / "cities.yml").is_file() and (here / "categories.yml").is_file():
        return here
    return Path(str(resources.files("shiftboss.extensions.bots") / "config"))
