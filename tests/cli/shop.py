"""An app for the tests of the command line."""

import asyncio

from shiftboss import App

app = App("shop")


@app.task()
async def greet(name: str) -> str:
    return f"Hello, {name}"


@app.task(max_attempts=1)
async def broken() -> None:
    raise RuntimeError("out of paper")


@app.task()
async def sleepy() -> None:
    """Runs until it is ended."""
    await asyncio.Event().wait()
