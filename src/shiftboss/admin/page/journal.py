"""Journals: mood over time, themes, insights, search by meaning."""

from __future__ import annotations

from collections import Counter
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
    link,
    number,
    select,
    table,
    when,
)
from shiftboss.admin.page.svg import Line, chart
from shiftboss.journal.commands import search, show
from shiftboss.model.access import Principal
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Screen
    from shiftboss.db import Database

SHOWN = 40
HIDDEN = ("embedding_generation", "schema_inference")  # much data, little to read
BUCKETS = ("week", "month")


async def build(screen: Screen) -> None:
    screen.title("Journal")
    db = screen.desk.db
    users = [row["user_id"] for row in await db.journal.status()]
    writers = screen.sampler.reading("writers", db.journal.status, 10.0)
    await screen.live(writers, _writers)
    screen.on("process", _process(screen))
    if not users:
        return
    user = screen.query.get("user") or users[0]
    if user not in users:
        raise NotFound(f"there is no journal of {user!r}", hint=f"known: {', '.join(users)}")
    await _search(screen, users)
    bucket = "week" if screen.query.get("by") == "week" else "month"
    reading = screen.sampler.reading(("journal", user, bucket), lambda: _read(db, user, bucket), 15.0)
    await screen.live(reading, _findings)


def _process(screen: Screen) -> Any:
    async def process(who: Principal, values: dict[str, str]) -> str:
        made = await screen.desk.commands.process_journal(who, values["arg"] or None)
        return f"{number(len(made))} tasks are enqueued" if made else "everything is analysed already"

    return process


def _writers(rows: list[dict[str, Any]], may: bool) -> Markup:
    if not rows:
        how = html("Import entries: {}", code("shiftboss journal import FILE"))
        return card("Writers", empty("The journal is empty", how))
    shown = [
        (
            link("/journal?user={}", row["user_id"], row["user_id"]),
            number(row["entries"]),
            html("{} %", round(100 * row["processed"] / row["entries"]) if row["entries"] else 0),
            number(row["people"]),
            number(row["places"]),
            number(row["concepts"]),
            number(row["insights"]),
            when(row["last_written"]),
            button("Analyse", "process", row["user_id"], may=may),
        )
        for row in rows
    ]
    heads = (
        "Writer",
        "#Entries",
        "#Analysed",
        "#People",
        "#Places",
        "#Themes",
        "#Insights",
        "Newest",
        "#Action",
    )
    return card("Writers", table(heads, shown, caption="Writers", keys=[row["user_id"] for row in rows]))


async def _search(screen: Screen, users: list[str]) -> None:
    question, user = screen.query.get("q", "").strip(), screen.query.get("user") or None
    form = html(
        '<form class="filter" method="get" action="/journal" role="search">{}{}'
        '<button class="btn main">Search</button></form>',
        select("user", "Whose", users, user),
        field("q", "By meaning", question, "search", "a happy day on the water"),
    )
    hits = Markup("")
    if question:
        found = await search(screen.desk.db, await screen.desk.ai(), question, user=user)
        hits = join(map(_hit, found)) or empty("Nothing was found")
    screen.show(card("Search", form + hits))


def _hit(hit: dict[str, Any]) -> Markup:
    return html(
        '<div class="hit"><span class="badge">{:.3f}</span> {} <span class="dim">{} · {}</span>'
        "<p>{}</p></div>",
        hit["score"],
        link("/journal/{}", hit["external_id"] or hit["id"], hit["id"]),
        hit["user"],
        hit["written_at"][:10],
        hit["excerpt"],
    )


async def _read(db: Database, user: str, bucket: str) -> dict[str, Any]:
    return {
        "user": user,
        "bucket": bucket,
        "mood": await db.journal.mood(user, bucket),
        "entries": await db.journal.entries(user, SHOWN),
        "entities": await db.journal.entities(user, 60),
        "insights": await db.journal.insights(user),
    }


def _findings(seen: dict[str, Any], may: bool) -> Markup:
    return html(
        '<div class="grid">{}{}{}{}</div>',
        card(f"Mood of {seen['user']}, by {seen['bucket']}", _mood(seen), side=_buckets(seen), wide=True),
        card("Themes", _themes(seen)),
        card("Insights", _insights(seen["insights"])),
        card("Newest entries", _entries(seen["entries"]), wide=True),
    )


def _buckets(seen: dict[str, Any]) -> Markup:
    here = Markup(' aria-current="true"')
    return join(
        html(
            '<a class="btn" href="/journal?user={}&by={}"{}>{}</a>',
            seen["user"],
            bucket,
            here if bucket == seen["bucket"] else "",
            bucket,
        )
        for bucket in BUCKETS
    )


def _mood(seen: dict[str, Any]) -> Markup:
    moods = seen["mood"]
    if not moods:
        return empty("Nothing is analysed yet", "Press Analyse, and have a worker running.")
    lines = [
        Line("mood", [round(row["mood"], 3) for row in moods], "s1"),
        Line("lowest", [round(row["lowest"], 3) for row in moods], "s2"),
        Line("highest", [round(row["highest"], 3) for row in moods], "s3"),
    ]
    labels = [
        f"{row['period']:%d %b %Y}" if seen["bucket"] == "week" else f"{row['period']:%b %Y}" for row in moods
    ]
    return chart(lines, labels, title="Mood over time, from -1 to 1", low=-1.0)


def _themes(seen: dict[str, Any]) -> Markup:
    themes = Counter(theme for entry in seen["entries"] for theme in entry["themes"] or ())
    kinds = (("person", "People"), ("place", "Places"), ("concept", "Themes"))
    parts = [_chips("Of late", list(themes.most_common(10)))] if themes else []
    for kind, title in kinds:
        named = [(one["name"], one["mentions"]) for one in seen["entities"] if one["kind"] == kind][:10]
        if named:
            parts.append(_chips(title, named))
    return join(parts) or empty("No theme yet")


def _chips(title: str, names: list[tuple[str, int]]) -> Markup:
    return html(
        '<div class="hit"><p class="dim">{}</p><div class="chips">{}</div></div>',
        title,
        join(html('<span class="badge">{} {}</span>', name, count) for name, count in names),
    )


def _insights(rows: list[dict[str, Any]]) -> Markup:
    if not rows:
        return empty("No insight yet", "They come when several entries are analysed.")
    return join(
        html(
            '<div class="hit">{} {} <span class="dim">{:.2f}</span></div>',
            badge(row["kind"]),
            row["text"],
            row["confidence"],
        )
        for row in rows[:12]
    )


def _entries(rows: list[dict[str, Any]]) -> Markup:
    shown = [
        (
            link("/journal/{}", row["title"] or row["external_id"] or "entry", row["id"]),
            when(row["written_at"]),
            "–" if row["mood"] is None else f"{row['mood']:+.2f}",
            row["emotion"],
            ", ".join(row["themes"] or ()),
            badge("done" if row["processed"] else "waiting"),
        )
        for row in rows
    ]
    return table(("Entry", "Written", "#Mood", "Emotion", "Themes", "State"), shown, caption="Entries")


async def build_entry(screen: Screen, id: str) -> None:
    found = await show(screen.desk.db, id)
    screen.title(
        found["external_id"] or id,
        crumb=link("/journal?user={}", f"Journal of {found['user']}", found["user"]),
    )
    text = join(
        html('<p style="white-space:pre-wrap;margin-bottom:8px">{}</p>', part["content"])
        for part in found["parts"]
    )
    screen.show(card(f"Written {found['written_at'][:16].replace('T', ' ')}", text))
    for name, result in found["results"].items():
        if name not in HIDDEN:
            sure = f"sure to {result['confidence_score']:.2f}"
            screen.show(card(name.replace("_", " "), document(result["processed_data"]), side=sure))
