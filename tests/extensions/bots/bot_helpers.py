"""What the tests of bots share: the sample extract, a listener for reports, a web server of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import shiftboss.extensions.bots

SAMPLE = Path(shiftboss.extensions.bots.__file__).parent / "config" / "sample.geojson"


class Heard:
    """Keeps what a bot reports; `stop_at` ends the run there, as a worker that stops would."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.percents: list[int] = []
        self.checkpoint: dict[str, Any] | None = None
        self._stop_at = stop_at

    async def report(
        self, percent: int, counters: dict[str, int], checkpoint: dict[str, Any] | None, message: str | None
    ) -> None:
        self.percents.append(percent)
        self.checkpoint = checkpoint
        if self._stop_at is not None and self._stop_at <= percent < 99:
            raise asyncio.CancelledError


class Site:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.seen: list[tuple[str, str, bytes]] = []
        self.hold: asyncio.Event | None = None
        self._port = port

    def page(self, path: str, status: int = 200, body: bytes = b"hello", **headers: str) -> str:
        self.pages[path] = (status, headers, body)
        return self.url + path

    async def __aenter__(self) -> Site:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        length = next(
            (int(x.split(":")[1]) for x in head.lower().split("\r\n") if x[:15] == "content-length:"), 0
        )
        self.seen.append((method, path, await reader.readexactly(length)))
        if self.hold is not None and path != "/robots.txt":
            await self.hold.wait()
        status, headers, body = self.pages.get(path, (404, {}, b""))
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        writer.close()
