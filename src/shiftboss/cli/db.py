"""`shiftboss db`: manage the database that the other commands use."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import Json, confirm, note, say_json
from shiftboss.model.errors import EmbeddedServerError, UsageError

if TYPE_CHECKING:
    from shiftboss.db.embedded import EmbeddedServer

SHARED = (
    "all your projects share this server; to give a project its own server,"
    ' set data_dir = ".shiftboss" in its shiftboss.toml'
)

app = typer.Typer(
    help="Manage the database: your own server or the embedded PostgreSQL.", add_completion=False
)


@app.command()
def url() -> None:
    """Print the database URL. Starts the embedded server, which stops ten minutes after its last use.

    Example: psql "$(shiftboss db url)"
    """
    with _database(migrated=True) as address:
        typer.echo(address)


@app.command()
def status(as_json: Json = False) -> None:
    """Show which database is used, whether it is up and whether its schema is current. Starts nothing.

    Exits with 1 if the schema is not current.
    """
    from shiftboss.model.settings import Settings

    named = _settings_url()
    server = _embedded()
    address = named or server.url()
    found: dict[str, Any] = {
        "running": address is not None,
        "data_dir": None if named else str(server.data_dir),
    }
    found |= asyncio.run(_described(address)) if address else {}
    if as_json:
        say_json(found)
        raise typer.Exit(int(found.get("current") is False))
    if not named:
        typer.echo(f"embedded server in {server.data_dir}: {'running' if address else 'not running'}")
        if Settings.load().source_of("data_dir") == "default":
            typer.echo(SHARED)
    if not address:
        return
    typer.echo(f"url: {found['url']}")
    typer.echo(f"PostgreSQL {found['version']}")
    typer.echo(f"schema: {'current' if found['current'] else 'not current, run `shiftboss db migrate`'}")
    if found["current"]:
        copied = ", copied from another database: run `shiftboss db adopt --help`"
        typer.echo(f"fleet: {found['identity']}{'' if found['adopted'] else copied}")
    raise typer.Exit(int(not found["current"]))


@app.command()
def start() -> None:
    """Start the embedded server and keep it running until `shiftboss db stop`."""
    _refuse_url("start")
    server = _embedded()
    with _database(migrated=True):
        server.keep()
    typer.echo(f"running in {server.data_dir} until `shiftboss db stop`; `shiftboss db url` prints its URL")


@app.command()
def stop() -> None:
    """Stop the embedded server, even if it is in use."""
    _refuse_url("stop")
    typer.echo("stopped" if _embedded().stop() else "the server was not running")


@app.command(context_settings={"ignore_unknown_options": True})
def shell(arguments: Annotated[list[str] | None, typer.Argument(help="passed to psql")] = None) -> None:
    """Open psql on the database."""
    import subprocess

    with _database(migrated=True) as address:
        shown, environ = _without_password(address)
        done = subprocess.run([_psql(), shown, *(arguments or [])], check=False, env=environ)  # noqa: S603
    raise typer.Exit(done.returncode)


@app.command()
def migrate(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the SQL, a script for psql, without running it")
    ] = False,
) -> None:
    """Upgrade the schema to this version. Safe to repeat, and to run from several places at once."""
    from shiftboss.db.migrate import migrate

    with _database() as address:
        done = asyncio.run(migrate(address, dry_run=dry_run))
    if dry_run:
        typer.echo(done.sql, nl=False)
    else:
        what = f"applied {', '.join(done.applied)}" if done.applied else "no new migrations"
        typer.echo(f"{what}; functions and views are current")
        if _settings_url() is None:
            note("this is the embedded server; to migrate your own, set SHIFTBOSS_DATABASE_URL")
    for notice in done.notices:
        note(notice)


@app.command()
def adopt(
    copy: Annotated[
        bool, typer.Option("--copy", help="this is a new fleet; the original stays in use")
    ] = False,
    moved: Annotated[
        bool, typer.Option("--moved", help="this is the same fleet; the original is gone")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="even if it looks like the original, with workers alive")
    ] = False,
) -> None:
    """Declare a restored database a copy or a move, so that processes can start on it.

    Stop all processes that use this database first.

    Example: shiftboss db adopt --copy
    """
    from shiftboss.db.connection import connect
    from shiftboss.db.installation import adopt

    if copy == moved:
        raise UsageError(
            "choose either --copy or --moved",
            hint="--copy if the original database is still in use, --moved if it is gone permanently",
        )

    async def act(address: str) -> str:
        async with connect(address) as conn:
            return str(await adopt(conn, "copy" if copy else "moved", force=force))

    with _database() as address:
        identity = asyncio.run(act(address))
    typer.echo(f"adopted as {'a copy' if copy else 'moved'}; this fleet is {identity}")


@app.command()
def roles(
    kind: Annotated[str, typer.Argument(help="enqueue, viewer, worker, operator or owner")],
    role: Annotated[str, typer.Argument(help="the database role that receives the privileges")],
    apply: Annotated[bool, typer.Option("--apply", help="run the SQL as well")] = False,
) -> None:
    """Print the SQL that grants a database role the least privileges it needs. Rerun after each upgrade.

    Example: shiftboss db roles worker fleet --apply
    """
    from shiftboss.db.roles import Kind, grants

    if kind not in list(Kind):
        raise UsageError(f'there is no kind of role "{kind}"', hint=f"kinds: {', '.join(Kind)}")
    with _database() as address:
        typer.echo(asyncio.run(grants(address, Kind(kind), role, apply=apply)), nl=False)


@app.command()
def reset(yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False) -> None:
    """Delete the embedded server's data permanently."""
    _refuse_url("reset")
    server = _embedded()
    if not yes:
        confirm(f"Delete all data in {server.data_dir}?")
    server.erase()
    typer.echo(f"{server.data_dir} is empty")


async def _described(address: str) -> dict[str, Any]:
    from shiftboss.cli.config import hide
    from shiftboss.db.connection import connect
    from shiftboss.db.installation import identify
    from shiftboss.db.migrate import is_current, server_version

    current = await is_current(address)
    found = {"url": hide(address), "version": await server_version(address), "current": current}
    if not current:
        return found
    async with connect(address) as conn:
        fleet = await identify(conn)
    return found | {"identity": str(fleet.id), "adopted": fleet.foreign_because is None}


@contextmanager
def _database(*, migrated: bool = False) -> Iterator[str]:
    """Yield the database URL. The embedded server keeps running at least until the end of the block.

    With `migrated`, the embedded server has the schema of this version. Other servers are never changed.
    """
    if named := _settings_url():
        yield named
        return
    server = _embedded()
    try:
        address = server.acquire()
        if migrated:
            asyncio.run(_upgrade(address))
        yield address
    finally:
        server.release()


async def _upgrade(address: str) -> None:
    from shiftboss.db.migrate import is_current, migrate

    if not await is_current(address):
        await migrate(address)


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
            f"`shiftboss db {command}` works on the embedded server only, but database.url names another one",
            hint="unset SHIFTBOSS_DATABASE_URL, or remove database.url from shiftboss.toml",
        )


def _without_password(address: str) -> tuple[str, dict[str, str]]:
    """Move the password from the address to the environment: the process list shows arguments to everyone."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts = {name: str(value) for name, value in conninfo_to_dict(address).items() if value is not None}
    password = parts.pop("password", None)
    return make_conninfo("", **parts), os.environ | ({"PGPASSWORD": password} if password else {})


def _psql() -> str:
    from shiftboss.db.programs import programs

    with suppress(EmbeddedServerError):  # not installed: the server is another one
        own = programs() / "psql"
        if os.access(own, os.X_OK):
            return str(own)
    found = shutil.which("psql")
    if found is None:
        raise UsageError("psql is not installed on this machine", hint="install postgresql-client")
    return found
