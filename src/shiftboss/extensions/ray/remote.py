"""The function that runs in Ray. It executes one task for the worker that submitted it."""

from __future__ import annotations

import socket


def run(host: str, port: int, token: bytes) -> None:
    """Connect to the worker, send the token of the task, and run the task that it returns."""
    from shiftboss.worker.child import serve

    with socket.create_connection((host, port), timeout=30) as line:
        line.settimeout(None)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        line.sendall(token)
        with line.makefile("rb") as requests, line.makefile("wb") as answers:
            serve(requests, answers)
