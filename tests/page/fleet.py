"""What the fleet behind the page does in these tests and on the screenshots: quick, slow and failing work."""

from __future__ import annotations

import asyncio
import random

from shiftboss.app import App
from shiftboss.app.builtin import fleet
from shiftboss.worker.context import Context

app = App("shop")
app.include(fleet)


@app.task("resize")
async def resize(image: int) -> dict[str, int]:
    await asyncio.sleep(random.uniform(0.01, 0.2))
    return {"width": 640, "image": image}


@app.task("render", queue="gpu")
async def render(ctx: Context, scene: str, seconds: float = 60.0) -> str:
    for percent in range(100):
        ctx.progress(percent, f"frame {percent}")
        await asyncio.sleep(seconds / 100)
    return scene


@app.task("charge", max_attempts=2)
async def charge(order: int) -> None:
    raise ConnectionError(f"the payment service refused order {order}")


@app.cron("*/5 * * * *")
async def tidy() -> None:
    """Nothing to tidy here."""
