"""`shiftboss config`: what is set, and by what."""

from __future__ import annotations

import re
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def config(
    key: Annotated[str | None, typer.Argument(help="one setting only, such as database.url")] = None,
) -> None:
    """Show every setting, its value and where it comes from. Passwords stay hidden."""
    from shiftboss.model.settings import Settings

    settings = Settings.load()
    for name in [key] if key else Settings.keys():
        value, source = settings.value_of(name), settings.source_of(name)
        shown = hide(str(value)) if Settings.is_secret(name) and value is not None else value
        typer.echo(f"{name} = {shown}  ({source})")


def hide(secret: str) -> str:
    """Of a URL only the password is hidden; of anything else, everything."""
    return re.sub(r"(?<=:)[^:/@]+(?=@)", "***", secret) if "://" in secret else "***"
