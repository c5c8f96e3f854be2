"""A protocol server that this project did not write, on loopback, and a proxy that breaks connections."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from shiftboss.extensions.ai.settings import (
    AISettings,
    AzureSettings,
    BreakerSettings,
    OllamaSettings,
    OpenAISettings,
    RetrySettings,
)

HERE = Path(__file__).parent
SERVER = HERE / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
SENTIMENT = {
    "task_type": "sentiment_analysis",
    "processed_data": {
        "overall_sentiment": {"score": 0.8, "label": "positive", "magnitude": 0.9},
        "emotions": {"joy": 0.8, "sadness": 0.1, "anger": 0, "fear": 0.1, "surprise": 0},
        "emotional_intensity": 0.75,
    },
    "confidence_score": 0.92,
}


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where calls wait on disk for the database."""
    monkeypatch.setenv("SHIFTBOSS_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


class ProtocolServer:
    """Speaks OpenAI, Azure OpenAI and Ollama; its answers and faults are set over its control port."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._control = httpx.Client(base_url=f"{url}/__aimock", timeout=10)

    def answers(self, content: Any, *, to: str | None = None, usage: dict[str, int] | None = None) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        response = {"content": text} | ({"usage": usage} if usage else {})
        self._add({"match": {"userMessage": to} if to else {}, "response": response})

    def fails(self, status: int, *, retry_after: int | None = None, model: str | None = None) -> None:
        response: dict[str, Any] = {"error": {"message": "told to fail", "type": "test"}, "status": status}
        if retry_after is not None:
            response["retryAfter"] = retry_after
        self._add({"match": {"model": model} if model else {}, "response": response})

    def _add(self, fixture: dict[str, Any]) -> None:
        self._control.post("/fixtures", json={"fixtures": [fixture]}).raise_for_status()

    def chaos(self, **rates: float) -> None:
        self._control.post("/chaos", json=rates).raise_for_status()

    def requests(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._control.get("/journal").raise_for_status().json()
        return [entry for entry in entries if entry["method"] == "POST"]

    def bodies(self) -> list[dict[str, Any]]:
        return [entry["body"] for entry in self.requests()]

    def reset(self) -> None:
        self._control.post("/reset").raise_for_status()
        self._control.delete("/chaos").raise_for_status()


@contextmanager
def _serving(environment: dict[str, str] | None = None) -> Iterator[ProtocolServer]:
    command = ["node", str(SERVER), "-p", "0", "-f", str(HERE / "fixtures.json")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | (environment or {}),
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            pytest.fail("the protocol server did not start")
        yield ProtocolServer(found[1])
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def protocol_server_installed() -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is needed to install the protocol server")
    with (HERE / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not SERVER.exists():
            done = subprocess.run(
                ["npm", "ci", "--no-audit", "--no-fund"], cwd=HERE, capture_output=True, text=True
            )
            if done.returncode:
                pytest.skip(f"npm cannot install the protocol server: {done.stderr[-300:]}")


@pytest.fixture(scope="session")
def _running_server(protocol_server_installed: None) -> Iterator[ProtocolServer]:
    with _serving() as server:
        yield server


@pytest.fixture
def server(_running_server: ProtocolServer) -> ProtocolServer:
    """A protocol server with nothing to say yet."""
    _running_server.reset()
    return _running_server


@pytest.fixture
def locked_server(protocol_server_installed: None) -> Iterator[ProtocolServer]:
    """One that accepts a single key."""
    with _serving({"AIMOCK_API_KEYS": "the-right-key"}) as server:
        yield server


@pytest.fixture
def make_settings(server: ProtocolServer) -> Any:
    """Settings whose providers all lead to the protocol server, without waits between retries."""

    def make(*providers: str, timeout: float = 5.0, url: str | None = None, **limits: Any) -> AISettings:
        address = url or server.url
        remote: dict[str, Any] = {"timeout": timeout, **limits}
        return AISettings(
            providers=list(providers),  # type: ignore[arg-type]
            openai=OpenAISettings(api_key="k", base_url=f"{address}/v1", **remote),
            azure=AzureSettings(api_key="k", base_url=address, model="gpt-4o-azure", **remote),
            ollama=OllamaSettings(base_url=address, **remote),
            retry=RetrySettings(attempts=3, base=0, jitter=0),
            breaker=BreakerSettings(failures=5, recovery=600),  # no probe while a test is under way
        )

    return make


class FaultProxy:
    """Passes bytes on to a server, or breaks the connection in a stated way."""

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self.fault: str | None = None
        self.canned = b"{not json"
        self.status = "200 OK"
        self.headers = ""
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n") if self.fault else None
            if self.fault == "reset":
                writer.transport.abort()
            elif self.fault == "drip":
                await self._drip(writer)
            elif self.fault == "canned":
                head = f"HTTP/1.1 {self.status}\r\nContent-Type: application/json\r\n{self.headers}"
                head += f"Content-Length: {len(self.canned)}\r\nConnection: close\r\n\r\n"
                writer.write(head.encode() + self.canned)
                await writer.drain()
            else:
                await self._pass_on(reader, writer)
        writer.close()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
        for _ in range(10_000):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        await asyncio.gather(_copy(reader, upstream_writer), _copy(upstream_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def proxy(server: ProtocolServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(server.url).running() as running:
        yield running
