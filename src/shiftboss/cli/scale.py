"""`shiftboss scale`: how many workers there should be, or what the autoscaler would make of a load."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import AutoscaleSettings

app = typer.Typer(add_completion=False)


@app.command()
def scale(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="how many workers: 8, or queue=count; with --auto, queues", metavar="COUNT"),
    ] = None,
    auto: Annotated[
        bool | None,
        typer.Option("--auto/--no-auto", help="let the leader choose the number of workers of these queues"),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--set", help="a setting of the autoscaler for these queues, as key=value; repeatable"),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="show the settings of the autoscaler")] = False,
    host: Annotated[str | None, typer.Option("--host", help="on which host, if there are several")] = None,
    simulate: Annotated[
        Path | None, typer.Option("--simulate", help="write a picture of what the autoscaler would do")
    ] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", help="made load: steady, ramp, burst or day")
    ] = "burst",
    load: Annotated[
        Path | None, typer.Option("--load", help="recorded load: a file of arrivals, one second a line")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="made load: tasks a second", min=0)] = 5.0,
    minutes: Annotated[int, typer.Option("--minutes", help="made load: how long", min=1, max=10_000)] = 60,
    task_seconds: Annotated[
        float, typer.Option("--task-seconds", help="how long a task takes", min=0.001, max=1_000_000)
    ] = 2.0,
    slots: Annotated[int, typer.Option("--slots", help="tasks at a time of a worker", min=1)] = 1,
) -> None:
    """Start or end workers: superfluous ones finish what they hold first. Or try the autoscaler's settings.

    Example: shiftboss scale 8, or shiftboss scale emails=8

    Example: shiftboss scale emails --auto --set min_workers=2 --set max_workers=20

    Example: shiftboss scale --simulate scale.png --pattern day --rate 20
    """
    if simulate is not None:
        _simulate(simulate, load, pattern, minutes, rate, task_seconds, slots)
    elif show:
        asyncio.run(_show())
    elif auto is not None or keys:
        asyncio.run(_set_autoscale(words or [], _given(auto, keys or [])))
    elif not words:
        raise UsageError("how many workers?", hint="shiftboss scale 8, or shiftboss scale --simulate FILE")
    else:
        asyncio.run(_scale(words, host))


async def _scale(words: list[str], host: str | None) -> None:
    from shiftboss.cli.operator import me, operating
    from shiftboss.cli.supervise import slots
    from shiftboss.operations import Operations

    async with operating(Operations) as (db, operations):
        if len(words) == 1 and words[0].isdecimal():
            words = [f"{await _only_queue(db)}={words[0]}"]
        for queue, count in slots(words).items():
            where = await operations.set_slots(me(), queue, count, host)
            typer.echo(f"{queue}: {count} on {where}")


def _given(auto: bool | None, keys: list[str]) -> dict[str, str | bool]:
    """`["max_workers=20"]` as `{"max_workers": "20"}`, with `enabled`."""
    given: dict[str, str | bool] = {}
    for word in keys:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not key=value", hint="for example: --set max_workers=20")
        given[key] = value
    return given if auto is None else given | {"enabled": auto}


async def _set_autoscale(queues: list[str], given: dict[str, str | bool]) -> None:
    from shiftboss.cli.operator import me, operating
    from shiftboss.operations import Operations

    if not queues:
        raise UsageError("of which queue?", hint="for example: shiftboss scale emails --auto")
    async with operating(Operations) as (_, operations):
        for queue in queues:
            _tell(await operations.set_autoscale(me(), queue, dict(given)))


async def _show() -> None:
    from shiftboss.db import Database
    from shiftboss.leader.autoscaler import stored_autoscale

    async with await Database.open() as db:
        rows = await stored_autoscale(db)
    for row in rows:
        _tell(row)
    if not rows:
        typer.echo("no queue is scaled by the leader; `shiftboss scale QUEUE --auto` begins")


def _tell(settings: AutoscaleSettings) -> None:
    values = settings.model_dump(exclude={"queue", "enabled"})
    words = " ".join(f"{key}={value:g}" for key, value in values.items())
    typer.echo(f"{settings.queue}: {'scaled by the leader' if settings.enabled else 'not scaled'}; {words}")


async def _only_queue(db: Database) -> str:
    """The queue that is meant when none is named."""
    rows = await db.fetch(
        "SELECT DISTINCT jsonb_object_keys(slots) AS queue FROM shiftboss.supervisors ORDER BY 1"
    )
    queues: list[str] = [row["queue"] for row in rows]
    if len(queues) == 1:
        return queues[0]
    named = ", ".join(queues) if queues else "none: `shiftboss supervise` keeps workers"
    raise UsageError(f"of which queue? There are {named}", hint="for example: shiftboss scale default=8")


def _simulate(
    path: Path,
    load: Path | None,
    pattern: str,
    minutes: int,
    rate: float,
    task_seconds: float,
    slots: int,
) -> None:
    from shiftboss.leader.simulation import made_load, plot, recorded_load, simulate
    from shiftboss.model.settings import Settings

    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}", hint="make it, or name another file")
    settings: AutoscaleSettings = Settings.load().autoscale
    arrivals = recorded_load(load) if load is not None else made_load(pattern, minutes * 60, rate)
    if not arrivals:
        raise UsageError(f"there are no figures in {load}", hint="one number of arrivals a line")
    moments = simulate(settings, arrivals, task_seconds, slots)
    plot(moments, path, settings)
    most, mean = max(m.workers for m in moments), sum(m.workers for m in moments) / len(moments)
    deepest = max(m.depth for m in moments)
    typer.echo(f"{path}: at most {most} workers, {mean:.1f} on average; at most {deepest} tasks waited")
