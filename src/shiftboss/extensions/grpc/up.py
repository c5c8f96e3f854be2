"""Starts the coordinator in `shiftboss up`."""

from __future__ import annotations

from shiftboss.app.up import Up
from shiftboss.extensions.grpc.auth import DatabaseTokens
from shiftboss.extensions.grpc.server import Coordinator
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.lifecycle.ports import is_free


async def start(up: Up) -> None:
    """Serve on the configured port. If it is the default and in use, take any free one."""
    chosen = CoordinatorSettings.of(up.settings)
    if up.settings.source_of("coordinator.port") == "default" and not is_free(chosen.host, chosen.port):
        chosen = chosen.model_copy(update={"port": 0})
    tokens = DatabaseTokens(up.db) if chosen.require_token else None
    coordinator = Coordinator(up.db, chosen, tokens, listen_url=up.settings.database.direct_url)
    await up.enter(coordinator)
    up.say("coordinator", f"{coordinator.address}  (gRPC)")
