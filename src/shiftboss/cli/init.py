"""`shiftboss init`: create a small example project."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from shiftboss.cli.output import Json, say_json
from shiftboss.model.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="created if it does not exist")] = Path(),
    as_json: Json = False,
) -> None:
    """Create an example project: an app with three tasks, settings and tests. Never overwrites a file.

    Example: shiftboss init shop && cd shop && shiftboss up tasks:app
    """
    contents = {
        entry.name.removesuffix(".txt"): entry.read_text(encoding="utf-8")
        for entry in sorted((files("shiftboss.cli") / "example").iterdir(), key=lambda entry: entry.name)
    }
    if there := [name for name in contents if (folder / name).exists()]:
        raise UsageError(f"{folder / there[0]} already exists", hint="choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}") from None
    if as_json:
        say_json({"folder": str(folder), "files": list(contents)})
        return
    for name in contents:
        typer.echo(f"wrote {folder / name}")
    where = f"cd {folder} && " if folder != Path() else ""
    typer.echo(f"next: {where}shiftboss up tasks:app")
    typer.echo("then, in another terminal: shiftboss submit shop.greet name=World --wait")
