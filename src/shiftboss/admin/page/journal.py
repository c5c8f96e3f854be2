"""Journals: mood over time, themes, insights, search by meaning."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup

from shiftboss.admin.page.forms import field, form, select, text
from shiftboss.admin.page.markup import (
    acts,
    badge,
    button,
    card,
    code,
    document,
    empty,
    fold,
    html,
    join,
    link,
    number,
    table,
    when,
)
from shiftboss.admin.page.search import search_card
from shiftboss.admin.page.svg import Line, chart
from shiftboss.journal.commands import search, show
from shiftboss.journal.pipeline import STEPS
from shiftboss.journal.reading import READERS
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen
    from shiftboss.db import Database

SHOWN = 40
HIDDEN = ("embedding_generation", "schema_inference")  # much data, little to read
BUCKETS = ("week", "month")


async def build(screen: Screen) -> None:
    screen.title("Journal", side=_sides(screen))
    db = screen.desk.db
    users = [row["user_id"] for row in await db.journal.status()]
    writers = screen.sampler.reading("writers", db.journal.status, 10.0)
    await screen.live(writers, _writers)
    screen.on("process", _process(screen))
    screen.on("ask-again", _ask_again(screen))
    screen.on("ask-import", _ask_import(screen, users))
    screen.on("imported", _imported)
    if not users:
        return
    user = screen.query.get("user") or users[0]
    if user not in users:
        raise NotFound(f"there is no journal of {user!r}", hint=f"known: {', '.join(users)}")
    await _search(screen, users)
    bucket = "week" if screen.query.get("by") == "week" else "month"
    reading = screen.sampler.reading(("journal", user, bucket), lambda: _read(db, user, bucket), 15.0)
    await screen.live(reading, _findings)


def _sides(screen: Screen) -> Markup:
    return acts(
        Markup('<a class="btn" href="/journal/export" download>Export</a>'),
        button("Import", "ask-import", may=screen.may_act, tone="main"),
    )


def _ask_import(screen: Screen, users: list[str]) -> Handler:
    async def ask(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        fields = html(
            '<label class="whole">JSON Lines, CSV, text or Markdown<input type="file" name="file" accept="{}"'
            " required></label>{}",
            ",".join(READERS),
            field("user", "Writer, where a record names none", known=users),
        )
        screen.sheet("Import entries", form("imported", "", fields, "Import", upload="/journal/import"))
        return ""

    return ask


async def _imported(who: Principal, values: dict[str, str]) -> str:
    """The file came by HTTP; what became of it is told here."""
    return values["arg"]


def _process(screen: Screen) -> Handler:
    async def process(who: Principal, values: dict[str, str]) -> str:
        again = [step] if (step := text(values, "again")) else []
        made = await screen.desk.commands.process_journal(who, values["arg"] or None, again)
        return f"{number(len(made))} tasks are enqueued" if made else "everything is analysed already"

    return process


def _ask_again(screen: Screen) -> Handler:
    async def ask(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        steps = {step: step.replace("_", " ") for step in STEPS}
        choice = select(
            "again", "Throw away and make anew", steps, None, none="nothing: only what is missing"
        )
        screen.sheet(f"Analyse {values['arg']}", form("process", values["arg"], choice, "Analyse"))
        return ""

    return ask


def _writers(rows: list[dict[str, Any]], may: bool) -> Markup:
    if not rows:
        how = html("Press Import, or: {}", code("shiftboss journal import FILE"))
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
            acts(
                _export(row["user_id"]),
                button("Analyse", "ask-again", row["user_id"], may=may),
            ),
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
        "#Actions",
    )
    return card("Writers", table(heads, shown, caption="Writers", keys=[row["user_id"] for row in rows]))


def _export(user: str) -> Markup:
    return html('<a class="btn" href="/journal/export?user={}" download>Export</a>', quote(user, safe=""))


async def _search(screen: Screen, users: list[str]) -> None:
    user = screen.query.get("user") or None

    async def find(question: str) -> list[dict[str, Any]]:
        return await search(screen.desk.db, await screen.desk.ai(), question, user=user)

    await search_card(
        screen, "/journal", select("user", "Whose", users, user), "a happy day on the water", find, _hit
    )


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
            '<div class="hit">{} {} <span class="dim">{}</span></div>',
            badge(row["kind"]),
            row["text"],
            _sure(row["confidence"]),
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
    shown = join(_result(name, one) for name, one in found["results"].items() if name not in HIDDEN)
    none = empty("Nothing is analysed yet", "Press Analyse on the journal's page, and have a worker running.")
    screen.show(card("What was found", shown or none))


def _result(name: str, result: dict[str, Any]) -> Markup:
    title = html('{} <span class="dim">{}</span>', name.replace("_", " "), _sure(result["confidence_score"]))
    return html('<div class="hit">{}</div>', fold(title, document(result["processed_data"])))


def _sure(confidence: float) -> str:
    return f"{confidence * 100:.0f} % sure"
