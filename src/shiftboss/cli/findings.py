"""What the doctor looks at: one function per area, each a list of findings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

from shiftboss import __version__
from shiftboss.cli.output import span
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.settings import Settings

if TYPE_CHECKING:
    from shiftboss.db import Database, Row

EXTRAS = {"coordinator": "grpc", "admin": "fastapi", "ai": "wordllama", "redis": "redis"}
GB = 1024**3


class Finding(NamedTuple):
    """One thing seen; `advice` says what to do about it."""

    level: Literal["ok", "warning", "problem"]
    area: str
    message: str
    advice: str | None = None


async def examine() -> list[Finding]:
    """Everything; what can not be looked at is a finding as well."""
    from shiftboss.db import Database

    settings = Settings.load()
    findings = [*installation(), *disk(settings)]
    try:
        async with await Database.open() as db:
            for look in (database, fleet, providers):
                findings += await _looked(look, db)
    except ShiftbossError as error:
        findings.append(Finding("problem", "database", error.message, error.hint))
    return findings


async def _looked(look: Callable[[Database], Awaitable[list[Finding]]], db: Database) -> list[Finding]:
    try:
        return await look(db)
    except ShiftbossError as error:
        return [Finding("problem", look.__name__, f"can not look: {error.message}", error.hint)]


def installation() -> list[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    findings = [Finding("ok", "installed", f"Shiftboss {__version__} on Python {python}")]
    missing = [extra for extra, module in EXTRAS.items() if find_spec(module) is None]
    if missing:
        advice = f"if you want them: pip install 'shiftboss[{','.join(missing)}]'"
        findings.append(Finding("ok", "installed", f"without the extras {', '.join(missing)}", advice))
    return findings


def disk(settings: Settings) -> list[Finding]:
    from shiftboss.db.layout import default_data_dir

    place = settings.data_dir or default_data_dir()
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    usage = shutil.disk_usage(there)
    free = f"{usage.free / GB:.1f} GB free where {place} is"
    if usage.free < GB / 2:
        return [Finding("problem", "disk", free, "free some space: a full disk stops the database")]
    if usage.free < 5 * GB and usage.free < usage.total / 20:
        return [Finding("warning", "disk", free, "free some space soon, or shorten leader.keep_tasks_days")]
    return [Finding("ok", "disk", free)]


async def database(db: Database) -> list[Finding]:
    look = db.insights.condition
    server = await look.server()
    size = server["bytes"] / GB
    findings = [Finding("ok", "database", f"PostgreSQL {server['version']}, {size:.2f} GB, schema current")]
    findings += _settings(server) + _connections(server)
    if abs(ahead := await look.clock_difference()) > 5:
        advice = "set both clocks by NTP; leases go by the database's, deadlines also by this one's"
        findings.append(
            Finding("warning", "clock", f"the database's clock differs by {span(abs(ahead))}", advice)
        )
    for row in await look.old_transactions():
        who = f"{row['application_name'] or 'a client'} (pid {row['pid']}, {row['state']})"
        advice = f"it keeps dead rows from being cleaned; end it with pg_terminate_backend({row['pid']})"
        message = f"a transaction of {who} is open for {span(row['seconds'])}"
        findings.append(Finding("warning", "database", message, advice))
    for row in await look.bloat():
        message = f"{row['name']} has {row['dead']} dead rows and {row['live']} live ones"
        findings.append(Finding("warning", "database", message, f"VACUUM {row['name']}; is autovacuum on?"))
    return findings


def _settings(server: Row) -> list[Finding]:
    findings = []
    if not server["fsync"]:
        message = "fsync is off: a crash of the machine can ruin the data"
        findings.append(Finding("problem", "database", message, "fsync = on"))
    if not server["autovacuum"]:
        message = "autovacuum is off: claims get slower all the time"
        findings.append(Finding("problem", "database", message, "autovacuum = on"))
    if server["standby"]:
        message = "this server is a standby and can not be written to"
        findings.append(Finding("problem", "database", message, "use the primary"))
    if server["vector"] is None:
        message = "no pgvector: journal vectors and vectorizers are left out"
        make = "CREATE EXTENSION vector" if server["vector_available"] else "install pgvector on the server"
        findings.append(Finding("warning", "database", message, f"{make}, then shiftboss db migrate"))
    return findings


def _connections(server: Row) -> list[Finding]:
    used, most = server["connections"], server["max_connections"]
    message = f"{used} of {most} connections in use"
    if used > 0.8 * most:
        return [Finding("warning", "database", message, "raise max_connections, or lower database.pool_size")]
    return [Finding("ok", "database", message)]


async def fleet(db: Database) -> list[Finding]:
    counts = await db.insights.overview.counts(fresh=True)
    message = f"{counts['active_workers']} workers, {counts['queued_tasks']} tasks waiting"
    findings = [Finding("ok", "fleet", message)]
    for alert in await db.insights.overview.alerts():
        level: Literal["problem", "warning"] = "problem" if alert["severity"] == "critical" else "warning"
        findings.append(Finding(level, "fleet", alert["message"], _advice(alert["kind"], alert["subject"])))
    for row in await db.insights.condition.undone():
        many = "1000 or more" if row["tasks"] >= 1000 else row["tasks"]
        message = f"{many} tasks {row['task_type']} in queue {row['queue']}: no worker serves them"
        findings.append(Finding("warning", "fleet", message, f"shiftboss why {row['example']}"))
    return findings


def _advice(kind: str, subject: str | None) -> str:
    match kind:
        case "stale_worker":
            return "its tasks go to others by themselves; look at its host and its log"
        case "stuck_task":
            return f"shiftboss tasks show {subject}, or shiftboss tasks cancel {subject}"
        case "budget_spent":
            return f"its tasks wait until tomorrow (UTC); sooner with a higher ai.{subject}.daily_budget"
        case "all_workers_crashed":
            return "shiftboss events tells why; then shiftboss restart --all"
        case _:
            return f"shiftboss events --component {subject}, then shiftboss restart {subject}"


async def providers(db: Database) -> list[Finding]:
    findings = []
    for row in await db.insights.providers.status():
        circuit = row.get("circuit") or row.get("state")
        if circuit and circuit != "closed":
            message = (
                f"the circuit of {row['provider']} is {circuit}: {row.get('last_error') or 'no error kept'}"
            )
            findings.append(
                Finding("warning", "providers", message, "shiftboss providers; it closes by itself")
            )
    from shiftboss.ai.configure import configured

    ready = [name for name, usable in configured(Settings.load().ai).items() if usable]
    return [*findings, Finding("ok", "providers", f"configured: {', '.join(ready) or 'none'}")]
