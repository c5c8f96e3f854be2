"""Cities and categories for runs, from YAML files that are read again when they change."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from shiftboss.log import get_logger
from shiftboss.model.errors import ConfigError

log = get_logger(__name__)


class Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = ""
    name: str = Field(min_length=1)


class City(Entry):
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


class Category(Entry):
    tags: dict[str, list[str]] = Field(min_length=1)
    description: str = Field(min_length=1)

    def fits(self, tags: Mapping[str, Any]) -> bool:
        return any(tags.get(key) in values for key, values in self.tags.items())


EntryT = TypeVar("EntryT", bound=Entry)


class _Stamp(NamedTuple):
    modified: int
    size: int


class Book(Generic[EntryT]):
    """A file with one top-level mapping. While it is invalid, the last valid version applies; see `error`."""

    def __init__(self, path: Path, heading: str, kind: type[EntryT]) -> None:
        self.path = path
        self.error: str | None = None
        self._heading, self._kind = heading, kind
        self._stamp: _Stamp | None = None
        self._entries: dict[str, EntryT] | None = None

    def entries(self) -> dict[str, EntryT]:
        """Return the entries by key, after reading the file again if its size or time has changed."""
        try:
            self._refresh()
            self.error = None
        except ConfigError as error:
            if self._entries is None:
                raise
            if error.message != self.error:
                log.error("invalid configuration, keeping the last valid one", reason=error.message)
            self.error = error.message
        assert self._entries is not None
        return self._entries

    def _refresh(self) -> None:
        try:
            found = self.path.stat()
        except OSError as error:
            raise ConfigError(
                f"cannot read {self.path}: {error.strerror}", hint="check bots.config_dir"
            ) from error
        stamp = _Stamp(found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            self._entries = self._read()
            self._stamp = stamp

    def _read(self) -> dict[str, EntryT]:
        try:
            document = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{self.path} is not valid YAML: {' '.join(str(error).split())}") from error
        mapping = document.get(self._heading) if isinstance(document, dict) else None
        if not isinstance(mapping, dict) or not mapping:
            raise ConfigError(f"{self.path} has no mapping `{self._heading}:`")
        return {str(key): self._entry(str(key), value) for key, value in mapping.items()}

    def _entry(self, key: str, value: Any) -> EntryT:
        try:
            return self._kind.model_validate({**(value or {}), "key": key})
        except (ValidationError, TypeError) as error:
            first = (
                error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            )
            where = ".".join([self._heading, key, *map(str, first["loc"])])
            raise ConfigError(f"{self.path}: {where}: {first['msg']}") from error


class Catalog:
    """The current cities and categories."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or _default_folder()
        self._cities = Book(folder / "cities.yml", "cities", City)
        self._categories = Book(folder / "categories.yml", "categories", Category)

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
