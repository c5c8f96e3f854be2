"""Findings about the fleet for `shiftboss doctor`: alert rules, alerts and error groups."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from shiftboss.cli.findings import Finding, Level
from shiftboss.cli.output import count
from shiftboss.leader.rules import enabled_rules
from shiftboss.model.settings import Settings

if TYPE_CHECKING:
    from shiftboss.db import Database, Row
    from shiftboss.db.insights.rows import ErrorGroupRow
    from shiftboss.model.alert import Rule

MOST_PER_RULE = 5
MOST_ERRORS = 5
RECENT = timedelta(hours=1)


async def troubles(db: Database) -> list[Finding]:
    """Evaluate the alert rules now, so that they work without a leader, and add recent failures."""
    firing = {(row["rule"], row["subject"]): row["started_at"] for row in await db.alerts.firing()}
    found, seen = list[Finding](), set[str]()
    for rule, threshold in enabled_rules(Settings.load().alerts):
        if not await _applies(rule, db):
            continue
        seen.add(rule.name)
        for one in (await rule.find(db, threshold))[:MOST_PER_RULE]:
            since = firing.get((rule.name, one.subject))
            found.append(_finding(rule.severity, one.message, None, since, one.advice))
    found += [
        _finding(one["severity"], one["message"], one["advice"], one["since"], one["command"])
        for one in await db.insights.overview.alerts()
        if one["rule"] not in seen
    ]
    return found + await _errors(db) + _undelivered(await db.alerts.undelivered())


async def _applies(rule: Rule, db: Database) -> bool:
    """Whether the rule makes sense now: without workers, a fleet needs no leader."""
    return rule.name != "nobody_leads" or bool((await db.insights.figures.fleet())["active_workers"])


def _finding(
    severity: str, message: str, advice: str | None, since: datetime | None, command: str | None
) -> Finding:
    level: Level = "problem" if severity == "critical" else "warning"
    return Finding(level, "fleet", message, advice, since, command)


async def _errors(db: Database) -> list[Finding]:
    """Report the most frequent error groups of the last hour."""
    now = await db.call_value(datetime, "now")
    groups = await db.insights.errors.groups(now - RECENT, 200)
    groups.sort(key=lambda group: -group["count"])
    return [_error(group) for group in groups[:MOST_ERRORS]]


def _error(group: ErrorGroupRow) -> Finding:
    place = f" at {group['place']}" if group["place"] else ""
    message = f"{count(group['count'], 'attempt')} failed{place}: {group['message'] or group['error_type']}"
    command = f"shiftboss errors show {group['id']}"
    return Finding("warning", "errors", message, since=group["first_seen"], command=command)


def _undelivered(rows: list[Row]) -> list[Finding]:
    if not rows:
        return []
    message = f"{len(rows)} alert notifications were not delivered; last error: {rows[0]['error']}"
    advice = "check alerts.webhooks in the settings of the leader"
    return [Finding("warning", "alerts", message, advice, command="shiftboss alerts list --all")]
