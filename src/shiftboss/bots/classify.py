"""Classify: assigns categories with confidence through the AI engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from shiftboss.bots.registry import bot
from shiftboss.bots.run import Run
from shiftboss.bots.walk import places

if TYPE_CHECKING:
    from shiftboss.ai.engine import AI


class ClassifyParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1000, description="At most so many places"
    )
    min_confidence: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.2, description="Below this a place keeps the category that it has"
    )
    again: bool = Field(default=False, description="Also those that were classified before")


@bot("classify")
async def classify(run: Run, params: ClassifyParams) -> None:
    """Assign a category with its confidence to each place, by what is known of it."""
    from shiftboss.ai.engine import AI  # here: who only starts runs need not load the SDKs

    labels = {category.key: category.description for category in run.catalog.categories.values()}
    async with await AI.open(run.settings.ai, run.db) as ai:
        async for place in places(run, params.limit, unclassified=not params.again):
            label, confidence = await _ask(ai, place, labels)
            run.count("classified")
            if confidence < params.min_confidence or label not in labels:
                run.count("unsure")
                label = place["category"]
            elif label != place["category"]:
                run.count("changed")
            await run.db.places.classify_place(place["id"], label, confidence)


async def _ask(ai: AI, place: dict[str, Any], labels: dict[str, str]) -> tuple[str, float]:
    from shiftboss.ai.answers import Classification
    from shiftboss.ai.protocol import Need, Request

    request = Request(
        task_type="classification",
        content=describe(place),
        schema=Classification,
        need=Need.BASIC,
        variables={"labels": labels},
    )
    choice = (await ai.complete(request)).value.processed_data
    return choice.label, choice.confidence


def describe(place: dict[str, Any]) -> str:
    """What a reader would go by: the name, and the tags in words."""
    tags = ", ".join(f"{key} {value}".replace("_", " ") for key, value in place["tags"].items())
    return f"{place['name']}. {tags}" if tags else str(place["name"])


if __name__ == "__main__":
    from shiftboss.bots.command import main

    raise SystemExit(main("classify"))
