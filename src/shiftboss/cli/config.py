"""`shiftboss config`: every setting, its value and its source."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import Json, say_json

if TYPE_CHECKING:
    from shiftboss.model.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def config(
    key: Annotated[str | None, typer.Argument(help="show only this setting, such as database.url")] = None,
    as_json: Json = False,
) -> None:
    """Show every setting, its value and where it comes from. Passwords are hidden."""
    from shiftboss.model.settings import Settings

    settings = Settings.load()
    names = [key] if key else Settings.keys()
    found = {name: _found(settings, name) for name in names}
    if as_json:
        say_json({name: {"value": value, "source": source} for name, (value, source) in found.items()})
        return
    for name, (value, source) in found.items():
        typer.echo(f"{name} = {value}  ({source})")


def _found(settings: Settings, name: str) -> tuple[Any, str]:
    """Return the value of a setting, as it is shown, and its source."""
    variable = settings.variable_of(name)
    if variable is not None:
        return _shown(settings, name, os.environ[variable]), variable
    return _shown(settings, name, settings.value_of(name)), settings.source_of(name)


def _shown(settings: Settings, name: str, value: Any) -> Any:
    if not settings.is_secret(name) or value is None:
        return value
    return [hide(str(one)) for one in value] if isinstance(value, tuple | list) else hide(str(value))


def hide(secret: str) -> str:
    """Mask a secret: the password of a database URL, all but the host of an HTTP URL, or everything."""
    scheme, found, rest = secret.partition("://")
    if not found or not scheme.isalnum():
        return "***"
    if scheme in ("http", "https"):
        return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}/***"
    return re.sub(r"(?<=:)[^:/@]+(?=@)", "***", secret)
