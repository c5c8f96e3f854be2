"""The coordinator: a gRPC server with health checking and reflection, and a dispatcher."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from shiftboss.db import Database
from shiftboss.extensions.grpc.auth import DatabaseTokens
from shiftboss.extensions.grpc.dispatch import Dispatcher
from shiftboss.extensions.grpc.proto import externalscaler_pb2_grpc
from shiftboss.extensions.grpc.registry import Registry
from shiftboss.extensions.grpc.scaler import Scaler
from shiftboss.extensions.grpc.service import SERVICE, FleetService
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.extensions.grpc.streams import Parts
from shiftboss.lifecycle import Service, first_of
from shiftboss.lifecycle.ports import is_loopback
from shiftboss.lifecycle.waiting import when_up
from shiftboss.log import get_logger
from shiftboss.model.errors import ConfigError, ShiftbossError

log = get_logger(__name__)


class Coordinator(Service):
    """Serves until it is stopped. `port` is the bound port, even if the setting is 0."""

    def __init__(
        self,
        db: Database,
        settings: CoordinatorSettings,
        tokens: DatabaseTokens | None,
        *,
        listen_url: str | None = None,
    ) -> None:
        super().__init__()
        check(settings, tokens)
        self.port = settings.port
        self._db = db
        self._settings = settings
        self._tokens = tokens
        self._listen_url = listen_url or db.url

    @property
    def address(self) -> str:
        return f"{self._settings.host}:{self.port}"

    @property
    def name(self) -> str:
        """A unique name. Coordinators on several hosts may listen on the same address."""
        return f"{socket.gethostname()}/{self.address}"

    async def run(self) -> None:
        installation = str((await when_up(self._db.installation.own, stopping=self.stopping)).id)
        server = self._server()
        self.port = self._bind(server)
        registry = Registry(self._db, self._settings)
        dispatcher = Dispatcher(self._db, registry, self._settings, self.name, self._listen_url)
        parts = Parts(self._db, registry, dispatcher, self._settings, self.name, installation)
        server.add_generic_rpc_handlers((FleetService(parts, self._tokens).handlers(),))
        if self._settings.scaler:
            scaler = Scaler(self._db, self._settings.poll_seconds)
            externalscaler_pb2_grpc.add_ExternalScalerServicer_to_server(scaler, server)  # type: ignore[no-untyped-call]
        checks = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        names = (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        async with dispatcher:
            await server.start()
            await checks.set("", health_pb2.HealthCheckResponse.SERVING)
            await checks.set(SERVICE.full_name, health_pb2.HealthCheckResponse.SERVING)
            log.info("coordinator started", address=self.address, tls=self._settings.tls_cert is not None)
            self.ready()
            await first_of(self.stopping.wait(), dispatcher.wait())  # the dispatcher ends only if it fails
            await checks.enter_graceful_shutdown()
            await server.stop(grace=1.0)
        await dispatcher.wait()

    def _server(self) -> grpc.aio.Server:
        size = self._settings.max_message_bytes
        return grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", size),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", 16 * 1024),
                ("grpc.keepalive_time_ms", 20_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.so_reuseport", 0),
            ],
        )

    def _bind(self, server: grpc.aio.Server) -> int:
        address = self.address
        try:
            credentials = server_credentials(self._settings)
            if credentials is None:
                return server.add_insecure_port(address)
            return server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ShiftbossError(
                f"cannot listen on {address}", hint="choose another port with --port"
            ) from error


def check(settings: CoordinatorSettings, tokens: DatabaseTokens | None) -> None:
    """Raise ConfigError for settings that are insecure or inconsistent."""
    if tokens is None and not is_loopback(settings.host):
        raise ConfigError(
            f"a coordinator on {settings.host} must require tokens",
            hint="set coordinator.require_token, or listen on 127.0.0.1",
        )
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigError("coordinator.tls_cert and coordinator.tls_key must be set together")
    if settings.tls_client_ca is not None and settings.tls_cert is None:
        raise ConfigError("coordinator.tls_client_ca needs coordinator.tls_cert and coordinator.tls_key")


def server_credentials(settings: CoordinatorSettings) -> grpc.ServerCredentials | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    authority = None if settings.tls_client_ca is None else read(settings.tls_client_ca)
    return grpc.ssl_server_credentials(
        [(read(settings.tls_key), read(settings.tls_cert))],
        root_certificates=authority,
        require_client_auth=authority is not None,
    )


def read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
