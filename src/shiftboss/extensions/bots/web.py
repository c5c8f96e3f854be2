"""Checks websites with timeouts, robots.txt, and one request per host at a time with pauses."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import httpx

from shiftboss.extensions.bots.public import PLAIN, NotPublic, PublicTransport
from shiftboss.extensions.bots.settings import BotsSettings

MAX_REDIRECTS = 5
ROBOTS_BYTES = 512 * 1024

Verdict = Literal["ok", "bad", "missing", "unknown"]


def judged(verdict: Verdict, detail: str = "") -> dict[str, str]:
    """Return the result of a check; `unknown` means that it is not possible now."""
    return {"verdict": verdict, "detail": detail} if detail else {"verdict": verdict}


@dataclass
class _Host:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0
    robots: RobotFileParser | None = None


class WebsiteChecks:
    """Checks the websites of one run."""

    def __init__(self, settings: BotsSettings) -> None:
        self._settings = settings
        self._hosts: dict[str, _Host] = {}
        self._client = httpx.AsyncClient(
            timeout=settings.http_timeout,
            headers={"User-Agent": settings.user_agent, **PLAIN},
            follow_redirects=False,
            transport=None if settings.private_sites else PublicTransport(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def look(self, url: str) -> dict[str, str]:
        """Check whether a website answers, following redirects."""
        try:
            async with asyncio.timeout(self._settings.http_timeout * (MAX_REDIRECTS + 1)):
                return await self._follow(url)
        except (TimeoutError, httpx.TimeoutException):
            return judged("unknown", "no answer in time")
        except NotPublic:
            return judged("bad", "not a public address")
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return judged("bad", f"cannot be reached: {type(error).__name__}")

    async def _follow(self, url: str) -> dict[str, str]:
        for _ in range(MAX_REDIRECTS):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                return judged("bad", "not a web address")
            host = self._hosts.setdefault(parts.netloc, _Host())
            async with host.lock:
                if not await self._allowed(host, url):
                    return judged("unknown", "disallowed by robots.txt")
                answer, _ = await self._get(host, url)
            if not answer.is_redirect or "location" not in answer.headers:
                status = answer.status_code
                if status < 400:
                    return judged("ok", f"answers {status}")
                return judged("bad" if status in (404, 410) else "unknown", f"answers {status}")
            url = urljoin(url, answer.headers["location"])
        return judged("bad", "too many redirects")

    async def _allowed(self, host: _Host, url: str) -> bool:
        """Check robots.txt. A site without one allows everything."""
        if host.robots is None:
            host.robots, rules = RobotFileParser(), b""
            try:
                answer, body = await self._get(host, urljoin(url, "/robots.txt"), ROBOTS_BYTES)
                rules = body if answer.status_code == 200 else b""
            except httpx.HTTPError as error:
                if isinstance(error, NotPublic):
                    raise
            host.robots.parse(rules.decode("utf-8", "replace").splitlines())
        return host.robots.can_fetch(self._settings.user_agent, url)

    async def _get(self, host: _Host, url: str, most: int = 0) -> tuple[httpx.Response, bytes]:
        """Return the answer, and at most so many bytes of its body, when it is the turn of the host."""
        now = time.monotonic()
        wait = host.free_at - now
        host.free_at = max(now, host.free_at) + self._settings.host_pause
        if wait > 0:
            await asyncio.sleep(wait)
        body = b""
        async with self._client.stream("GET", url) as answer:
            if most:
                async for part in answer.aiter_raw():
                    body += part
                    if len(body) >= most:
                        break
        return answer, body[:most]
