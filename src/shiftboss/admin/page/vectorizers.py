"""Vectorizers: how far each is, what it could not embed, and search by meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.forms import check, field, figure, form, select, text
from shiftboss.admin.page.markup import (
    acts,
    badge,
    button,
    card,
    code,
    document,
    empty,
    html,
    link,
    number,
    span,
    table,
    when,
)
from shiftboss.admin.page.search import search_card
from shiftboss.model.access import Principal, Role

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen
    from shiftboss.db import Database

CHUNKING = ("sentences", "characters", "none")
INDEXES = ("hnsw", "none")
PROVIDERS = ("local", "openai", "azure", "ollama")
FIGURES = ("chunk_size", "chunk_overlap", "dimensions", "batch_size", "concurrency")
WORDS = ("template", "chunking", "provider", "model", "index_method", "schedule")


async def build(screen: Screen) -> None:
    make = button("Create vectorizer", "ask-create", may=screen.may_act, tone="main")
    screen.title("Vectorizers", side=make)
    db = screen.desk.db
    await screen.live(screen.sampler.reading("vectorizers", lambda: _read(db), 5.0), _page)
    await _search(screen)
    await screen.live(screen.sampler.reading("vectorizers", lambda: _read(db), 5.0), _errors)
    steer(screen)
    screen.on("ask-create", _ask_create(screen))
    screen.on("create", _create(screen))


def steer(screen: Screen) -> None:
    """The actions on one vectorizer."""
    commands = screen.desk.commands

    def of(act: Any, told: str) -> Handler:
        async def handler(who: Principal, values: dict[str, str]) -> str:
            await act(who, int(values["arg"]))
            return told

        return handler

    async def ask_drop(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        row = await screen.desk.db.vectorizers.settings(values["arg"])
        everything = check("everything", f"its vectors in {row['target']} and the view {row['view']} as well")
        screen.sheet(f"Drop {row['name']}?", form("drop", row["id"], everything, "Drop"))
        return ""

    async def drop(who: Principal, values: dict[str, str]) -> str:
        everything = "everything" in values
        await commands.drop_vectorizer(who, int(values["arg"]), everything)
        return "it is gone, and its vectors with it" if everything else "it is gone; its vectors stay"

    screen.on("pause", of(commands.pause_vectorizer, "it queues changes but embeds nothing"))
    screen.on("resume", of(commands.resume_vectorizer, "it embeds again"))
    screen.on("retry", of(commands.retry_vectorizer, "its failed rows are tried again"))
    screen.on("ask-drop", ask_drop)
    screen.on("drop", drop)


async def _read(db: Database) -> dict[str, Any]:
    return {"status": await db.vectorizers.status(), "errors": await db.vectorizers.errors(limit=50)}


def _ask_create(screen: Screen) -> Handler:
    async def ask(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        tables = await screen.desk.db.vectorizers.sources()
        first = html(
            "{}{}",
            field("source", "Table, with a primary key", known=tables, placeholder="blog", needed=True),
            field("name", "Name", placeholder="TABLE_embedding"),
        )
        rest = check("existing", "embed the rows that are there already", on=True)
        screen.sheet("Create a vectorizer", form("create", "", first + settings_fields({}) + rest, "Create"))
        return ""

    return ask


def settings_fields(row: dict[str, Any]) -> Markup:
    """What can be set of a vectorizer; `row` is how one is set now."""
    return html(
        "{}" * 12,
        field("columns", "Columns", ", ".join(row.get("columns") or ()), placeholder="title, body"),
        field("template", "Template", row.get("template"), placeholder="$title: $chunk"),
        select("chunking", "Chunks", CHUNKING, row.get("chunking", "sentences"), none=None),
        field("chunk_size", "Characters in a chunk", row.get("chunk_size"), "number", "800"),
        field("chunk_overlap", "Characters that neighbours share", row.get("chunk_overlap"), "number", "100"),
        select("provider", "Provider", PROVIDERS, row.get("provider", "local"), none=None),
        field("model", "Model", row.get("model"), placeholder="the provider's own"),
        field("dimensions", "Dimensions", row.get("dimensions"), "number", "the model's own"),
        select("index_method", "Index", INDEXES, row.get("index_method"), none="as fits the dimensions"),
        field("schedule", "At most once in", row.get("schedule"), placeholder="at once, or 1 hour"),
        field("batch_size", "Rows at a time", row.get("batch_size"), "number", "256"),
        field("concurrency", "Calls at a time", row.get("concurrency"), "number", "4"),
    )


def settings_of(values: dict[str, str]) -> dict[str, Any]:
    """What was filled in; what was left empty is left to its default."""
    columns = [word.strip() for word in values.get("columns", "").split(",") if word.strip()]
    given: dict[str, Any] = {"columns": columns or None}
    given |= {name: text(values, name) for name in WORDS} | {name: figure(values, name) for name in FIGURES}
    return {name: value for name, value in given.items() if value is not None}


def _create(screen: Screen) -> Handler:
    async def create(who: Principal, values: dict[str, str]) -> str:
        options = settings_of(values) | {"enqueue_existing": "existing" in values}
        if name := text(values, "name"):
            options["name"] = name
        source = text(values, "source") or ""
        id = await screen.desk.commands.create_vectorizer(who, source, options)
        row = (await screen.desk.db.vectorizers.status(id))[0]
        return f"{row['name']} follows {source}; {number(row['pending'])} rows to embed"

    return create


def _page(seen: dict[str, Any], may: bool) -> Markup:
    rows = seen["status"]
    if not rows:
        how = html("Make one: {}", code("shiftboss vectorizer create documents --column body"))
        return card("Vectorizers", empty("No table is followed yet", how))
    shown = [
        (
            link("/vectorizers/{}", row["name"], row["id"]),
            badge(row["state"]),
            model_of(row),
            number(row["pending"]),
            errors_of(row),
            pace_of(row),
            left_of(row),
            when(row["last_success_at"]),
            actions(row, may),
        )
        for row in rows
    ]
    heads = ("Name", "State", "Model", "#Pending", "Errors", "#Pace", "#Left", "Last success", "#Actions")
    return card("Vectorizers", table(heads, shown, caption="Vectorizers", keys=[row["id"] for row in rows]))


def model_of(row: dict[str, Any]) -> str:
    return f"{row['provider']} · {row['model'] or 'its own model'}"


def errors_of(row: dict[str, Any]) -> str:
    told = [f"{number(row[word])} {word}" for word in ("retrying", "failed") if row[word]]
    return ", ".join(told) or "none"


def pace_of(row: dict[str, Any]) -> str | None:
    return None if row["rows_per_second"] is None else f"{row['rows_per_second']} rows/s"


def left_of(row: dict[str, Any]) -> str:
    if row["time_left"] is None:
        return "unknown"
    return span(row["time_left"].total_seconds()) if row["time_left"] else "done"


def actions(row: dict[str, Any], may: bool) -> Markup:
    id, name = row["id"], row["name"]
    steer = (
        button("Resume", "resume", id, may=may)
        if row["state"] == "paused"
        else button("Pause", "pause", id, confirm=f"Pause {name}? Changes are queued meanwhile.", may=may)
    )
    again = button("Retry failed", "retry", id, may=may) if row["failed"] else ""
    return acts(again, steer, button("Drop", "ask-drop", id, may=may, tone="bad"))


def _errors(seen: dict[str, Any], may: bool) -> Markup:
    if not seen["errors"]:
        return Markup("")
    return card("Rows that could not be embedded", errors_table(seen["errors"]))


def errors_table(errors: list[dict[str, Any]]) -> Markup:
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
        for row in errors
    ]
    heads = ("Vectorizer", "Row", "Step", "State", "#Attempts", "Reason", "When")
    return table(heads, rows, caption="Errors")


async def _search(screen: Screen) -> None:
    from shiftboss.vectorizer.search import search

    names = [row["name"] for row in await screen.desk.db.vectorizers.status()]
    if not names:
        return
    which = screen.query.get("in") or names[0]

    async def find(question: str) -> list[dict[str, Any]]:
        return await search(screen.desk.db, await screen.desk.ai(), which, question)

    where = select("in", "In", names, which, none=None)
    await search_card(screen, "/vectorizers", where, "what are you looking for?", find, _hit)


def _hit(row: dict[str, Any]) -> Markup:
    return html(
        '<div class="hit"><span class="badge">{:.3f}</span> {}'
        "<details><summary>row</summary>{}</details></div>",
        1 - float(row["distance"]),
        row["chunk"][:500],
        document(row["source"]),
    )
