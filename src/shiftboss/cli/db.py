"""`shiftboss db`: the database the other commands use."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.output import Json, say_json
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
    """Print the database URL. Starts the embedded server; it runs on while somebody is connected."""
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
def stop() -> None:
    """Stop the embedded server, whoever uses it."""
    _refuse_url("stop")
    typer.echo("stopped" if _embedded().stop() else "it was not running")


@app.command(context_settings={"ignore_unknown_options": True})
def shell(arguments: Annotated[list[str] | None, typer.Argument(help="handed on to psql")] = None) -> None:
    """Open psql on the database."""
    import subprocess

    with _database() as address:
        done = subprocess.run([_psql(), address, *(arguments or [])], check=False)  # noqa: S603 -- psql
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
def reset(yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False) -> None:
    """Delete the embedded server's data for good."""
    _refuse_url("reset")
    server = _embedded()
    if not yes:
        typer.confirm(f"Delete all data in {server.data_dir}?", abort=True)
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
    }


def _describe(address: str) -> None:
    from shiftboss.cli.config import hide
    from shiftboss.db.migrate import is_current, server_version

    version, current = asyncio.run(server_version(address)), asyncio.run(is_current(address))
    typer.echo(f"url: {hide(address)}")
    typer.echo(f"PostgreSQL {version}")
    typer.echo(f"schema: {'current' if current else 'not current, run `shiftboss db migrate`'}")


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

    return EmbeddedServer(Settings.load().data_dir)


def _refuse_url(command: str) -> None:
    if _settings_url():
        raise UsageError(
            f"`shiftboss db {command}` is for the embedded server only, and database.url names another one",
            hint="unset SHIFTBOSS_DATABASE_URL",
        )


def _psql() -> str:
    from shiftboss.db.installation import programs

    own = programs() / "psql"
    found = str(own) if os.access(own, os.X_OK) else shutil.which("psql")
    if found is None:
        raise EmbeddedServerError("there is no psql on this machine", hint="install postgresql-client")
    return found
