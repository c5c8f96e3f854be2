"""A connection to the database that is cut in the middle of a response."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit, urlunsplit

QUIET = 0.03  # seconds after which the server has said everything


async def message(source: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Type and whole text of the next message."""
    head = await source.readexactly(5)
    return head[:1], head + await source.readexactly(int.from_bytes(head[1:], "big") - 4)


@dataclass
class Passed:
    """Messages of the answer to `trigger` that one connection has let through; None before `trigger`."""

    count: int | None = None


class Cutter:
    """A proxy that lets `let` messages of the answer to `trigger` through, says `tail` and hangs up.

    `commits` tells whether the server learns of the end of the transaction.
    """

    def __init__(self, url: str, trigger: bytes) -> None:
        self._to, self._trigger = urlsplit(url), trigger
        self.let, self.tail, self.commits = 0, b"", True
        self.cut = False
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._serving)

    @property
    def url(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        user = self._to.netloc.rpartition("@")[0]
        plain = "sslmode=disable&gssencmode=disable"  # nothing but messages with a type and a length
        return urlunsplit(self._to._replace(netloc=f"{user}@127.0.0.1:{port}", query=plain))

    def _accept(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        self._serving.append(asyncio.create_task(self._serve(client, answers)))

    async def _serve(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        server, requests = await asyncio.open_connection(self._to.hostname, self._to.port)
        passed = Passed()
        start = await client.readexactly(4)  # the first message of a client has no type
        requests.write(start + await client.readexactly(int.from_bytes(start, "big") - 4))
        ask = asyncio.create_task(self._ask(client, requests, passed))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer(server, answers, passed)
        ask.cancel()
        answers.close()
        requests.close()

    async def _ask(
        self, client: asyncio.StreamReader, requests: asyncio.StreamWriter, passed: Passed
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, text = await message(client)
                if self._trigger in text:
                    passed.count = 0
                if passed.count is not None and not self.commits and (kind == b"S" or b"COMMIT" in text):
                    requests.write(b"H\0\0\0\4")  # let the server answer without an end of the transaction
                    return
                requests.write(text)
        requests.close()

    async def _answer(
        self, server: asyncio.StreamReader, answers: asyncio.StreamWriter, passed: Passed
    ) -> None:
        while True:
            try:
                async with asyncio.timeout(None if passed.count is None or self.commits else QUIET):
                    kind, text = await message(server)
            except TimeoutError:
                break
            if passed.count == self.let:
                self.cut = True
                await self._hear_out(server, kind)
                break
            if passed.count is not None:
                passed.count += 1
            answers.write(text)
        answers.write(self.tail)
        await answers.drain()

    async def _hear_out(self, server: asyncio.StreamReader, kind: bytes) -> None:
        """Let the server end what it does."""
        while self.commits and kind != b"Z":
            kind, _ = await message(server)
