"""Limits the connections that a client can hold without sending a request."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

RECEIVE_SECONDS = 120.0
"""Time for a whole request to arrive."""
MOST_ARRIVING = 500
"""Connections of one address whose requests have not arrived. Many processes may open only 1,024 files."""


class LimitedConnection(H11Protocol):
    """Closes a connection whose request does not arrive in time, or that is one too many of its address."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()
        if sum(self._same_client(other) for other in self.connections) > MOST_ARRIVING:
            transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _same_client(self, other: object) -> bool:
        if not (isinstance(other, LimitedConnection) and other.client and self.client and other._arriving()):
            return False
        return other.client[0] == self.client[0]

    def _arriving(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _expect_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(RECEIVE_SECONDS, self._check)

    def _check(self) -> None:
        if self._arriving():
            self.transport.close()
