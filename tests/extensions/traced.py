"""Tasks whose traces cross processes: a thread, a child process, a worker that a coordinator feeds, an AI call."""

from __future__ import annotations

from shiftboss import App, Context, SyncContext

app = App("traced")


@app.task()
async def parent(ctx: Context) -> str:
    await ctx.step("think", embed, ctx)
    await ctx.run(in_process.call())
    await ctx.run(remote.options(queue="remote").call())
    return str(ctx.id)


async def embed(ctx: Context) -> int:
    return len(await ctx.ai.embed(["a word"]))


@app.task(mode="process")
def in_process(ctx: SyncContext) -> int:
    return ctx.step("count", lambda: 2)


@app.task()
def remote() -> None: ...


@app.task(max_attempts=1)
async def failing() -> None:
    raise ValueError("boom")
