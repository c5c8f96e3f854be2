"""Where places come from: an Overpass-compatible service or a GeoJSON file, both as OpenStreetMap tags."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from shiftboss.bots.catalog import Category, City
from shiftboss.bots.web import is_public
from shiftboss.model.errors import ShiftbossError, UsageError
from shiftboss.model.settings import BotsSettings

LONGEST = 500  # characters; an index must hold names and numbers
KEPT_TAGS = ("amenity", "shop", "tourism", "cuisine", "brand", "description", "operator")


class SourceTrouble(ShiftbossError):
    """The source did not answer, or not with places."""


async def chosen(given: str | None, settings: BotsSettings) -> str:
    """The source of a run. One that came with the order must not lead into our own network."""
    if given is None or settings.private_sites or not given.startswith(("http://", "https://")):
        return given or settings.source
    try:
        public = await is_public(urlsplit(given).hostname or "localhost")
    except (OSError, ValueError):
        public = False
    if not public:
        raise UsageError(
            f"{given} is not a public address", hint="set bots.source, or allow such with bots.private_sites"
        )
    return given


async def read(source: str, city: City, categories: Sequence[Category], settings: BotsSettings) -> list[Any]:
    """The raw features of a city, as GeoJSON features or Overpass elements."""
    document = (
        await _ask(source, city, categories, settings)
        if source.startswith(("http://", "https://"))
        else _load(Path(source))
    )
    features = document.get("elements", document.get("features")) if isinstance(document, dict) else None
    if not isinstance(features, list):
        raise SourceTrouble(f"{source} has neither Overpass elements nor GeoJSON features")
    return features


async def _ask(source: str, city: City, categories: Sequence[Category], settings: BotsSettings) -> Any:
    timeout = httpx.Timeout(settings.http_timeout, read=max(settings.http_timeout, 90.0))
    headers = {"User-Agent": settings.user_agent}
    try:
        async with httpx.AsyncClient(timeout=timeout, headers=headers) as client:
            answer = await client.post(source, data={"data": overpass_query(city, categories)})
            answer.raise_for_status()
            return orjson.loads(answer.content)
    except (httpx.HTTPError, orjson.JSONDecodeError) as error:
        raise SourceTrouble(f"{source} can not be read: {error or type(error).__name__}") from error


def overpass_query(city: City, categories: Iterable[Category]) -> str:
    """Everything of these kinds in the city's box, with one point each."""
    box = ",".join(map(str, city.box))
    parts = [
        f'nwr["{key}"~"^({"|".join(values)})$"]({box});'
        for category in categories
        for key, values in category.tags.items()
    ]
    return f"[out:json][timeout:60];({''.join(parts)});out center tags;"


def _load(path: Path) -> Any:
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} can not be read: {error.strerror}", hint="give a URL or a file") from error
    except orjson.JSONDecodeError as error:
        raise SourceTrouble(f"{path} is not JSON: {error}") from error


def sightings(
    features: Iterable[Any], city: City, categories: Sequence[Category]
) -> Iterator[dict[str, Any] | None]:
    """Each feature of the city and of these kinds as a sighting; None for one that can not be used."""
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
    """Id, tags and point of an Overpass element or a GeoJSON feature."""
    if not isinstance(feature, Mapping):
        return None
    geojson = feature.get("type") == "Feature"
    tags = feature.get("properties" if geojson else "tags")
    point = _middle(feature.get("geometry")) if geojson else _centre(feature)
    name = tags.get("name") if isinstance(tags, Mapping) else None
    if point is None or not isinstance(name, str) or not name.strip():
        return None
    assert isinstance(tags, Mapping)
    id = tags.get("@id") or feature.get("id") if geojson else f"{feature.get('type')}/{feature.get('id')}"
    key = str(id or _digest(name, point))
    if any(len(text) > LONGEST or "\x00" in text for text in (name, key)):
        return None
    return key, dict(tags), *point


def _centre(element: Mapping[str, Any]) -> tuple[float, float] | None:
    at = element.get("center", element)
    return _point(at.get("lat"), at.get("lon")) if isinstance(at, Mapping) else None


def _middle(geometry: Any) -> tuple[float, float] | None:
    """The mean of all points; GeoJSON puts the longitude first."""
    points = list(_points(geometry.get("coordinates"))) if isinstance(geometry, Mapping) else []
    if not points:
        return None
    lon, lat = (sum(values) / len(points) for values in zip(*points, strict=True))
    return _point(lat, lon)


def _points(value: Any) -> Iterator[tuple[float, float]]:
    if not isinstance(value, list):
        return
    if len(value) >= 2 and all(isinstance(number, int | float) for number in value[:2]):
        yield value[0], value[1]
        return
    for part in value:
        yield from _points(part)


def _point(lat: Any, lon: Any) -> tuple[float, float] | None:
    if not (isinstance(lat, int | float) and isinstance(lon, int | float)):
        return None
    return (float(lat), float(lon)) if -90 <= lat <= 90 and -180 <= lon <= 180 else None


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
    """The first number, without decoration, so that two ways to write it are one."""
    for text in _words(tags, "phone", "contact:phone"):
        return "".join(c for c in text.split(";")[0] if c.isdigit() or c == "+")[:LONGEST] or None
    return None
