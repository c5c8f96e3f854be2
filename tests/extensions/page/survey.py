"""A bot that takes a given time."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import BaseModel, Field

from shiftboss.extensions.bots.registry import bot
from shiftboss.extensions.bots.run import Run


class SurveyParams(BaseModel):
    steps: int = Field(default=20, ge=1, le=1000, description="how many looks")
    pause: float = Field(default=0.1, ge=0, le=10, description="seconds between looks")
    depth: Literal["quick", "thorough"] = "quick"
    dry: bool = Field(default=False, description="look, but change nothing")


@bot("survey")
async def survey(run: Run, params: SurveyParams) -> None:
    """Look around step by step, and count what is seen."""
    for step in range(params.steps):
        await asyncio.sleep(params.pause)
        run.count("seen")
        await run.step(step + 1, params.steps, f"street {step + 1}")
