"""Handlers that log, importable by child processes."""

from __future__ import annotations

import logging
import os
import threading

from shiftboss import SyncContext

log = logging.getLogger("shop.chatty")


def talk(ctx: SyncContext) -> None:
    log.warning("before %s", "the step")
    ctx.step("think", lambda: log.warning("in the step"))
    thread = threading.Thread(target=log.warning, args=("from a thread of its own",))
    thread.start()
    thread.join()
    try:
        raise ValueError("no stock")
    except ValueError:
        log.exception("it went wrong")


def flood(ctx: SyncContext, lines: int) -> int:
    for n in range(lines):
        log.warning("line %d", n)
    return lines


def die(ctx: SyncContext) -> None:
    log.warning("one")
    log.warning("last words")
    os._exit(9)
