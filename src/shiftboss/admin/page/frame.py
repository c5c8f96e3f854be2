"""What is around every page: navigation, who is looking, alerts, the question before an action."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.markup import html, join, link
from shiftboss.model.access import Role

if TYPE_CHECKING:
    from shiftboss.model.access import Principal

ASSETS = Path(__file__).parent / "assets"

# Name, address, icon (strokes on a 24×24 field).
PAGES = (
    ("Overview", "/", "M3 12h4l3-8 4 16 3-8h4"),
    ("Tasks", "/tasks", "M9 6h11M9 12h11M9 18h11M4 6h.01M4 12h.01M4 18h.01"),
    ("Workers", "/workers", "M5 5h14v6H5zM5 14h14v5H5zM8 8h.01M8 16.5h.01"),
    ("Runs", "/runs", "M7 4l12 8-12 8z"),
    ("Queues", "/queues", "M4 7h16M4 12h16M4 17h10"),
    ("Journal", "/journal", "M6 3h11a2 2 0 0 1 2 2v16H7a2 2 0 0 1-2-2V4a1 1 0 0 1 1-1zM9 8h6M9 12h6"),
    ("Vectorizers", "/vectorizers", "M5 19L19 5M19 5h-6M19 5v6M5 5l5 5M14 14l5 5"),
    ("Schedules", "/schedules", "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7v5l4 2"),
    ("Providers", "/providers", "M7 18a4 4 0 0 1 0-8 5 5 0 0 1 9.7-1.5A4.5 4.5 0 0 1 17 18z"),
    ("Events", "/events", "M4 5h16v11H9l-5 4z"),
)
FOR_ADMINS = (("Access", "/access", "M15 7a3 3 0 1 1-2.1 5.1L8 17v2H6v2H3v-3l7-7A3 3 0 0 1 15 7z"),)
LOGO = Markup(
    '<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round"'
    ' aria-hidden="true"><path d="M4 15a8 8 0 0 1 16 0M2 15h20M9 7V4.5h6V7M5 19h14"/></svg>'
)
KINDS = {
    "worker_failed": ("Slot failed", "/slots/{}"),
    "worker_restarts": ("Restarting often", "/slots/{}"),
    "all_workers_crashed": ("No worker left", "/workers"),
    "stale_worker": ("Silent worker", "/workers/{}"),
    "stuck_task": ("Stuck task", "/tasks/{}"),
    "budget_spent": ("Budget spent", "/providers"),
    "circuit_open": ("Provider down", "/providers"),
}


@cache
def head() -> Markup:
    """Style and script of every page, in the page itself: nothing to fetch, nothing to flash."""
    style, script = (ASSETS / "style.css").read_text(), (ASSETS / "head.js").read_text()
    return Markup(f"<style>{style}</style><script>{script}</script>")  # noqa: S704 -- files of ours


def plain(title: str, body: Markup) -> Markup:
    """A page without navigation, for those who are not in yet or have lost their way."""
    return html(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · Shiftboss</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="/favicon.ico">{head}</head><body><main class="login">'
        '<div class="brand">{logo}<h1>Shiftboss</h1></div>{body}</main></body></html>',
        title=title,
        head=head(),
        logo=LOGO,
        body=body,
    )


def navigation(who: Principal, current: str) -> Markup:
    items = join(
        html(
            '<li><a href="{}"{}><svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2"'
            ' stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d="{}"/>'
            "</svg>{}</a></li>",
            path,
            Markup(' aria-current="page"') if name == current else "",
            icon,
            name,
        )
        for name, path, icon in (*PAGES, *(FOR_ADMINS if who.may(Role.ADMIN) else ()))
    )
    return html(
        '<a class="skip" href="#main">Skip to content</a>'
        '<header class="top-bar"><button type="button" class="btn" data-do="menu" aria-expanded="false"'
        ' aria-controls="side-bar">Menu</button><a class="brand" href="/">{logo}Shiftboss</a></header>'
        '<aside class="side-bar" id="side-bar" aria-label="Shiftboss">'
        '<a class="brand" href="/">{logo}Shiftboss</a>'
        '<nav aria-label="Pages"><ul>{items}</ul></nav>{who}</aside>',
        logo=LOGO,
        items=items,
        who=_who(who),
    )


def _who(who: Principal) -> Markup:
    out = (
        Markup('<form method="post" action="/logout"><button class="btn">Log out</button></form>')
        if who.kind == "session"
        else ""
    )
    return html(
        '<div class="who"><span><b>{}</b><span class="dim">{}</span></span><div>'
        '<button type="button" class="btn" data-do="theme" title="light or dark">◐ Theme</button>'
        "{}</div></div>",
        who.name,
        who.role,
        out,
    )


def foot() -> Markup:
    """Where messages appear, and the question before an action."""
    return Markup(
        '<div id="toasts" role="status" aria-live="polite"></div>'
        '<dialog id="ask" aria-label="Are you sure?"><p></p>'
        '<form method="dialog"><button class="btn" value="no">Back</button>'
        '<button class="btn main" value="yes">Yes</button></form></dialog>'
    )


def sheet(number: int, title: str, body: Markup) -> Markup:
    """A dialog over the page; a new number opens it, with nothing left of the one before."""
    return html(
        '<dialog id="sheet" data-open="{}" aria-labelledby="sheet-title">'
        '<div data-key="sheet-{}"><h2 id="sheet-title">{}</h2>{}</div></dialog>',
        number,
        number,
        title,
        body,
    )


def alerts(found: list[dict[str, Any]], may: bool) -> Markup:
    """Worst first, each leading to its cause."""
    if not found:
        return Markup("")
    lines = join(html('<li class="{}">{}</li>', alert["severity"], _alert(alert)) for alert in found[:8])
    more = html('<li class="dim">and {} more</li>', len(found) - 8) if len(found) > 8 else ""
    return html('<ul class="alerts" aria-label="Alerts">{}{}</ul>', lines, more)


def _alert(alert: dict[str, Any]) -> Markup:
    name, path = KINDS.get(alert["kind"], (alert["kind"].replace("_", " "), "/"))
    return link(path, html("<b>{}</b> <span>{}</span>", name, alert["message"]), alert["subject"] or "")
