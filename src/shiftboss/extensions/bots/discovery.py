"""The bot `discovery`: reads places from a source and stores them without duplicates."""

from __future__ import annotations

from pydantic import Field

from shiftboss.extensions.bots.catalog import City
from shiftboss.extensions.bots.places import Places
from shiftboss.extensions.bots.registry import Limit, NoParams, bot
from shiftboss.extensions.bots.run import Run
from shiftboss.extensions.bots.settings import BotsSettings
from shiftboss.extensions.bots.sources import chosen

BATCH = 50
SCALE = 1000


class DiscoveryParams(NoParams):
    source: str | None = Field(
        default=None,
        max_length=2000,
        description="An Overpass URL, or a GeoJSON file below bots.source_dir; default: bots.source",
    )
    limit: Limit | None = Field(default=None, description="Maximum number of places per city")


@bot("discovery")
async def discovery(run: Run, params: DiscoveryParams) -> None:
    """Find places of a city and category in OpenStreetMap data and insert or update them."""
    cities = sorted(run.cities, key=lambda city: city.key)
    for n, city in enumerate(cities):
        if city.key < run.checkpoint.get("city", ""):
            continue
        await _discover(run, params, city, n, len(cities))


async def _discover(run: Run, params: DiscoveryParams, city: City, n: int, cities: int) -> None:
    found = await chosen(params.source, BotsSettings.of(run.settings)).read(city, run.categories)
    places = sorted((s for s in found if s), key=lambda s: str(s["source_id"]))[: params.limit]
    present = [place["source_id"] for place in places]
    after = run.checkpoint.get("after", "") if run.checkpoint.get("city") == city.key else ""
    left = [place for place in places if place["source_id"] > after]
    run.count("skipped", found.count(None))
    run.count("found", len(left))
    for start in range(0, len(left), BATCH):
        batch = left[start : start + BATCH]
        for outcome, count in (await run.db.family(Places).sight_places(city.key, batch, present)).items():
            run.count(outcome, count)
        run.checkpoint = {"city": city.key, "after": batch[-1]["source_id"]}
        done = (len(places) - len(left) + start + len(batch)) * SCALE // len(places)
        await run.step(n * SCALE + done, cities * SCALE, f"{city.name}: {batch[-1]['name']}")


if __name__ == "__main__":
    from shiftboss.extensions.bots.command import main

    raise SystemExit(main("discovery"))
