"""A proxy in front of the database that can stop forwarding without closing the connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Line:
    """Forwards while `alive` is set. Who says `hush` is not answered before `spoken` is set."""

    def __init__(self, url: str, hush: bytes | None = None) -> None:
        self._to = urlsplit(url)
        self._hush = hush
        self.alive, self.spoken = asyncio.Event(), asyncio.Event()
        self.alive.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.alive.set()
        self.spoken.set()
        self._server.close()

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        user = self._to.netloc.rpartition("@")[0]
        return urlunsplit(self._to._replace(netloc=f"{user}@127.0.0.1:{port}"))

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        await self.alive.wait()
        server, requests = await asyncio.open_connection(self._to.hostname, self._to.port)
        hushed = asyncio.Event()
        await asyncio.gather(
            self._forward(client, requests, hushed, watch=True), self._forward(server, answers, hushed)
        )

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        hushed: asyncio.Event,
        watch: bool = False,
    ) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                await self.alive.wait()
                if watch and self._hush is not None and self._hush in data:
                    hushed.set()
                if not watch and hushed.is_set():
                    await self.spoken.wait()
                target.write(data)
                await target.drain()
        target.close()
