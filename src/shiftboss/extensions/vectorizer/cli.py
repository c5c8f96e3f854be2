"""`shiftboss vectorizer`: manage vectorizers, search, and run their workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import typer

from shiftboss.cli.operator import me, operate
from shiftboss.cli.output import Json, LogLevel, ask, say_json, show_rows
from shiftboss.db import Database
from shiftboss.extensions.ai.settings import AISettings
from shiftboss.extensions.vectorizer.operations import VectorizerOperations
from shiftboss.extensions.vectorizer.options import conditions, index_options, seconds
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.store import Vectorizers

T = TypeVar("T")
#: Options whose names differ from those of the SQL parameters.
PARAMETERS = {
    "column": "columns", "separator": "separators", "index": "index_method", "index_option": "index_options",
    "view": "view_name", "existing": "enqueue_existing",
}  # fmt: skip
SERVE = "shiftboss worker shiftboss.extensions.vectorizer.handlers:handlers --queue vectorizer"
app = typer.Typer(
    help="Vectorizers: keep embeddings of tables up to date.", add_completion=False, no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="VECTORIZER", help="its name or id")]
OneOrAll = Annotated[str | None, typer.Argument(metavar="VECTORIZER", help="its name or id; default: all")]
Columns = Annotated[list[str] | None, typer.Option("--column", "-c", help="embed this column; repeatable")]
Template = Annotated[str | None, typer.Option(help="like '$title: $body', or with columns '$title: $chunk'")]
Chunking = Annotated[
    str | None, typer.Option(help="sentences, characters, separators, tokens, markdown or none")
]
ChunkSize = Annotated[int | None, typer.Option(min=1, help="maximum characters (or tokens) per chunk")]
ChunkOverlap = Annotated[int | None, typer.Option(min=0, help="chunk overlap (characters or tokens)")]
Separators = Annotated[
    list[str] | None,
    typer.Option("--separator", help="separator for chunking by separators; repeatable, coarsest first"),
]
Provider = Annotated[str | None, typer.Option(help="local, openai, azure or ollama")]
Model = Annotated[str | None, typer.Option(help="default: the provider's default")]
Dimensions = Annotated[int | None, typer.Option(min=1, help="default: the model's own, if known")]
BaseUrl = Annotated[str | None, typer.Option(help="another server with the provider's protocol")]
ApiKeyName = Annotated[
    str | None, typer.Option(help="environment variable with the API key, set for the workers")
]
Index = Annotated[str | None, typer.Option("--index", help="hnsw, ivfflat or none")]
IndexOpclass = Annotated[str | None, typer.Option(help="like vector_cosine_ops or halfvec_l2_ops")]
IndexOption = Annotated[
    list[str] | None, typer.Option("--index-option", help="m=16, ef_construction=64 or lists=100; repeatable")
]
IndexMinRows = Annotated[
    int | None, typer.Option(min=0, help="number of vectors at which the index is built")
]
TextSearch = Annotated[str | None, typer.Option(help="language of a full-text index, like english")]
Schedule = Annotated[str | None, typer.Option(help="minimum time between runs, like '1 hour'")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="rows per batch")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="concurrent provider calls")]


@app.command()
def create(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(help="the table, like blog or myschema.blog")],
    name: Annotated[str | None, typer.Option(help="default: TABLE_embedding")] = None,
    column: Columns = None,
    template: Template = None,
    chunking: Chunking = None,
    chunk_size: ChunkSize = None,
    chunk_overlap: ChunkOverlap = None,
    separator: Separators = None,
    provider: Provider = None,
    model: Model = None,
    dimensions: Dimensions = None,
    base_url: BaseUrl = None,
    api_key_name: ApiKeyName = None,
    destination: Annotated[str | None, typer.Option(help="target table; default: NAME_store")] = None,
    view: Annotated[str | None, typer.Option(help="joining view; default: NAME")] = None,
    index: Index = None,
    index_opclass: IndexOpclass = None,
    index_option: IndexOption = None,
    index_min_rows: IndexMinRows = None,
    text_search: TextSearch = None,
    schedule: Schedule = None,
    batch_size: BatchSize = None,
    concurrency: Concurrency = None,
    existing: Annotated[bool, typer.Option(help="embed existing rows")] = True,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="do nothing if a vectorizer of that name exists")
    ] = False,
) -> None:
    """Create a vectorizer for a table with a primary key."""
    id = _operate(lambda operations: operations.create_vectorizer(me(), source, _options(ctx)))
    [made] = ask(lambda db: db.family(Vectorizers).status(id))
    typer.echo(f"vectorizer {made['id']} {made['name']}: {made['pending']} rows to embed")
    typer.echo(
        f"vectors in {made['target_table']}, joined with {made['source_table']} in {made['target_view']}"
    )


def _options(ctx: typer.Context) -> dict[str, Any]:
    """Return the given options under the names of the SQL parameters."""
    given = {
        PARAMETERS.get(name, name): value
        for name, value in ctx.params.items()
        if name not in ("source", "which") and value not in (None, (), [])
    }
    if "index_options" in given:
        given["index_options"] = index_options(given["index_options"])
    return given


def _operate(work: Callable[[VectorizerOperations], Awaitable[T]]) -> T:
    return operate(VectorizerOperations, lambda _, operations: work(operations))


@app.command()
def update(
    ctx: typer.Context,
    which: Name,
    column: Columns = None,
    template: Template = None,
    chunking: Chunking = None,
    chunk_size: ChunkSize = None,
    chunk_overlap: ChunkOverlap = None,
    separator: Separators = None,
    provider: Provider = None,
    model: Model = None,
    dimensions: Dimensions = None,
    base_url: BaseUrl = None,
    api_key_name: ApiKeyName = None,
    index: Index = None,
    index_opclass: IndexOpclass = None,
    index_option: IndexOption = None,
    index_min_rows: IndexMinRows = None,
    text_search: TextSearch = None,
    schedule: Schedule = None,
    batch_size: BatchSize = None,
    concurrency: Concurrency = None,
) -> None:
    """Change a vectorizer. If vectors change, searches use the old ones until all new ones are ready."""
    _operate(lambda operations: operations.update_vectorizer(me(), which, _options(ctx)))
    status(which)


@app.command(name="list")
def list_(as_json: Json = False) -> None:
    """Show all vectorizers, one per line."""
    status(None, as_json=as_json)


@app.command()
def status(
    which: OneOrAll = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="refresh until Ctrl+C")] = False,
    as_json: Json = False,
) -> None:
    """Show the state of vectorizers: pending and failed rows, rate and time left."""
    from shiftboss.extensions.vectorizer.cli_view import show_status, watch_status

    if watch:
        ask(lambda db: watch_status(lambda: db.family(Vectorizers).status(which)))
        return

    async def look(db: Database) -> tuple[list[dict[str, Any]], bool]:
        return await db.family(Vectorizers).status(which), await db.family(Vectorizers).unserved()

    rows, unserved = ask(look)
    say_json(rows) if as_json else show_status(rows)
    if unserved and any(row["state"] in ("working", "updating") for row in rows):
        typer.echo(f"note: no worker serves the queue vectorizer: run `{SERVE}`", err=True)


@app.command()
def errors(
    which: OneOrAll = None, limit: Annotated[int, typer.Option(min=1, help="maximum number of rows")] = 50
) -> None:
    """Show the rows that could not be embedded, with the step and the reason."""
    from shiftboss.extensions.vectorizer.cli_view import ERRORS

    show_rows(ask(lambda db: db.family(Vectorizers).errors(which, limit)), ERRORS, empty="no errors")


@app.command()
def retry(which: Name) -> None:
    """Put the failed rows back into the queue."""
    failed = _operate(lambda operations: operations.retry_vectorizer(me(), which))
    typer.echo(f"{failed} failed rows queued again")


@app.command()
def pause(which: Name) -> None:
    """Pause a vectorizer: changes are queued, but not embedded."""
    _operate(lambda operations: operations.pause_vectorizer(me(), which))
    typer.echo(f"{which} paused")


@app.command()
def resume(which: Name) -> None:
    """Resume a vectorizer at once, even if it is paused, deferred or waiting for its schedule."""
    _operate(lambda operations: operations.resume_vectorizer(me(), which))
    typer.echo(f"{which} resumed")


@app.command()
def drop(
    which: Name,
    everything: Annotated[bool, typer.Option("--all", help="also drop the vectors and the view")] = False,
) -> None:
    """Drop a vectorizer: changes of its table are no longer embedded."""
    _operate(lambda operations: operations.drop_vectorizer(me(), which, everything))
    typer.echo(f"{which} dropped{' with its vectors' if everything else '; its vectors remain'}")


@app.command()
def search(
    which: Name,
    question: Annotated[str, typer.Argument(help="the text to search for")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="maximum number of results")] = 5,
    mode: Annotated[
        Literal["vector", "hybrid", "text"],
        typer.Option(help="search by meaning, by meaning and words, or by words"),
    ] = "vector",
    filter: Annotated[
        list[str] | None,
        typer.Option("--filter", "-f", help="condition like lang=en or 'hits>=5'; repeatable"),
    ] = None,
) -> None:
    """Search for the chunks that match a text best."""
    from shiftboss.extensions.vectorizer.cli_view import FOUND
    from shiftboss.extensions.vectorizer.search import find

    found = asyncio.run(find(which, question, limit, mode=mode, filter=conditions(filter or ())))
    show_rows(found, FOUND, empty="nothing found")


@app.command()
def worker(
    which: Annotated[
        list[str] | None,
        typer.Option("--vectorizer", "-i", help="only this vectorizer (name or id); repeatable"),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, help="concurrent provider calls per vectorizer"),
    ] = None,
    poll_interval: Annotated[
        str | None, typer.Option(help="time between polls, like 5s or 1m; default: vectorizer.poll")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="exit when nothing is due, for cron")] = False,
    log_level: LogLevel = "info",
) -> None:
    """Embed changed rows in this process, without the fleet."""
    from shiftboss.lifecycle.logs import configure_logs

    configure_logs(log_level)
    poll = None if poll_interval is None else seconds(poll_interval)
    failures = ask(lambda db: _work(db, once, which, concurrency, poll))
    for name, error in failures.items():
        typer.echo(f"error: {name}: {error}", err=True)
    raise typer.Exit(1 if once and failures else 0)


async def _work(
    db: Database, once: bool, which: list[str] | None, concurrency: int | None, poll: float | None
) -> dict[str, str]:
    from shiftboss.extensions.ai import AI
    from shiftboss.extensions.vectorizer.worker import VectorizerWorker
    from shiftboss.lifecycle.signals import stop_on_signals
    from shiftboss.model.settings import Settings
    from shiftboss.worker.presence import Presence
    from shiftboss.worker.tracking import Tracker

    settings = Settings.load()
    own = VectorizerSettings.of(settings).model_copy(update={} if poll is None else {"poll": poll})
    only = [(await db.family(Vectorizers).get(each)).counted_as for each in which] if which else None
    async with (
        await AI.open(AISettings.of(settings), db) as ai,
        Tracker(db, own.poll) as tracker,
        Presence(db, tracker, every=own.poll),
    ):
        service = VectorizerWorker(
            db,
            ai,
            tracker=tracker,
            settings=own,
            listen_url=settings.database.direct_url,
            once=once,
            only=only,
            concurrency=concurrency,
        )
        with stop_on_signals(service.request_stop):
            await service.start()
            await service.wait()
    return service.errors


@app.command()
def feed() -> None:
    """Enqueue tasks for changed rows, for workers of `shiftboss.extensions.vectorizer.handlers:handlers`."""

    async def run(db: Database) -> None:
        from shiftboss.extensions.vectorizer.feeder import companion
        from shiftboss.lifecycle.signals import stop_on_signals
        from shiftboss.model.settings import Settings

        feeder = companion(db, Settings.load())
        with stop_on_signals(feeder.request_stop):
            await feeder.start()
            await feeder.wait()

    ask(run)
