"""`shiftboss coordinator`: assign tasks to workers over gRPC, and take part in leader election."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from shiftboss.cli.output import LogLevel
from shiftboss.extension import contributions
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.model.settings import Settings

app = typer.Typer(add_completion=False)


@app.command()
def coordinator(
    host: Annotated[str | None, typer.Option("--host", help="address; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option("--port", "-p", help="default 50051; 0: any free one")] = None,
    require_token: Annotated[
        bool | None,
        typer.Option("--token/--no-token", help="require a token; --no-token works on localhost only"),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="certificate chain, PEM")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="its private key, PEM")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option("--tls-client-ca", help="require client certificates of this authority")
    ] = None,
    log_level: LogLevel = "info",
) -> None:
    """Run a coordinator until Ctrl+C. If you run several, workers switch to another one when theirs stops.

    Example: shiftboss coordinator --host 0.0.0.0 --tls-cert server.pem --tls-key server.key
    """
    from shiftboss.db.connection import name_connections
    from shiftboss.lifecycle.logs import configure_logs
    from shiftboss.lifecycle.loop import fast_loop

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
    own = CoordinatorSettings.model_validate(CoordinatorSettings.of(settings).model_dump() | given)
    configure_logs(log_level)
    name_connections("coordinator")
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run(settings.model_copy(update={"coordinator": own})))


async def _run(settings: Settings) -> None:
    from shiftboss.db import Database
    from shiftboss.extensions.grpc.auth import DatabaseTokens
    from shiftboss.extensions.grpc.server import Coordinator
    from shiftboss.leader.autoscaler import configure
    from shiftboss.leader.duties import candidate
    from shiftboss.lifecycle.signals import stop_on_signals
    from shiftboss.lifecycle.waiting import when_up

    database, chosen = settings.database, CoordinatorSettings.of(settings)
    async with await when_up(lambda: Database.open(database.url, data_dir=settings.data_dir)) as db:
        await when_up(db.installation.own)
        await when_up(lambda: configure(db, settings.autoscale))
        tokens = DatabaseTokens(db) if chosen.require_token else None
        coordinator = Coordinator(db, chosen, tokens, listen_url=database.direct_url)
        async with AsyncExitStack() as parts:
            parts.enter_context(stop_on_signals(coordinator.request_stop))
            companions = [make(db, settings) for make in contributions("companions")]
            for part in (candidate(db, settings), *companions, coordinator):
                await parts.enter_async_context(part)
            await coordinator.wait()
