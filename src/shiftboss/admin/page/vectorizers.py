"""Vectorizers: how far each is, what it could not embed, and search by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.markup import (
    badge,
    button,
    card,
    code,
    document,
    empty,
    field,
    html,
    join,
    number,
    select,
    span,
    table,
    when,
)
from shiftboss.model.access import Principal, Role

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen
    from shiftboss.db import Database


async def build(screen: Screen) -> None:
    screen.title("Vectorizers")
    db = screen.desk.db
    await screen.live(screen.sampler.reading("vectorizers", lambda: _read(db), 5.0), _page)
    await _search(screen)
    await screen.live(screen.sampler.reading("vectorizers", lambda: _read(db), 5.0), _errors)
    commands = screen.desk.commands

    def of(act: Any, told: str) -> Handler:
        async def handler(who: Principal, values: dict[str, str]) -> str:
            await act(who, int(values["arg"]))
            return told

        return handler

    screen.on("pause", of(commands.pause_vectorizer, "it queues changes but embeds nothing"))
    screen.on("resume", of(commands.resume_vectorizer, "it embeds again"))
    screen.on("retry", of(commands.retry_vectorizer, "its failed rows are tried again"))
    screen.on("drop", of(commands.drop_vectorizer, "it is gone; its embeddings stay"))


async def _read(db: Database) -> dict[str, Any]:
    return {"status": await db.vectorizers.status(), "errors": await db.vectorizers.errors(limit=50)}


def _page(seen: dict[str, Any], may: bool) -> Markup:
    rows = seen["status"]
    if not rows:
        how = html("Make one: {}", code("shiftboss vectorizer create documents --column body"))
        return card("Vectorizers", empty("No table is followed yet", how))
    shown = [
        (
            row["name"],
            badge(row["state"]),
            html("{} · {}", row["provider"], row["model"] or "its own model"),
            number(row["pending"]),
            html("{} retrying, {} failed", number(row["retrying"]), number(row["failed"])),
            "–" if row["rows_per_second"] is None else f"{row['rows_per_second']} rows/s",
            span(row["time_left"].total_seconds()) if row["time_left"] else "done",
            when(row["last_success_at"]),
            _acts(row, may),
        )
        for row in rows
    ]
    heads = ("Name", "State", "Model", "#Pending", "Errors", "#Pace", "#Left", "Last success", "#Actions")
    return card("Vectorizers", table(heads, shown, caption="Vectorizers", keys=[row["id"] for row in rows]))


def _acts(row: dict[str, Any], may: bool) -> Markup:
    id, name = row["id"], row["name"]
    steer = (
        button("Resume", "resume", id, may=may)
        if row["state"] == "paused"
        else button("Pause", "pause", id, confirm=f"Pause {name}? Changes are queued meanwhile.", may=may)
    )
    again = button("Retry failed", "retry", id, may=may) if row["failed"] else ""
    gone = button("Drop", "drop", id, confirm=f"Drop {name}? Its embeddings stay.", may=may, tone="bad")
    return html('<span class="acts">{}{}{}</span>', steer, again, gone)


def _errors(seen: dict[str, Any], may: bool) -> Markup:
    if not seen["errors"]:
        return Markup("")
    rows = [
        (
            row["name"],
            html("<code>{}</code>", row["key"]),
            row["step"],
            badge(row["state"]),
            row["attempts"],
            html('<span class="error">{}</span>', row["reason"]),
            when(row["failed_at"]),
        )
        for row in seen["errors"]
    ]
    heads = ("Vectorizer", "Row", "Step", "State", "#Attempts", "Reason", "When")
    return card("Rows that could not be embedded", table(heads, rows, caption="Errors"))


async def _search(screen: Screen) -> None:
    """The question is in the address, so that an answer can be sent to somebody."""
    from shiftboss.vectorizer.search import search

    names = [row["name"] for row in await screen.desk.db.vectorizers.status()]
    if not names:
        return
    which, question = screen.query.get("in") or names[0], screen.query.get("q", "").strip()
    form = html(
        '<form class="filter" method="get" action="/vectorizers" role="search">{}{}'
        '<button class="btn main">Search</button></form>',
        select("in", "In", names, which),
        field("q", "By meaning", question, "search", "what are you looking for?"),
    )
    hits = Markup("")
    if question:
        screen.who.require(Role.VIEWER)
        found = await search(screen.desk.db, await screen.desk.ai(), which, question)
        hits = join(map(_hit, found)) or empty("Nothing was found")
    screen.show(card("Search", form + hits))


def _hit(row: dict[str, Any]) -> Markup:
    return html(
        '<div class="hit"><span class="badge">{:.3f}</span> {}'
        "<details><summary>row</summary>{}</details></div>",
        1 - float(row["distance"]),
        row["chunk"][:500],
        document(row["source"]),
    )
