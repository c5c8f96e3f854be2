"""A provider stand-in that speaks OpenAI's embedding protocol over real HTTP, and can be told to misbehave.

`python -m tests.extensions.vectorizer.provider PORT [LATENCY]` serves until it is killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson

Reply = tuple[int, str, bytes]
Answer = Callable[[dict[str, Any]], Reply | None]
DIMENSIONS = 8


class Provider:
    """`answer` may give another reply than vectors; `requests` are the bodies, each with its key."""

    def __init__(self, latency: float = 0.0) -> None:
        self.latency = latency
        self.url = ""
        self.answer: Answer | None = None
        self.widths: dict[str, int] = {}
        self.requests: list[dict[str, Any]] = []
        self.first: float | None = None  # when the first request came

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._one(reader, writer)
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = orjson.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        body["key"] = headers.get("authorization")
        self.requests.append(body)
        self.first = self.first or time.perf_counter()
        if self.latency:
            await asyncio.sleep(self.latency)
        status, kind, content = (self.answer and self.answer(body)) or self._vectors(body)
        answer = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(answer.encode() + content)
        await writer.drain()

    def _vectors(self, body: dict[str, Any]) -> Reply:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        width = body.get("dimensions") or self.widths.get(body["model"], DIMENSIONS)
        data = [{"index": n, "embedding": vector(text, width)} for n, text in enumerate(texts)]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        answer = {"object": "list", "model": body["model"], "data": data, "usage": usage}
        return 200, "application/json", orjson.dumps(answer)


def vector(text: str, width: int = DIMENSIONS) -> list[float]:
    """Numbers that follow from the text alone."""
    digest = hashlib.sha256(str(text).encode()).digest()
    return [digest[n % 32] / 256 + (n // 32) / 1024 for n in range(width)]


@asynccontextmanager
async def serving(provider: Provider | None = None, port: int = 0) -> AsyncIterator[Provider]:
    provider = provider or Provider()
    listener = await asyncio.start_server(provider.serve, "127.0.0.1", port)
    provider.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        listener.close()


async def main(port: int, latency: float) -> None:
    async with serving(Provider(latency), port) as provider:
        print(provider.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
