"""`shiftboss coordinator`: feed workers that have no database, over gRPC; and stand for leader."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftboss.cli.output import LogLevel

if TYPE_CHECKING:
    from shiftboss.db import Database
    from shiftboss.lifecycle import Service
    from shiftboss.model.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def coordinator(
    host: Annotated[str | None, typer.Option("--host", help="listen here; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option("--port", "-p", help="default 50051; 0: any free one")] = None,
    require_token: Annotated[
        bool | None,
        typer.Option("--token/--no-token", help="ask workers for a token; not to is for loopback only"),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="certificate chain, PEM")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="its private key, PEM")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option("--tls-client-ca", help="workers must show a certificate of this one")
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Run one coordinator until Ctrl-C. Several may run at once; workers move to another when one goes.

    Example: shiftboss coordinator --host 0.0.0.0 --tls-cert server.pem --tls-key server.key
    """
    from shiftboss.lifecycle.logs import configure_logs
    from shiftboss.model.settings import CoordinatorSettings, Settings

    chosen: dict[str, Any] = {
        "host": host,
        "port": port,
        "require_token": require_token,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_client_ca": tls_client_ca,
    }
    settings = Settings.load()
    given = {key: value for key, value in chosen.items() if value is not None}
    own = CoordinatorSettings.model_validate(settings.coordinator.model_dump() | given)
    configure_logs(log_level)
    asyncio.run(_run(settings.model_copy(update={"coordinator": own})))


async def _run(settings: Settings) -> None:
    from shiftboss.coordinator.auth import DatabaseTokens
    from shiftboss.coordinator.duties import candidate
    from shiftboss.coordinator.server import Coordinator
    from shiftboss.db import Database
    from shiftboss.lifecycle.signals import stop_on_signals

    database, chosen = settings.database, settings.coordinator
    async with await Database.open(database.url, data_dir=settings.data_dir) as db:
        tokens = DatabaseTokens(db) if chosen.require_token else None
        coordinator = Coordinator(db, chosen, tokens, listen_url=database.direct_url)
        async with AsyncExitStack() as parts:
            parts.enter_context(stop_on_signals(coordinator.request_stop))
            for part in (candidate(db, settings), *_feeders(db, settings), coordinator):
                await parts.enter_async_context(part)
            await coordinator.wait()


def _feeders(db: Database, settings: Settings) -> list[Service]:
    """Vectorizer work becomes tasks here too, where vectorizers are installed; any number may feed."""
    if find_spec("pgvector") is None:
        return []
    from shiftboss.vectorizer.feeder import Feeder

    return [Feeder(db, poll=settings.vectorizer.poll, listen_url=settings.database.direct_url)]
