"""Runs of bots: start one, watch it, look back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from markupsafe import Markup

from shiftboss.admin.page.forms import SELECTED, select
from shiftboss.admin.page.markup import (
    badge,
    bar,
    button,
    card,
    document,
    empty,
    facts,
    html,
    join,
    link,
    number,
    short,
    span,
    table,
    trouble,
    when,
)
from shiftboss.admin.page.params import fields, values_of
from shiftboss.model.access import Principal
from shiftboss.model.errors import NotFound, UsageError

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen
    from shiftboss.bots.registry import Bot
    from shiftboss.db import Database

WAKES = frozenset({"run"})
ACTIVE, IDLE = 5.0, 60.0
SHOWN = 50
STATES = ("pending", "running", "finished", "failed")


def pace(runs: Any) -> float:
    """Often while any run is pending or running, seldom when all is quiet; changes are pushed anyway."""
    return ACTIVE if runs and runs["active"] else IDLE


async def build(screen: Screen) -> None:
    screen.title("Runs")
    bot, status = screen.query.get("bot") or None, screen.query.get("status") or None
    if status not in (None, *STATES):
        raise UsageError(f"there is no status {status!r}", hint=f"one of: {', '.join(STATES)}")
    if screen.may_act:
        _start_form(screen)
    db = screen.desk.db
    names = [one.name for one in screen.desk.bots]

    async def read() -> dict[str, Any]:
        return {"bots": names, "bot": bot, "status": status, **await _read(db, bot, status)}

    reading = screen.sampler.reading(("runs", bot, status), read, pace, WAKES)
    await screen.live(reading, _page)
    await screen.live(reading, _history)
    screen.on("start-run", _start(screen))
    screen.on("cancel-run", cancel_run(screen))
    screen.on("retry-run", _retry(screen))


async def _read(db: Database, bot: str | None, status: str | None) -> dict[str, Any]:
    return {
        "active": await db.runs.active(),
        "past": await db.runs.list_runs(bot=bot, status=status, limit=SHOWN),
        "total": await db.runs.count_runs(bot=bot, status=status),
    }


def _start_form(screen: Screen) -> None:
    """For operators. One form per bot, its parameters are its own; another choice changes it in place."""
    bots = list(screen.desk.bots)
    if not bots:
        screen.show(card("Run worker", empty("There is no bot", "Name a module with bots in bots.modules.")))
        return

    def body(wanted: str | None) -> Markup:
        chosen = next((bot for bot in bots if bot.name == wanted), bots[0])
        broken = join(html('<p class="error">{}</p>', error) for error in screen.desk.catalog.errors)
        return card("Run worker", broken + _form(screen, bots, chosen))

    part = screen.show(body(screen.query.get("run")))

    async def choose(who: Principal, values: dict[str, str]) -> str:
        part.show(body(values["arg"]))
        return ""

    screen.on("choose-bot", choose)


def _form(screen: Screen, bots: list[Bot], chosen: Bot) -> Markup:
    cities = {key: city.name for key, city in screen.desk.catalog.cities.items()}
    kinds = {key: kind.name for key, kind in screen.desk.catalog.categories.items()}
    names = [bot.name for bot in bots]
    return html(
        '<div class="filter"><label>Bot<select data-act="choose-bot">{}</select></label>'
        '<form data-key="run-{}" data-act="start-run" data-arg="{}">{}{}{}'
        '<button class="btn main">Run worker</button></form></div><p class="dim note">{}</p>',
        join(html("<option{}>{}</option>", SELECTED if name == chosen.name else "", name) for name in names),
        chosen.name,
        chosen.name,
        select("city", "City", cities, None),
        select("category", "Category", kinds, None),
        fields(chosen.schema()),
        chosen.description,
    )


def _filter(seen: dict[str, Any]) -> Markup:
    return html(
        '<form class="filter" method="get" action="/runs">{}{}<button class="btn">Show</button></form>',
        select("bot", "Bot", seen["bots"], seen["bot"]),
        select("status", "State", STATES, seen["status"]),
    )


def _start(screen: Screen) -> Handler:
    async def start(who: Principal, values: dict[str, str]) -> str:
        name = values["arg"]
        city, category = values.pop("city", "") or None, values.pop("category", "") or None
        bot = next((one for one in screen.desk.bots if one.name == name), None)
        params = values_of(bot.schema(), values) if bot else {}
        run = await screen.desk.commands.start_run(who, name, city, category, params)
        return f"{name} is on its way" if run.created else f"the same run of {name} is under way already"

    return start


def cancel_run(screen: Screen) -> Handler:
    async def cancel(who: Principal, values: dict[str, str]) -> str:
        await screen.desk.commands.cancel_run(who, UUID(values["arg"]))
        return "the run is being cancelled"

    return cancel


def _retry(screen: Screen) -> Handler:
    async def retry(who: Principal, values: dict[str, str]) -> str:
        run = await screen.desk.commands.retry_run(who, UUID(values["arg"]))
        return "a new run takes up the work" if run.created else "the same run is under way already"

    return retry


def _page(seen: dict[str, Any], may: bool) -> Markup:
    if not seen["active"]:
        return card("Under way", empty("No run is under way", "Choose a bot above and press Run worker."))
    return card("Under way", active_runs(seen["active"], may))


def active_runs(runs: list[dict[str, Any]], may: bool) -> Markup:
    rows = [
        (
            link("/runs/{}", run["bot"], run["id"]),
            _where(run),
            badge(run["status"]),
            bar(run["progress"], f"Progress of {run['bot']}"),
            run["message"],
            when(run["started_at"] or run["created_at"]),
            button("Cancel", "cancel-run", run["id"], confirm=f"Cancel the run of {run['bot']}?", may=may),
        )
        for run in runs
    ]
    heads = ("Bot", "Where", "State", "Progress", "Doing", "Since", "#Action")
    return table(heads, rows, caption="Active runs", keys=[run["id"] for run in runs])


def _history(seen: dict[str, Any], may: bool) -> Markup:
    past, total = seen["past"], seen["total"]
    if not past:
        none = empty("No run matches", "Runs that ended stay here with their counters.")
        return card("History", none, side=_filter(seen))
    rows = [
        (
            link("/runs/{}", short(run["id"]), run["id"]),
            run["bot"],
            _where(run),
            badge(run["status"]),
            counters(run["counters"]),
            span(run["duration_seconds"]) if run["finished_at"] else None,
            when(run["created_at"]),
            run["requested_by"],
            _again(run, may),
        )
        for run in past
    ]
    heads = ("Run", "Bot", "Where", "State", "Counters", "#Took", "Asked", "By", "#Action")
    shown = table(heads, rows, caption="Runs", keys=[run["id"] for run in past])
    title = f"History, the newest {len(past)} of {number(total)}" if total > len(past) else "History"
    return card(title, shown, side=_filter(seen))


def _again(run: dict[str, Any], may: bool) -> Markup | None:
    return (
        button("Retry", "retry-run", run["id"], may=may) if run["status"] in ("finished", "failed") else None
    )


def _where(run: dict[str, Any]) -> str:
    return " · ".join(filter(None, (run["city"], run["category"])))


def counters(found: dict[str, Any]) -> Markup | None:
    if not found:
        return None
    return html(
        '<span class="chips">{}</span>',
        join(html('<span class="badge">{} {}</span>', name, value) for name, value in found.items()),
    )


async def build_run(screen: Screen, id: str) -> None:
    wanted = parse_id(id, "run")
    screen.title(f"Run {short(id)}", crumb=link("/runs", "Runs"))

    async def read() -> dict[str, Any]:
        row = await screen.desk.db.runs.get(wanted)
        if row is None:
            raise NotFound(f"there is no run {id}", hint="it may have been pruned")
        return row

    def every(run: Any) -> float:
        return ACTIVE if run["status"] in ("pending", "running") else IDLE

    await screen.live(screen.sampler.reading(("run", id), read, every, WAKES), _one)
    screen.on("cancel-run", cancel_run(screen))
    screen.on("retry-run", _retry(screen))


def parse_id(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"{text!r} is no id of a {what}") from None


def _one(run: dict[str, Any], may: bool) -> Markup:
    live = run["status"] in ("pending", "running")
    act = (
        button("Cancel", "cancel-run", run["id"], confirm="Cancel this run?", may=may)
        if live
        else _again(run, may)
    )
    about = facts(
        (
            ("State", badge(run["status"])),
            ("Progress", bar(run["progress"], "Progress")),
            ("Doing", run["message"]),
            ("Where", _where(run)),
            ("Asked by", run["requested_by"]),
            ("Asked", when(run["created_at"])),
            ("Started", when(run["started_at"])),
            ("Ended", when(run["finished_at"])),
            ("Task", link("/tasks/{}", short(run["task_id"]), run["task_id"]) if run["task_id"] else None),
            (
                "Retry of",
                link("/runs/{}", short(run["retry_of"]), run["retry_of"]) if run["retry_of"] else None,
            ),
        )
    )
    parts = [card(run["bot"], about, side=act)]
    if run["error_message"]:
        parts.append(card("Error", trouble(run["error_message"])))
    parts.append(card("Counters", counters(run["counters"]) or empty("Nothing counted yet")))
    if run["params"]:
        parts.append(card("Parameters", document(run["params"])))
    return join(parts)
