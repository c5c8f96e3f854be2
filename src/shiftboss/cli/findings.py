"""The checks of `shiftboss doctor`: one function per area, each returning a list of findings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

from shiftboss import __version__
from shiftboss.cli.output import count, span
from shiftboss.db.installation import HINT
from shiftboss.extension import contributions, extensions
from shiftboss.model.errors import ShiftbossError
from shiftboss.model.settings import Settings

if TYPE_CHECKING:
    from shiftboss.db import Database, Row
    from shiftboss.db.insights.rows import ServerState

GB = 1024**3


Level = Literal["ok", "warning", "problem"]


class Finding(NamedTuple):
    """The result of one check. `advice` says what to do, and `command` can be run as printed."""

    level: Level
    area: str
    message: str
    advice: str | None = None
    since: datetime | None = None
    command: str | None = None


Look = Callable[["Database"], Awaitable[list[Finding]]]


async def examine() -> list[Finding]:
    """Run all checks and return their findings. A check that fails becomes a finding."""
    from shiftboss.db import Database

    settings = Settings.load()
    findings = [*installation(), *disk(settings)]
    try:
        async with await Database.open() as db:
            for look in (database, fleet):
                findings += await _checked(look, db)
            for look in contributions("findings"):
                findings += await _checked(partial(look, settings=settings), db)
    except ShiftbossError as error:
        findings.append(Finding("problem", "database", error.message, error.hint))
    return findings


async def _checked(look: Look, db: Database) -> list[Finding]:
    try:
        return await look(db)
    except ShiftbossError as error:
        return [Finding("problem", _name(look), f"the check failed: {error.message}", error.hint)]


def _name(look: Look) -> str:
    return str(getattr(look.func if isinstance(look, partial) else look, "__name__", "doctor"))


def installation() -> list[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    findings = [Finding("ok", "installed", f"Shiftboss {__version__} on Python {python}")]
    extras = {extra: module for extension in extensions() for extra, module in extension.extras.items()}
    missing = [extra for extra, module in extras.items() if find_spec(module) is None]
    if missing:
        advice = f"to install them: pip install 'shiftboss[{','.join(missing)}]'"
        findings.append(Finding("ok", "installed", f"extras not installed: {', '.join(missing)}", advice))
    return findings


def disk(settings: Settings) -> list[Finding]:
    from shiftboss.db.layout import default_data_dir

    data_dir = settings.data_dir or default_data_dir()
    existing = next(folder for folder in (data_dir, *data_dir.parents) if folder.exists())
    usage = shutil.disk_usage(existing)
    free = f"{usage.free / GB:.1f} GB free on the disk of {data_dir}"
    if usage.free < GB / 2:
        return [Finding("problem", "disk", free, "free some space: a full disk stops the database")]
    if usage.free < 5 * GB and usage.free < usage.total / 20:
        return [Finding("warning", "disk", free, "free some space soon, or lower leader.keep_tasks_days")]
    return [Finding("ok", "disk", free)]


#: Whether a setting of the server is wrong, what that means, and what to do.
SERVER: tuple[tuple[Callable[[ServerState], bool], str, str], ...] = (
    (
        lambda server: not server["fsync"],
        "fsync is off: a crash of the machine can corrupt the data",
        "set fsync = on in postgresql.conf",
    ),
    (
        lambda server: not server["autovacuum"],
        "autovacuum is off: claims become slower over time",
        "set autovacuum = on in postgresql.conf",
    ),
    (
        lambda server: server["standby"],
        "this server is a read-only standby",
        "set database.url to the primary",
    ),
)


async def database(db: Database) -> list[Finding]:
    look = db.insights.condition
    server = await look.server()
    size = server["bytes"] / GB
    findings = [Finding("ok", "database", f"PostgreSQL {server['version']}, {size:.2f} GB, schema current")]
    findings += _settings(server) + _connections(server) + _pooler(db) + await _replica(db)
    fleet = await db.installation.identify()
    if fleet.foreign_because is not None:
        message = f"this database is a copy: {fleet.foreign_because}; processes refuse to start on it"
        findings.append(Finding("problem", "database", message, HINT))
    findings += [_wrong_index(row) for row in await look.strange_indexes()]
    if abs(ahead := await look.clock_difference()) > 5:
        message = f"the database's clock differs by {span(abs(ahead))}"
        advice = "synchronize both clocks with NTP: leases use the database's clock, deadlines use both"
        findings.append(Finding("warning", "clock", message, advice))
    for row in await look.old_transactions():
        who = f"{row['application_name'] or 'a client'} (pid {row['pid']}, {row['state']})"
        message = f"a transaction of {who} has been open for {span(row['seconds'])}"
        advice = "it keeps VACUUM from removing dead rows; terminate it:"
        command = _sql(f"SELECT pg_terminate_backend({row['pid']})")
        findings.append(Finding("warning", "database", message, advice, command=command))
    for row in await look.bloat():
        message = f"{row['name']} has {row['dead']} dead rows and {row['live']} live ones"
        advice, command = "check that autovacuum keeps up, or run:", _sql(f"VACUUM {row['name']}")
        findings.append(Finding("warning", "database", message, advice, command=command))
    return findings


def _sql(statement: str) -> str:
    return f'shiftboss db shell -- -c "{statement}"'


def _settings(server: ServerState) -> list[Finding]:
    return [
        Finding("problem", "database", message, advice) for wrong, message, advice in SERVER if wrong(server)
    ]


def _connections(server: ServerState) -> list[Finding]:
    used, most = server["connections"], server["max_connections"]
    message = f"{used} of {most} connections in use"
    if used > 0.8 * most:
        return [Finding("warning", "database", message, "raise max_connections, or lower database.pool_size")]
    if server["sees_sessions"]:
        return [Finding("ok", "database", message)]
    hidden = f"{message}; long transactions of other roles are not visible to {server['role']}"
    advice = f'to check them, let a superuser run: GRANT pg_read_all_stats TO "{server["role"]}"'
    return [Finding("ok", "database", hidden, advice)]


def _pooler(db: Database) -> list[Finding]:
    if not db.pooled:
        return []
    message = "connections go through a pooler"
    if Settings.load().database.direct_url:
        return [Finding("ok", "database", f"{message}, notifications through database.direct_url")]
    message += ", which delivers no notifications: workers poll for tasks once a second"
    return [Finding("warning", "database", message, "set database.direct_url to the address of the server")]


async def _replica(db: Database) -> list[Finding]:
    from shiftboss.db.replica import ReadDatabase

    reads = ReadDatabase.of(db, Settings.load().database)
    if not isinstance(reads, ReadDatabase):
        return []
    try:
        state = await reads.look()
    finally:
        await reads.close()
    if state.in_use:
        return [Finding("ok", "replica", f"the read replica is {state.lag_seconds:.1f} s behind")]
    advice = "lists and metrics use the primary until it catches up; see database.read_lag_seconds"
    return [Finding("warning", "replica", state.reason or "the read replica is not in use", advice)]


def _wrong_index(row: Row) -> Finding:
    wanted = f"{row['table']} ({', '.join(row['wanted'])})"
    has = f"is on ({', '.join(row['columns'])})" if row["columns"] else "is missing"
    drop = f"DROP INDEX {row['name']}; " if row["columns"] else ""
    advice = f"{drop}CREATE INDEX {row['name']} ON {wanted}"
    return Finding("warning", "database", f"index {row['name']} {has}, not on {wanted}", advice)


async def fleet(db: Database) -> list[Finding]:
    from shiftboss.cli.troubles import troubles

    counts = await db.insights.overview.counts(fresh=True)
    message = f"{count(counts['active_workers'], 'worker')}, {count(counts['queued_tasks'], 'task')} waiting"
    findings = [Finding("ok", "fleet", message), *await troubles(db), *await _unusable(db)]
    for row in await db.insights.condition.undone():
        many = "1000 or more tasks" if row["tasks"] >= 1000 else count(row["tasks"], "task")
        message = f"{many} {row['task_type']} in queue {row['queue']}: no worker serves this type"
        findings.append(Finding("warning", "fleet", message, command=f"shiftboss why {row['example']}"))
    return findings


async def _unusable(db: Database) -> list[Finding]:
    """Report rows of an older `tasks` table that no worker can run."""
    count, rows = await db.insights.condition.unusable()
    found = [(f"task {row['id']} cannot run: {row['reason']}", f"shiftboss why {row['id']}") for row in rows]
    if count > len(rows):
        more = f"{count - len(rows)} more tasks cannot run"
        found.append((more, _sql("TABLE shiftboss.unusable_tasks")))
    return [Finding("warning", "fleet", message, command=command) for message, command in found]
