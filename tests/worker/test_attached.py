"""Data that extensions write in the transaction that stores a step."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shiftboss import Context
from shiftboss.app import App
from shiftboss.kit import Kit
from shiftboss.model.step import in_step


@pytest.fixture
def app() -> App:
    return App("attached")


@pytest.fixture
async def kit(app: App, database_url: str) -> AsyncIterator[Kit]:
    async with Kit.open(app, database_url) as kit:
        yield kit


async def test_what_extensions_attach_to_a_step_is_stored_with_it_or_given_back(app: App, kit: Kit) -> None:
    await kit.db.execute(
        "CREATE TABLE attached (given jsonb); CREATE FUNCTION shiftboss.with_step_notes(p jsonb) RETURNS void"
        " LANGUAGE sql AS 'INSERT INTO public.attached SELECT jsonb_array_elements(p)'"
    )
    ended: list[tuple[str, bool]] = []

    def note(what: str, where: object = kit.db) -> bool:
        scope = in_step.get()
        assert scope is not None
        return scope.attach(where, "notes", {"what": what}, lambda stored: ended.append((what, stored)))

    @app.task(max_attempts=2)
    async def work(ctx: Context) -> list[bool]:
        def once() -> list[bool]:
            taken = [note(f"attempt {ctx.attempt} a\x00b"), note("elsewhere", object())]
            if ctx.attempt == 1:
                raise RuntimeError("once more")
            return taken

        return await ctx.step("note", once)

    handle = await work.enqueue()
    await kit.drain()
    assert await handle.result(5) == [True, False]
    assert ended == [("attempt 1 a\x00b", False), ("attempt 2 a\x00b", True)]
    rows = await kit.db.fetch("SELECT given ->> 'what' AS what FROM attached")
    assert [row["what"] for row in rows] == ["attempt 2 a\ufffdb"]
