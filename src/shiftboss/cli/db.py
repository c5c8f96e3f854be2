"""`shiftboss db`: the database the other commands use."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.output import Json, confirm, say_json
from shiftboss.model.errors import EmbeddedServerError, UsageError

if TYPE_CHECKING:
    from shiftboss.db.embedded import EmbeddedServer
    from shiftboss.db.migrate import Migrated

SHARED = (
    'all your projects share it; for one of its own: data_dir = ".shiftboss" in the project\'s shiftboss.toml'
)

app = typer.Typer(help="The database: a server of yours, or the embedded PostgreSQL.", add_completion=False)


@app.command()
def url() -> None:
    """Print the database URL. Starts the embedded server, which stays up for ten minutes after its last user.

    Example: psql "$(shiftboss db url)"
    """
    with _database() as address:
        typer.echo(address)


@app.command()
def status(as_json: Json = False) -> None:
    """Tell which database is used, whether it answers and whether its schema is current. Starts nothing."""
    from shiftboss.model.settings import Settings

    named = _settings_url()
    server = _embedded()
    address = named or server.url()
    if as_json:
        say_json(_described(address, None if named else str(server.data_dir)))
        return
    if not named:
        typer.echo(f"embedded server in {server.data_dir}: {'running' if address else 'not running'}")
        if Settings.load().source_of("data_dir") == "default":
            typer.echo(SHARED)
    if address:
        _describe(address)


@app.command()
def start() -> None:
    """Start the embedded server and keep it running until `shiftboss db stop`."""
    _refuse_url("start")
    server = _embedded()
    with _database():
        server.keep()
    typer.echo(f"running in {server.data_dir} until `shiftboss db stop`; its URL: shiftboss db url")


@app.command()
def stop() -> None:
    """Stop the embedded server, even while it is in use."""
    _refuse_url("stop")
    typer.echo("stopped" if _embedded().stop() else "it was not running")


@app.command(context_settings={"ignore_unknown_options": True})
def shell(arguments: Annotated[list[str] | None, typer.Argument(help="handed on to psql")] = None) -> None:
    """Open psql on the database."""
    import subprocess

    with _database() as address:
        shown, environ = _without_password(address)
        done = subprocess.run([_psql(), shown, *(arguments or [])], check=False, env=environ)  # noqa: S603
    raise typer.Exit(done.returncode)


@app.command()
def migrate(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the SQL and change nothing")] = False,
) -> None:
    """Bring the schema to this version. Safe to repeat, and to run from many places at once."""
    from shiftboss.db.migrate import migrate

    with _database() as address:
        done = asyncio.run(migrate(address, dry_run=dry_run))
    if dry_run:
        typer.echo(done.sql, nl=False)
    else:
        typer.echo(_summary(done))
    for notice in done.notices:
        typer.echo(f"note: {notice}", err=True)


@app.command()
def adopt(
    copy: Annotated[bool, typer.Option("--copy", help="this is another fleet; the original goes on")] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="this is the same fleet; no original is left")
    ] = False,
) -> None:
    """Say what a restored database is, so that processes may start on it. Stop those that run on it first.

    Example: shiftboss db adopt --copy
    """
    from shiftboss.db.connection import connect
    from shiftboss.db.identity import adopt

    if copy == moved:
        raise UsageError(
            "is it a copy, or has the fleet moved here?",
            hint="--copy if the original is still used, --moved if it is gone for good",
        )

    async def act(address: str) -> str:
        async with connect(address) as conn:
            return str(await adopt(conn, "copy" if copy else "moved"))

    with _database() as address:
        identity = asyncio.run(act(address))
    typer.echo(f"adopted as {'a copy' if copy else 'moved'}; this fleet is {identity}")


@app.command()
def roles(
    kind: Annotated[str, typer.Argument(help="enqueue, viewer, worker, operator or owner")],
    role: Annotated[str, typer.Argument(help="the database role that gets the rights")],
    apply: Annotated[bool, typer.Option("--apply", help="run the SQL as well")] = False,
) -> None:
    """Print the SQL that gives a database role what it needs and no more. Run it again after each upgrade.

    Example: shiftboss db roles worker fleet --apply
    """
    from shiftboss.db.roles import Kind, grants

    if kind not in list(Kind):
        raise UsageError(f'there is no kind of role "{kind}"', hint=f"kinds: {', '.join(Kind)}")
    with _database() as address:
        typer.echo(asyncio.run(grants(address, Kind(kind), role, apply=apply)), nl=False)


@app.command()
def reset(yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False) -> None:
    """Delete the embedded server's data for good."""
    _refuse_url("reset")
    server = _embedded()
    if not yes:
        confirm(f"Delete all data in {server.data_dir}?")
    server.erase()
    typer.echo(f"{server.data_dir} is empty")


def _summary(done: Migrated) -> str:
    what = f"applied {', '.join(done.applied)}" if done.applied else "no new migrations"
    return f"{what}; functions and views are current"


def _described(address: str | None, data_dir: str | None) -> dict[str, object]:
    from shiftboss.cli.config import hide
    from shiftboss.db.migrate import is_current, server_version

    if address is None:
        return {"running": False, "data_dir": data_dir}
    version, current = asyncio.run(server_version(address)), asyncio.run(is_current(address))
    return {
        "running": True,
        "data_dir": data_dir,
        "url": hide(address),
        "version": version,
        "current": current,
        **(_identity(address) if current else {}),
    }


def _identity(address: str) -> dict[str, object]:
    from shiftboss.db.connection import connect
    from shiftboss.db.identity import identify

    async def ask() -> dict[str, object]:
        async with connect(address) as conn:
            found = await identify(conn)
        return {"identity": str(found.id), "adopted": found.foreign_because is None}

    return asyncio.run(ask())


def _describe(address: str) -> None:
    from shiftboss.cli.config import hide
    from shiftboss.db.migrate import is_current, server_version

    version, current = asyncio.run(server_version(address)), asyncio.run(is_current(address))
    typer.echo(f"url: {hide(address)}")
    typer.echo(f"PostgreSQL {version}")
    typer.echo(f"schema: {'current' if current else 'not current, run `shiftboss db migrate`'}")
    if current:
        found = _identity(address)
        waits = "" if found["adopted"] else ", copied from another database: run `shiftboss db adopt`"
        typer.echo(f"fleet: {found['identity']}{waits}")


@contextmanager
def _database() -> Iterator[str]:
    """The URL to use; an embedded server runs at least until the end of the block."""
    if named := _settings_url():
        yield named
        return
    server = _embedded()
    try:
        yield server.acquire()
    finally:
        server.release()


def _settings_url() -> str | None:
    from shiftboss.model.settings import Settings

    return Settings.load().database.url


def _embedded() -> EmbeddedServer:
    from shiftboss.db.embedded import EmbeddedServer
    from shiftboss.model.settings import Settings

    settings = Settings.load()
    return EmbeddedServer(settings.data_dir, linger=settings.database.linger_seconds)


def _refuse_url(command: str) -> None:
    if _settings_url():
        raise UsageError(
            f"`shiftboss db {command}` is for the embedded server only, and database.url names another one",
            hint="unset SHIFTBOSS_DATABASE_URL",
        )


def _without_password(address: str) -> tuple[str, dict[str, str]]:
    """The address as every user of this machine may see it in the process list, and the environment."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts = {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    password = parts.pop("password", None)
    return make_conninfo("", **parts), os.environ | ({"PGPASSWORD": password} if password else {})


def _psql() -> str:
    from shiftboss.db.installation import programs

    own = programs() / "psql"
    found = str(own) if os.access(own, os.X_OK) else shutil.which("psql")
    if found is None:
        raise EmbeddedServerError("there is no psql on this machine", hint="install postgresql-client")
    return found
