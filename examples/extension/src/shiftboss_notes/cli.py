"""`shiftboss notes`."""

from typing import Annotated

import typer

from shiftboss.cli.output import ask, show_rows
from shiftboss.model.errors import UsageError
from shiftboss.model.settings import Settings
from shiftboss_notes.settings import NotesSettings
from shiftboss_notes.store import Notes

app = typer.Typer(help="Notes: add, list.", no_args_is_help=True, add_completion=False)


@app.command()
def add(body: Annotated[str, typer.Argument(help="the text")]) -> None:
    """Store a note; the fleet counts its words."""
    longest = NotesSettings.of(Settings.load()).longest
    if len(body) > longest:
        raise UsageError(f"a note has at most {longest} characters", hint="raise the setting notes.longest")
    typer.echo(ask(lambda db: db.family(Notes).add(body)))


@app.command("list")
def list_() -> None:
    """Every note and how many words it has."""
    columns = {name: (lambda row, name=name: row[name]) for name in ("id", "words", "body")}
    show_rows(ask(lambda db: db.family(Notes).all()), columns, empty="no notes yet: shiftboss notes add TEXT")
