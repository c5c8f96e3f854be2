"""The event stream of an open page. It sends changed pieces, and the end of the session."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
from fastapi import Request
from fastapi.responses import StreamingResponse

from shiftboss.extensions.admin.page import answers
from shiftboss.extensions.admin.page.alerts import alerts_channel
from shiftboss.extensions.admin.page.channels import Channel, Look
from shiftboss.extensions.admin.page.render import Piece
from shiftboss.extensions.admin.page.shell import Shell
from shiftboss.extensions.admin.page.site import Page, Visit
from shiftboss.lifecycle import sleep

BEAT = 20.0
CHECK_SESSION = 60.0


def stream(shell: Shell, page: Page, visit: Visit, request: Request) -> StreamingResponse:
    """Return the server-sent events of one open page. `have` in the query lists what the browser shows."""
    headers = answers.HEADERS | {"X-Accel-Buffering": "no"}
    return StreamingResponse(
        _flow(shell, page, visit, request), media_type="text/event-stream", headers=headers
    )


def _channel(shell: Shell, page: Page, visit: Visit) -> Channel:
    """Return the channel shared by all open pages with the same path, query and role."""

    look = replace(visit, live=True)

    async def read() -> Look:
        context = await page.view(look)
        return shell.renderer.pieces(page, look, context), page.pace(context)

    key = (page.path, tuple(visit.params.items()), tuple(visit.query.items()), visit.who.role)
    return shell.channels.channel(key, read, page.wakes)


async def _flow(shell: Shell, page: Page, visit: Visit, request: Request) -> AsyncIterator[bytes]:
    have = dict(part.split(":", 1) for part in request.query_params.get("have", "").split(",") if ":" in part)
    channels = [_channel(shell, page, visit), alerts_channel(shell)]
    checked = time.monotonic()
    yield b"retry: 2000\n\n"
    with channels[0].watch() as first, channels[1].watch() as second:
        while not shell.admin.hub.stopping.is_set():
            changed = await sleep(BEAT, first, second)
            first.clear()
            second.clear()
            for piece in _new(channels, have):
                yield _event(piece)
            if not changed:
                yield b": keep-alive\n\n"
            if time.monotonic() - checked >= CHECK_SESSION:
                checked = time.monotonic()
                if not await shell.admin.access.still_allows(request):
                    yield b"event: gone\ndata: \n\n"
                    return


def _new(channels: list[Channel], have: dict[str, str]) -> list[Piece]:
    pieces = [piece for channel in channels for piece in channel.pieces.values()]
    new = [piece for piece in pieces if have.get(piece.name) != piece.digest]
    have |= {piece.name: piece.digest for piece in new}
    return new


def _event(piece: Piece) -> bytes:
    return b"event: piece\ndata: " + orjson.dumps([piece.name, piece.digest, str(piece.html)]) + b"\n\n"
