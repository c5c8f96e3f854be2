"""The connection of a worker to one of its coordinators. It switches to the next one on failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import grpc

from shiftboss.extensions.grpc.proto import fleet_pb2_grpc
from shiftboss.extensions.grpc.refusals import LOCKED, PUSHBACK
from shiftboss.extensions.grpc.server import read
from shiftboss.extensions.grpc.settings import CoordinatorSettings
from shiftboss.log import get_logger
from shiftboss.model.errors import ConfigError, DatabaseUnavailable, ShiftbossError, TasksLocked

log = get_logger(__name__)

AWAY = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
}
"""Statuses after which a later call, or a call to another coordinator, may succeed."""
LOST_SESSION = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAUTHENTICATED}


class CoordinatorError(ShiftbossError):
    """The coordinator refused a call permanently."""

    exit_code = 8


class CoordinatorUnavailable(DatabaseUnavailable):
    """No coordinator is reachable now; a later call may succeed."""

    exit_code = 9


class Link:
    """A channel to one of `addresses`. `turn` identifies the connection, so that a failure switches once."""

    def __init__(self, addresses: Sequence[str], settings: CoordinatorSettings) -> None:
        if not addresses:
            raise ConfigError("no coordinator address is given", hint="pass --coordinator HOST:PORT")
        self._addresses = list(addresses)
        self._settings = settings
        self._credentials = channel_credentials(settings)
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self.turn = 0

    @property
    def address(self) -> str:
        return self._addresses[self.turn % len(self._addresses)]

    @property
    def count(self) -> int:
        return len(self._addresses)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        token = self._settings.token
        return () if token is None else (("authorization", f"Bearer {token}"),)

    @property
    def stub(self) -> Any:
        if self._stub is None:
            self._channel = self._connect(grpc.aio)
            self._stub = fleet_pb2_grpc.FleetStub(self._channel)  # type: ignore[no-untyped-call]
        return self._stub

    def _connect(self, kind: Any) -> Any:
        """Return a channel of `grpc` or `grpc.aio`."""
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 5_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 5_000),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if self._credentials is None:
            return kind.insecure_channel(self.address, options=options)
        return kind.secure_channel(self.address, self._credentials, options=options)

    def call_apart(self, method: str, request: Any, timeout: float) -> Any:
        """Make a unary call from a thread over a separate channel, while the event loop is blocked."""
        with self._connect(grpc) as channel:
            stub: Any = fleet_pb2_grpc.FleetStub(channel)  # type: ignore[no-untyped-call]
            return getattr(stub, method)(request, timeout=timeout, metadata=self.metadata)

    async def move_on(self, turn: int) -> None:
        """Switch to the next address after a failure, unless another call already did."""
        if turn == self.turn:
            self.turn += 1
            await self.close()
            log.warning("coordinator lost, connecting to the next one", address=self.address)

    async def close(self) -> None:
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            await channel.close(None)

    async def call(self, method: str, request: Any, timeout: float = 10.0) -> Any:
        """Make a unary call, trying each address once. Raise the error of the last one."""
        said: str | None = None
        for _ in range(self.count):
            turn = self.turn
            try:
                return await getattr(self.stub, method)(request, timeout=timeout, metadata=self.metadata)
            except grpc.aio.AioRpcError as error:
                if must_wait(error):
                    raise CoordinatorUnavailable(f"{method} must wait: {error.details()}") from error
                if error.code() not in AWAY:
                    raise
                said = error.details()
            except asyncio.CancelledError:
                if cancelled_itself():
                    raise
                said = "the connection was closed"
            await self.move_on(turn)
        raise CoordinatorUnavailable(
            f"no coordinator is reachable for {method}: {said}",
            hint=f"check that a coordinator is running at {', '.join(self._addresses)}",
        )


def cancelled_itself() -> bool:
    """Whether the current asyncio task was cancelled. Closing a channel raises CancelledError, too."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def must_wait(error: grpc.aio.AioRpcError) -> bool:
    """Whether the coordinator asked to repeat the call later."""
    metadata: Any = error.trailing_metadata()  # the type stubs are wrong
    return PUSHBACK in (metadata or ())


def locked_tasks(error: BaseException | None) -> TasksLocked | None:
    """Return the tasks whose reports must wait, if the coordinator named some."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return None
    metadata: Any = error.trailing_metadata()
    ids = dict(metadata or ()).get(LOCKED)
    return TasksLocked(UUID(id) for id in ids.split(",")) if ids else None


def channel_credentials(settings: CoordinatorSettings) -> grpc.ChannelCredentials | None:
    if settings.ca is None:
        if settings.client_cert is not None or settings.client_key is not None:
            raise ConfigError("coordinator.client_cert and client_key need coordinator.ca")
        return None
    if (settings.client_cert is None) != (settings.client_key is None):
        raise ConfigError("coordinator.client_cert and coordinator.client_key must be set together")
    key = None if settings.client_key is None else read(settings.client_key)
    cert = None if settings.client_cert is None else read(settings.client_cert)
    return grpc.ssl_channel_credentials(read(settings.ca), key, cert)
