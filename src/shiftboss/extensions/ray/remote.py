"""What runs inside of Ray: one task, which speaks to the worker that submitted it."""

from __future__ import annotations

import socket


def run(host: str, port: int, token: bytes) -> None:
    """Connect to the worker, say which task this is, and run what it sends."""
    from shiftboss.worker.child import serve

    with socket.create_connection((host, port), timeout=30) as line:
        line.settimeout(None)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.sendall(token)
        with line.makefile("rb") as requests, line.makefile("wb") as answers:
            serve(requests, answers)
