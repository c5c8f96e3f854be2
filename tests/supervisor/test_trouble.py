"""An unusual row, process or kernel does not stop a host."""

from __future__ import annotations

import os
from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.lifecycle.processes import identity
from tests.supervisor.conftest import SLOT, Supervise, row_of, script_command

ENDS_WITH_A_NUL = r"""
fd=$(printf %s "$SHIFTBOSS_SLOT" | sed 's/.*"words": \([0-9]*\).*/\1/')
printf 'gone\000bad' > /proc/self/fd/$fd; exit 3
"""


@pytest.mark.parametrize("details", ['{"tasks_done": "many"}', '{"tasks_done": 1e400, "n": 1e400}'])
async def test_odd_details_of_one_slot_stop_nobody(
    db: Database, supervise: Supervise, eventually: Any, details: str
) -> None:
    async with supervise({"q": 1}, script_command("exec sleep 100"), max_tasks=5) as supervisor:
        (slot,) = supervisor.slots
        await eventually(lambda: slot.process is not None)
        await db.execute("UPDATE health SET details_json = %s", [details])
        before = slot.process
        await db.health.restart_workers([SLOT])
        await eventually(lambda: slot.process not in (None, before))
        assert supervisor.running


async def test_last_words_that_postgresql_can_not_keep(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    async with supervise({"q": 1}, script_command(ENDS_WITH_A_NUL)):

        async def restarted() -> bool:
            return (await row_of(db, SLOT))["restart_count"] > 1

        await eventually(restarted)
        events = await db.events.latest(kind="slot.crashed")
        assert "gone" in events[-1]["details"]["reason"]


async def test_a_kernel_that_gives_no_pidfd(
    db: Database, supervise: Supervise, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a sandbox that forbids it, or with no file left to open: the child is watched all the same."""

    def refuse(pid: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    async with supervise({"q": 1}, script_command("exec sleep 100")) as supervisor:
        (slot,) = supervisor.slots
        first = await eventually(lambda: slot.process)
        os.kill(first.pid, 9)
        await eventually(lambda: slot.process not in (None, first))
        assert identity(first.pid) is None
        assert (await row_of(db, SLOT))["restart_count"] == 1


async def test_a_slot_that_breaks_is_tried_again_in_its_own_time(
    db: Database, supervise: Supervise, eventually: Any
) -> None:
    """Not as ever new slots, as fast as the machine can."""
    tries = 0

    def broken(queue: str, component: str, member: str) -> list[str]:
        nonlocal tries
        tries += 1
        raise RuntimeError("nobody thought of this")

    async with supervise({"q": 1}, broken, restart_delay_seconds=0.3) as supervisor:
        await eventually(lambda: tries >= 3)
        assert [slot.component for slot in supervisor.slots] == [SLOT]
        assert len(await db.health.get_all_workers()) == 1
