"""Checks websites with timeouts, robots.txt, and one request per host at a time with pauses."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, NamedTuple, Self
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx

from shiftboss.extensions.bots.public import NotPublic, PublicTransport
from shiftboss.extensions.bots.settings import BotsSettings

MAX_REDIRECTS = 5
ROBOTS_BYTES = 512 * 1024

Verdict = Literal["ok", "bad", "unknown"]


class Look(NamedTuple):
    """The result of a check; `unknown` means that the site could not be checked now."""

    verdict: Verdict
    detail: str


@dataclass
class _Host:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0
    robots: RobotFileParser | None = None


class Web:
    """Checks the websites of one run."""

    def __init__(self, settings: BotsSettings) -> None:
        self._settings = settings
        self._hosts: dict[str, _Host] = {}
        self._client = httpx.AsyncClient(
            timeout=settings.http_timeout,
            headers={"User-Agent": settings.user_agent},
            follow_redirects=False,
            transport=None if settings.private_sites else PublicTransport(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def look(self, url: str) -> Look:
        """Check whether a website answers, following redirects."""
        try:
            async with asyncio.timeout(self._settings.http_timeout * (MAX_REDIRECTS + 1)):
                return await self._follow(url)
        except (TimeoutError, httpx.TimeoutException):
            return Look("unknown", "no answer in time")
        except NotPublic:
            return Look("bad", "not a public address")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return Look("bad", f"cannot be reached: {type(error).__name__}")

    async def _follow(self, url: str) -> Look:
        for _ in range(MAX_REDIRECTS):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                return Look("bad", "not a web address")
            host = self._hosts.setdefault(parts.netloc, _Host())
            async with host.lock:
                if not await self._allowed(host, url):
                    return Look("unknown", "disallowed by robots.txt")
                status, location = await self._get(host, url)
            if location is None:
                return _judge(status)
            url = urljoin(url, location)
        return Look("bad", "too many redirects")

    async def _allowed(self, host: _Host, url: str) -> bool:
        if host.robots is None:
            host.robots = RobotFileParser()
            host.robots.parse((await self._robots(host, urljoin(url, "/robots.txt"))).splitlines())
        return host.robots.can_fetch(self._settings.user_agent, url)

    async def _robots(self, host: _Host, url: str) -> str:
        """Return the rules of robots.txt, or an empty text, which allows everything."""
        await self._wait_turn(host)
        try:
            async with self._client.stream("GET", url) as answer:
                if answer.status_code != 200:
                    return ""
                body = b""
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > ROBOTS_BYTES:
                        break
                return body[:ROBOTS_BYTES].decode("utf-8", "replace")
        except NotPublic:
            raise
        except httpx.HTTPError:
            return ""

    async def _get(self, host: _Host, url: str) -> tuple[int, str | None]:
        """Return the status and the target of a redirect, without reading the body."""
        await self._wait_turn(host)
        async with self._client.stream("GET", url) as answer:
            return answer.status_code, answer.headers.get("location") if answer.is_redirect else None

    async def _wait_turn(self, host: _Host) -> None:
        now = time.monotonic()
        wait = host.free_at - now
        host.free_at = max(now, host.free_at) + self._settings.host_pause
        if wait > 0:
            await asyncio.sleep(wait)


def _judge(status: int) -> Look:
    if status < 400:
        return Look("ok", f"answers {status}")
    if status in (404, 410):
        return Look("bad", f"answers {status}")
    return Look("unknown", f"answers {status}")
