"""What the fleet behind the page does in these tests and on the screenshots: quick, slow and failing work."""

from __future__ import annotations

import asyncio
import random

from pydantic import BaseModel, Field

from shiftboss.app import App, fleet
from shiftboss.worker.context import Context


class Verdict(BaseModel):
    ok: bool
    comment: str = Field("", description="what should change")


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


@app.task("summarise")
async def summarise(drafts: list[str]) -> str:
    await asyncio.sleep(0.3)
    return " ".join(drafts)


@app.task("research")
async def research(ctx: Context, topic: str, rest: float = 1.0) -> str:
    """Steps, a stream, an AI call, a sleep, a child task, and a question to a person."""
    ctx.log.info("looking for sources", topic=topic)
    sources = await ctx.step("search", _search, topic)
    drafts = [await ctx.step(f"draft {source}", _draft, ctx, source) for source in sources]
    await ctx.step("mood", _mood, ctx, drafts[0])
    await ctx.sleep("let it rest", rest)
    summary = await ctx.run(summarise.call(drafts))
    verdict = await ctx.wait_for(
        "approval", Verdict, timeout=172_800, question=f"Publish the text on {topic}?"
    )
    ctx.log.info("answered", ok=verdict.ok, comment=verdict.comment)
    if not verdict.ok:
        return verdict.comment
    return await ctx.step("publish", _publish, summary)


async def _search(topic: str) -> list[str]:
    await asyncio.sleep(0.4)
    return [f"{topic} in the press", f"{topic} in books"]


async def _draft(ctx: Context, source: str) -> str:
    ctx.log.warning("one source is older than a year", source=source)
    words = f"Notes on {source}: three of four authors agree.".split()
    for word in words:
        await ctx.emit(f"{word} ")
        await asyncio.sleep(0.05)
    return " ".join(words)


async def _mood(ctx: Context, draft: str) -> str:
    return (await ctx.ai.complete(template="sentiment_analysis", variables={"content": draft})).text


async def _publish(summary: str) -> str:
    return f"https://example.org/{len(summary)}"


@app.cron("*/5 * * * *")
async def tidy() -> None:
    """Nothing to tidy here."""
