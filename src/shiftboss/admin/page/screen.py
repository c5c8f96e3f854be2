"""One open page: who looks, what it shows, what it may do. Every action asks anew who is asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import orjson
import structlog
from fastapi import Request
from markupsafe import Markup
from nicegui import Client, ui

from shiftboss.admin.access import COOKIE, address_of
from shiftboss.admin.page import frame
from shiftboss.admin.page.live import Live
from shiftboss.admin.page.sampler import Reading, Render, Sampler
from shiftboss.admin.problems import Unauthorized
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import ShiftbossError

if TYPE_CHECKING:
    from shiftboss.admin.desk import Desk

log = structlog.get_logger()

Handler = Callable[[Principal, dict[str, str]], Awaitable[str]]
CHECK_SESSION = 60.0


class Screen:
    """What a page's builder works with."""

    def __init__(self, desk: Desk, sampler: Sampler, request: Request, client: Client) -> None:
        self.desk, self.sampler, self.client = desk, sampler, client
        self.query = request.query_params
        self._secret = request.cookies.get(COOKIE)
        self._address = address_of(request)
        self._scheme, self._host = request.url.scheme, request.headers.get("host")
        self._handlers: dict[str, Handler] = {}
        self._sheets = 0
        self._sheet: Live
        self.who: Principal

    async def recognise(self) -> Principal:
        """Who is looking, now: a session may have ended since the page was opened."""
        self.who = await self.desk.access.recognise(self._secret, self._address, self._host)
        self.who.require(Role.VIEWER)
        return self.who

    @property
    def address(self) -> str:
        """Where this browser reaches the service."""
        return f"{self._scheme}://{self._host}"

    @property
    def may_act(self) -> bool:
        return self.who.may(Role.OPERATOR)

    def on(self, act: str, handler: Handler) -> None:
        """What to do for `data-act`; the handler's answer is told, and ends the dialog it was asked in."""
        self._handlers[act] = handler

    def surround(self, name: str) -> None:
        """What is around every page: navigation before it, messages and dialogs after."""
        self.show(frame.navigation(self.who, name)).move(self.client.layout, 0)
        self.show(frame.foot())
        self._sheet = self.show(Markup(""))

    def sheet(self, title: str, body: Markup) -> None:
        """Ask for more, or tell what must be read, in a dialog over the page."""
        self._sheets += 1
        self._sheet.show(frame.sheet(self._sheets, title, body))

    def show(self, text: Markup) -> Live:
        """Something that stays as it is."""
        return Live(text, self._act)

    async def live(self, reading: Reading, render: Render) -> Live:
        """Something that follows a reading for as long as the page is open."""
        await reading.first()
        part = Live(reading.text(render, self.may_act), self._act)

        def follow() -> None:
            part.show(reading.text(render, self.may_act))

        reading.watch(follow)
        self.client.on_delete(lambda: reading.leave(follow))
        return part

    async def _act(self, name: str, values: dict[str, str]) -> None:
        handler = self._handlers.get(name)
        if handler is None:
            return
        try:
            told = await handler(await self.recognise(), values)
        except Unauthorized:
            self.go("/login")
        except ShiftbossError as error:
            self.tell(f"{error.message}. {error.hint}" if error.hint else error.message, bad=True)
        else:
            if told:
                self.tell(told)
            self.sampler.touch()

    def tell(self, text: str, *, bad: bool = False) -> None:
        self._run(f"shiftboss.toast({orjson.dumps(text).decode()}, {'true' if bad else 'false'})")

    def go(self, path: str) -> None:
        self._run(f"location.assign({orjson.dumps(path).decode()})")

    def _run(self, script: str) -> None:
        self.client.run_javascript(script)

    async def guard(self) -> None:
        """Send a page away whose session has ended."""
        while True:
            await asyncio.sleep(CHECK_SESSION)
            try:
                await self.recognise()
            except Unauthorized:
                self.go("/login")
                return
            except ShiftbossError as error:
                log.debug("session not checked", reason=error.message)

    def title(self, text: str, side: Markup | str = "", crumb: Markup | str = "") -> None:
        ui.page_title(f"{text} · Shiftboss")
        line = Markup('<div class="title"><h1>{}</h1><div class="side">{}</div></div>').format(text, side)
        self.show((Markup('<p class="crumb">{}</p>').format(crumb) if crumb else Markup("")) + line)
