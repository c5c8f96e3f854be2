"""Alerts, shown at the top of every page."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from shiftboss.db.insights.rows import AlertRow
from shiftboss.extensions.admin.page.channels import Channel, Look
from shiftboss.extensions.admin.page.render import Piece
from shiftboss.extensions.admin.page.shell import Shell
from shiftboss.extensions.admin.page.words import capital

EVERY = 5.0
WAKES = frozenset({"event", "run"})
SHOWN = 6
# Name, link, remedy.
KINDS = {
    "worker_failed": ("Worker failed", "/slots/{}", "See the error on its page, then restart it."),
    "worker_restarts": ("Worker restarts often", "/slots/{}", "Its page shows why it stops."),
    "all_workers_crashed": ("All workers crashed", "/workers", "Restart all workers."),
    "stale_worker": (
        "Silent worker",
        "/workers/{}",
        "Others take over its tasks when its leases expire.",
    ),
    "stuck_task": ("Stuck task", "/tasks/{}", "Check its progress and cancel it if it hangs."),
    "queue_too_old": ("Slow queue", "/tasks?status=Queued&queue={}", "Open a task to see why it waits."),
    "failure_rate": ("Many failures", "/tasks?status=Failed&task_type={}", "Open a task to see its error."),
    "nobody_leads": ("No leader", "/events", "Start `shiftboss up` or `shiftboss supervise`."),
    "run_failed": ("Run failed", "/runs", "Its page shows the error. Retry it from there."),
    "vectorizer_behind": ("Vectorizer is behind", "/vectorizers", "Its page shows pending rows and errors."),
    "budget_low": ("Budget is nearly spent", "/providers", "Raise the budget, or wait until tomorrow."),
    "budget_spent": ("Budget spent", "/providers", "Raise the budget, or wait until tomorrow."),
    "circuit_open": ("Provider down", "/providers", "Calls go to the next provider until it recovers."),
}


def explained(alert: AlertRow) -> dict[str, Any]:
    """Return an alert with its name, link and remedy."""
    name, path, remedy = KINDS.get(alert["kind"], (capital(alert["kind"].replace("_", " ")), "/", ""))
    to = path.format(quote(alert["subject"] or "", safe="/"))
    command = f"Run `{alert['command']}`" if alert["command"] else ""
    return {**alert, "name": name, "to": to, "remedy": _sentence(alert["advice"] or remedy or command)}


def _sentence(text: str) -> str:
    return text and capital(text).removesuffix(".") + "."


async def alerts_piece(shell: Shell) -> Piece:
    found = [explained(one) for one in await shell.admin.reads.insights.overview.alerts()]
    html = shell.renderer.plain("alerts.html", alerts=found[:SHOWN], more=len(found[SHOWN:]))
    return Piece("alerts", Markup(html.strip()))  # noqa: S704 -- autoescaped by the template


async def alerts_now(shell: Shell) -> Piece:
    """Return the piece that open pages already show, or a new one if no page is open."""
    channel = alerts_channel(shell)
    if channel.watched and "alerts" in channel.pieces:
        return channel.pieces["alerts"]
    return await alerts_piece(shell)


def alerts_channel(shell: Shell) -> Channel:
    async def read() -> Look:
        return [await alerts_piece(shell)], EVERY

    return shell.channels.channel("alerts", read, WAKES)
