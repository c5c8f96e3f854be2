"""Reads places with OpenStreetMap tags from an Overpass-compatible service or a GeoJSON file."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import orjson

from shiftboss.extensions.bots.catalog import Category, City
from shiftboss.extensions.bots.public import PLAIN, NotPublic, PublicTransport
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.model.errors import ShiftbossError, UsageError

MAX_LENGTH = 500  # characters; names and phone numbers must fit into an index
MAX_DEPTH = 5  # lists around the points of a GeoJSON MultiPolygon, and one more
BUSY = (429, 503)
KEPT_TAGS = ("amenity", "shop", "tourism", "cuisine", "brand", "description", "operator")


class SourceTrouble(ShiftbossError):
    """The source is unavailable, or does not contain places."""


@dataclass(frozen=True)
class PlaceSource:
    """A source. If `given` by the run, private hosts and files outside `bots.source_dir` are refused."""

    location: str
    given: bool
    settings: BotsSettings

    async def read(self, city: City, categories: Sequence[Category]) -> list[dict[str, Any] | None]:
        """Return the places of these categories in the city, with None for each unusable feature."""
        seconds = self.settings.source_timeout
        try:
            async with asyncio.timeout(seconds):
                if self.location.lower().startswith(("http://", "https://")):
                    content = await self._ask(overpass_query(city, categories))
                else:
                    content = await asyncio.to_thread(self._read_file)
                # In a thread: parsing a large extract takes seconds, and would delay heartbeats.
                return await asyncio.to_thread(self._parse, content, city, categories)
        except TimeoutError:
            message = f"{self.location} was not read within {seconds:.0f} s"
            raise SourceTrouble(message, hint="raise bots.source_timeout, or choose one category") from None

    async def _ask(self, query: str) -> bytes:
        try:
            async with self._client() as client:
                while True:
                    content = await self._post(client, query)
                    if isinstance(content, bytes):
                        return content
                    await asyncio.sleep(content)
        except NotPublic:
            hint = "set bots.source, or allow private addresses with bots.private_sites"
            raise UsageError(f"{self.location} is not a public address", hint=hint) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SourceTrouble(f"cannot read {self.location}: {error or type(error).__name__}") from error

    def _client(self) -> httpx.AsyncClient:
        seconds = self.settings.http_timeout
        return httpx.AsyncClient(
            timeout=httpx.Timeout(seconds, read=max(seconds, 90.0)),
            headers={"User-Agent": self.settings.user_agent, **PLAIN},
            transport=PublicTransport() if self.given and not self.settings.private_sites else None,
        )

    async def _post(self, client: httpx.AsyncClient, query: str) -> bytes | float:
        """Return the answer, or the seconds that the service asks to wait."""
        async with client.stream("POST", self.location, data={"data": query}) as answer:
            if answer.status_code in BUSY and (wait := retry_after(answer.headers)) is not None:
                return wait
            answer.raise_for_status()
            if (packed := answer.headers.get("content-encoding", "identity")) != "identity":
                raise SourceTrouble(f"{self.location} sent the encoding {packed}, which is not accepted")
            content = bytearray()
            async for part in answer.aiter_raw():
                content += part
                self._check_size(len(content))
            return bytes(content)

    def _read_file(self) -> bytes:
        """Read a regular file. A file given by a run must be below `bots.source_dir`.

        All refusals of such a file have the same message, so that they do not reveal which files exist.
        """
        try:
            path = _below(self.settings.source_dir, self.location) if self.given else self.location
            # O_NONBLOCK: opening a FIFO would block until another process writes to it.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError("not a regular file")
                content = file.read(self.settings.source_max_mb * 1_000_000 + 1)
        except (OSError, ValueError) as error:
            if not self.given:
                raise SourceTrouble(f"cannot read bots.source {self.location}: {error}") from error
            hint = "use a URL, or set bots.source_dir to the folder of the file"
            raise UsageError(f"{self.location!r} is not a file below bots.source_dir", hint=hint) from None
        self._check_size(len(content))
        return content

    def _check_size(self, size: int) -> None:
        if size > self.settings.source_max_mb * 1_000_000:
            message = f"{self.location} is larger than {self.settings.source_max_mb} MB"
            raise SourceTrouble(message, hint="raise bots.source_max_mb, or choose one category")

    def _parse(
        self, content: bytes, city: City, categories: Sequence[Category]
    ) -> list[dict[str, Any] | None]:
        try:
            document = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise SourceTrouble(f"{self.location} is not JSON: {error}") from error
        features = document.get("elements", document.get("features")) if isinstance(document, dict) else None
        if not isinstance(features, list):
            raise SourceTrouble(f"{self.location} has neither Overpass elements nor GeoJSON features")
        return list(sightings(features, city, categories))


def chosen(given: str | None, settings: BotsSettings) -> PlaceSource:
    """Return the source given by the run, or else the one from the settings."""
    if given is None:
        return PlaceSource(settings.source, False, settings)
    return PlaceSource(given.strip(), True, settings)


def _below(folder: Path | None, name: str) -> str:
    if folder is None:
        raise ValueError("files are not allowed")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))
    if os.path.commonpath([root, path]) != root:
        raise ValueError("outside the folder")
    return path


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header (a number or a date), at least one."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return max(1.0, float(text))
    try:
        return max(1.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def overpass_query(city: City, categories: Iterable[Category]) -> str:
    """Return the query for all places of these categories in the city, with one point each."""
    box = ",".join(map(str, city.box))
    parts = [
        f'nwr["{key}"~"^({"|".join(values)})$"]({box});'
        for category in categories
        for key, values in category.tags.items()
    ]
    return f"[out:json][timeout:60];({''.join(parts)});out center tags;"


def sightings(
    features: Iterable[Any], city: City, categories: Sequence[Category]
) -> Iterator[dict[str, Any] | None]:
    """Yield each feature of these categories in the city as a sighting, or None if it is unusable."""
    for feature in features:
        found = _feature(feature)
        if found is None:
            yield None
            continue
        id, tags, lat, lon = found
        kind = next((category for category in categories if category.fits(tags)), None)
        if kind is not None and city.contains(lat, lon):
            yield _sighting(id, tags, lat, lon, kind.key)


def _feature(feature: Any) -> tuple[str, dict[str, Any], float, float] | None:
    """Return the id, tags and point of an Overpass element or a GeoJSON feature."""
    if not isinstance(feature, Mapping):
        return None
    geojson = feature.get("type") == "Feature"
    tags = feature.get("properties" if geojson else "tags")
    at = feature.get("geometry") if geojson else feature.get("center", feature)
    point = _middle(at, geojson) if isinstance(at, Mapping) else None
    name = tags.get("name") if isinstance(tags, Mapping) else None
    if point is None or not isinstance(name, str) or not name.strip():
        return None
    assert isinstance(tags, Mapping)
    id = tags.get("@id") or feature.get("id") if geojson else f"{feature.get('type')}/{feature.get('id')}"
    key = str(id or _digest(name, point))
    if any(len(text) > MAX_LENGTH or "\x00" in text for text in (name, key)):
        return None
    return key, dict(tags), *point


def _middle(at: Mapping[str, Any], geojson: bool) -> tuple[float, float] | None:
    """Return the mean of all points as latitude and longitude; GeoJSON has the longitude first."""
    points = list(_points(at.get("coordinates") if geojson else [at.get("lon"), at.get("lat")]))
    if not points:
        return None
    lon, lat = (float(sum(values) / len(points)) for values in zip(*points, strict=True))
    return (lat, lon) if -90 <= lat <= 90 and -180 <= lon <= 180 else None


def _points(value: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[float, float]]:
    if not isinstance(value, list) or depth == 0:
        return
    if len(value) >= 2 and all(isinstance(number, int | float) for number in value[:2]):
        yield value[0], value[1]
        return
    for part in value:
        yield from _points(part, depth - 1)


def _digest(name: str, point: tuple[float, float]) -> str:
    text = f"{name}@{point[0]:.5f},{point[1]:.5f}"
    return "geojson/" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _sighting(id: str, tags: Mapping[str, Any], lat: float, lon: float, category: str) -> dict[str, Any]:
    street = " ".join(_words(tags, "addr:street", "addr:housenumber"))
    town = " ".join(_words(tags, "addr:postcode", "addr:city"))
    return {
        "source_id": id,
        "name": str(tags["name"]).strip(),
        "lat": lat,
        "lon": lon,
        "category": category,
        "address": ", ".join(filter(None, (street, town))) or None,
        "phone": _phone(tags),
        "website": next(iter(_words(tags, "website", "contact:website", "url")), None),
        "opening_hours": next(iter(_words(tags, "opening_hours")), None),
        "tags": {key: " ".join(_words(tags, key)) for key in KEPT_TAGS if tags.get(key)},
    }


def _words(tags: Mapping[str, Any], *keys: str) -> list[str]:
    return [str(tags[key]).strip().replace("\x00", "") for key in keys if tags.get(key)]


def _phone(tags: Mapping[str, Any]) -> str | None:
    """Return the first phone number, normalised to digits and `+`."""
    for text in _words(tags, "phone", "contact:phone"):
        return "".join(c for c in text.split(";")[0] if c.isdigit() or c == "+")[:MAX_LENGTH] or None
    return None
