"""`shiftboss doctor`: check the fleet and suggest fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from shiftboss.cli.output import Json, console, on_terminal, say_json, text

if TYPE_CHECKING:
    from shiftboss.cli.findings import Finding

app = typer.Typer(add_completion=False)

MARKS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "problem": "[red]✗[/]"}


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check the installation, database, fleet, errors, alerts, providers and disk.

    Each finding says what is wrong, since when if known, and what to do. Commands can be run as printed.

    Exit code: 0 if there are no problems (there may be warnings), 1 otherwise.
    """
    import asyncio

    from shiftboss.cli.findings import examine

    findings = asyncio.run(examine())
    if as_json:
        say_json([finding._asdict() for finding in findings])
    else:
        _show(findings)
    if any(finding.level == "problem" for finding in findings):
        raise typer.Exit(1)


def _show(findings: list[Finding]) -> None:
    out = console()
    for finding in findings:
        if not on_terminal():
            typer.echo("\t".join(text(word).replace("\n", " ") for word in finding))
            continue
        out.print(f"{MARKS[finding.level]} [bold]{finding.area:<12}[/] ", end="")
        since = f" (since {text(finding.since)})" if finding.since else ""
        out.print(f"{finding.message}{since}", markup=False, soft_wrap=True)
        if finding.advice:
            out.print(f"  → {finding.advice}", style="green", markup=False, soft_wrap=True)
        if finding.command:
            out.print(f"  → {finding.command}", style="bold green", markup=False, soft_wrap=True)
