"""`shiftboss scale`: set the number of workers, or simulate the autoscaler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shiftboss.cli.operator import act, me
from shiftboss.cli.output import ask
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.model.settings import AutoscaleSettings
    from shiftboss.operations import Operations

app = typer.Typer(add_completion=False)


@app.command()
def scale(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="number of workers: 8, or queue=count; with --auto, queues", metavar="COUNT"),
    ] = None,
    auto: Annotated[
        bool | None,
        typer.Option("--auto/--no-auto", help="let the leader set the number of workers of these queues"),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--set", help="an autoscaler setting for these queues, as key=value; repeatable"),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="list the autoscaler settings")] = False,
    host: Annotated[
        str | None, typer.Option("--host", help="the host to scale, if there is more than one")
    ] = None,
    simulate: Annotated[
        Path | None, typer.Option("--simulate", help="write a chart of what the autoscaler would do")
    ] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", help="generated load: steady, ramp, burst or day")
    ] = "burst",
    load: Annotated[
        Path | None,
        typer.Option("--load", help="recorded load: a file with the arrivals of each second, one per line"),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", help="generated load: tasks per second", min=0)] = 5.0,
    minutes: Annotated[
        int, typer.Option("--minutes", help="generated load: duration", min=1, max=10_000)
    ] = 60,
    task_seconds: Annotated[
        float, typer.Option("--task-seconds", help="duration of a task", min=0.001, max=1_000_000)
    ] = 2.0,
    slots: Annotated[int, typer.Option("--slots", help="tasks that a worker runs at a time", min=1)] = 1,
) -> None:
    """Start or stop workers, or simulate the autoscaler. Workers finish their tasks before they stop.

    Example: shiftboss scale 8, or shiftboss scale emails=8

    Example: shiftboss scale emails --auto --set min_workers=2 --set max_workers=20

    Example: shiftboss scale --simulate scale.png --pattern day --rate 20
    """
    if simulate is not None:
        _simulate(simulate, load, pattern, minutes, rate, task_seconds, slots)
    elif show:
        _list()
    elif auto is not None or keys:
        _set_autoscale(words or [], _given(auto, keys or []))
    elif not words:
        raise UsageError("the number of workers is missing", hint="for example: shiftboss scale 8")
    else:
        act(lambda db, operations: _scale(db, operations, words, host))


async def _scale(db: Database, operations: Operations, words: list[str], host: str | None) -> None:
    from shiftboss.cli.supervise import slots

    if len(words) == 1 and words[0].isdecimal():
        words = [f"{await _only_queue(db)}={words[0]}"]
    for queue, count in slots(words).items():
        where = await operations.scale(me(), queue, count, host)
        typer.echo(f"{queue}: {count} on {where}")


def _given(auto: bool | None, keys: list[str]) -> dict[str, str | bool]:
    """Parse `["max_workers=20"]` as `{"max_workers": "20"}`, and add `enabled`."""
    given: dict[str, str | bool] = {}
    for word in keys:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not key=value", hint="for example: --set max_workers=20")
        given[key] = value
    return given if auto is None else given | {"enabled": auto}


def _set_autoscale(queues: list[str], given: dict[str, str | bool]) -> None:
    if not queues:
        raise UsageError("the queue is missing", hint="for example: shiftboss scale emails --auto")

    async def do(_: Database, operations: Operations) -> None:
        for queue in queues:
            _print(await operations.set_autoscale(me(), queue, dict(given)))

    act(do)


def _list() -> None:
    from shiftboss.leader.autoscaler import stored_autoscale

    rows = ask(stored_autoscale)
    for row in rows:
        _print(row)
    if not rows:
        typer.echo("no queue is autoscaled; turn it on with `shiftboss scale QUEUE --auto`")


def _print(settings: AutoscaleSettings) -> None:
    values = settings.model_dump(exclude={"queue", "enabled"})
    words = " ".join(f"{key}={value:g}" for key, value in values.items())
    typer.echo(f"{settings.queue}: {'autoscaled' if settings.enabled else 'not autoscaled'}; {words}")


async def _only_queue(db: Database) -> str:
    """Return the supervised queue if there is exactly one, or raise UsageError."""
    rows = await db.fetch(
        "SELECT DISTINCT jsonb_object_keys(slots) AS queue FROM shiftboss.supervisors ORDER BY 1"
    )
    queues: list[str] = [row["queue"] for row in rows]
    if len(queues) == 1:
        return queues[0]
    if not queues:
        hint = "start a supervisor: shiftboss supervise module:app --queue default=4"
        raise UsageError("there are no supervised queues to scale", hint=hint)
    message = f"name the queue to scale: {', '.join(queues)}"
    raise UsageError(message, hint=f"for example: shiftboss scale {queues[0]}=8")


def _simulate(
    path: Path, load: Path | None, pattern: str, minutes: int, rate: float, task_seconds: float, slots: int
) -> None:
    from shiftboss.leader.simulation import made_load, plot, recorded_load, simulate
    from shiftboss.model.settings import Settings

    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {path.parent}", hint="create it, or choose another file")
    settings: AutoscaleSettings = Settings.load().autoscale
    arrivals = recorded_load(load) if load is not None else made_load(pattern, minutes * 60, rate)
    if not arrivals:
        raise UsageError(f"{load} contains no numbers", hint="write the arrivals of each second on a line")
    steps = simulate(settings, arrivals, task_seconds, slots)
    plot(steps, path, settings)
    most, mean = max(step.workers for step in steps), sum(step.workers for step in steps) / len(steps)
    deepest = max(step.depth for step in steps)
    typer.echo(f"{path}: at most {most} workers, {mean:.1f} on average; at most {deepest} waiting tasks")
