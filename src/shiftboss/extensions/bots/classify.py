"""The bot `classify`: assigns categories through the AI engine."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.bots.places import Places, places_from_checkpoint
from shiftboss.extensions.bots.registry import Limit, NoParams, bot
from shiftboss.extensions.bots.run import Run


class ClassifyParams(NoParams):
    limit: Limit = Field(default=1000, description="Maximum number of places")
    min_confidence: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.2, description="Below this confidence, a place keeps its category"
    )
    again: bool = Field(default=False, description="Also classify places that are classified already")


@bot("classify")
async def classify(run: Run, params: ClassifyParams) -> None:
    """Assign each place a category, with the confidence in it."""
    # Local imports: processes that only start runs need no SDKs.
    from shiftboss.extensions.ai.answers import Classification
    from shiftboss.extensions.ai.engine import AI
    from shiftboss.extensions.ai.protocol import Need

    labels = {category.key: category.description for category in run.catalog.categories.values()}
    async with await AI.open(AISettings.of(run.settings), run.db) as ai:
        async for place in places_from_checkpoint(run, params.limit, unclassified=not params.again):
            variables = {"content": describe(place), "labels": labels}
            answer = await ai.complete(
                template="classification", variables=variables, schema=Classification, need=Need.BASIC
            )
            label, confidence = answer.value.processed_data.label, answer.value.processed_data.confidence
            run.count("classified")
            if confidence < params.min_confidence or label not in labels:
                run.count("unsure")
                label = place["category"]
            elif label != place["category"]:
                run.count("changed")
            await run.db.family(Places).classify_place(place["id"], label, confidence)


def describe(place: dict[str, Any]) -> str:
    """Describe a place by its name and tags."""
    tags = ", ".join(f"{key} {value}".replace("_", " ") for key, value in place["tags"].items())
    return f"{place['name']}. {tags}" if tags else str(place["name"])


if __name__ == "__main__":
    from shiftboss.extensions.bots.command import main

    raise SystemExit(main("classify"))
