"""AI providers: circuit, limits, spend, latency, and how well the cache works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.markup import badge, card, code, empty, html, number, table, when

if TYPE_CHECKING:
    from shiftboss.admin.desk import Desk
    from shiftboss.admin.page.screen import Screen


async def build(screen: Screen) -> None:
    screen.title("Providers")
    reading = screen.sampler.reading("providers", lambda: _read(screen.desk), 10.0)
    await screen.live(reading, _page)


async def _read(desk: Desk) -> dict[str, Any]:
    """Those that the fleet has used, and those of the settings that wait for their first call."""
    insights, here = desk.db.insights.providers, await desk.providers()
    used = {row["provider"]: row for row in await insights.status()}
    rows = [used.get(name, {"provider": name}) | {"here": ready} for name, ready in here.items()]
    rows += [row | {"here": False} for name, row in used.items() if name not in here]
    return {"status": rows, "cache": await insights.cache()}


def _page(seen: dict[str, Any], may: bool) -> Markup:
    return card("Providers", _details(seen["status"])) + card("Cache, last seven days", _cache(seen["cache"]))


def providers_table(rows: list[dict[str, Any]]) -> Markup:
    """The short form: circuit and spend."""
    if not rows:
        return _none()
    shown = [
        (
            row["provider"],
            badge(row["circuit"]),
            number(row["calls_today"]),
            _money(row["spend_today"], row["daily_budget"]),
            when(row["last_error_at"]),
        )
        for row in rows
    ]
    heads = ("Provider", "Circuit", "#Calls today", "#Spend today", "Last error")
    return table(heads, shown, caption="Providers today", keys=[row["provider"] for row in rows])


def _details(rows: list[dict[str, Any]]) -> Markup:
    if not rows:
        return empty("There is no provider", html("Name some in the setting {}.", code("ai.providers")))
    shown = [
        (
            row["provider"],
            badge("set up" if row["here"] else "not set up"),
            row.get("model"),
            badge(row.get("circuit")),
            *(_figures(row) if "circuit" in row else (None,) * 6),
            _error(row),
        )
        for row in rows
    ]
    heads = ("Provider", "Here", "Model", "Circuit", "#Requests/min", "#Tokens/min", "#Calls today",
             "#Errors", "#Spend today", "#Latency", "Last error")  # fmt: skip
    return table(heads, shown, caption="Providers", keys=[row["provider"] for row in rows])


def _figures(row: dict[str, Any]) -> tuple[str | None, ...]:
    return (
        _use(row["requests_last_minute"], row["requests_per_minute"]),
        _use(row["tokens_last_minute"], row["tokens_per_minute"]),
        _use(row["calls_today"], None),
        number(row["errors_today"] or 0),
        _money(row["spend_today"], row["daily_budget"]),
        None if row["latency_ms"] is None else f"{row['latency_ms']:.0f} ms",
    )


def _error(row: dict[str, Any]) -> Markup | None:
    if not row.get("last_error"):
        return None
    return html(
        '<span class="cut" title="{}">{}</span>{}',
        row["last_error"],
        row["last_error"],
        when(row["last_error_at"]),
    )


def _cache(rows: list[dict[str, Any]]) -> Markup:
    if not rows:
        return empty("Nothing was asked for yet", "Answers are kept and given again to the same question.")
    shown = [
        (row["task_type"], number(row["hits"]), number(row["misses"]), _percent(row["hit_rate"]))
        for row in rows
    ]
    return table(("Task type", "#Hits", "#Misses", "#Hit rate"), shown, caption="Cache")


def _none() -> Markup:
    how = html(
        "{} shows what is configured; the first call makes a provider appear.", code("shiftboss providers")
    )
    return empty("No provider has been used", how)


def _use(used: int | None, limit: int | None) -> str:
    return number(used or 0) if limit is None else f"{number(used or 0)} of {number(limit)}"


def _percent(share: Any) -> str:
    return "–" if share is None else f"{float(share) * 100:.0f} %"


def _money(spent: Any, budget: Any) -> str:
    shown = f"${float(spent or 0):.2f}"
    return shown if budget is None else f"{shown} of ${float(budget):.2f}"
