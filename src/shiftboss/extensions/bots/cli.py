"""`shiftboss bot`: run a bot in the foreground."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def bot(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="discovery, classify, verify, monitor, or your own")] = "",
) -> None:
    """Run a bot in the foreground, without a record or as the run given by --worker-run-id."""
    from shiftboss.extensions.bots.command import main, overview

    if not name or name.startswith("-"):
        typer.echo(overview())
        raise typer.Exit(0 if name in ("", "--help", "-h") else 2)
    raise typer.Exit(main(name.strip().lower(), ctx.args))
