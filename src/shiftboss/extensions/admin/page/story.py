"""The timeline of one task: waits, attempts, steps, child tasks, events, and entries of extensions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from shiftboss.db.insights.rows import StepRow
from shiftboss.extension import contributions
from shiftboss.extensions.admin.page.events import meaning
from shiftboss.extensions.admin.page.site import Context, Story, TimelineEntry, Visit
from shiftboss.extensions.admin.page.words import line, moment, span

SHORTEST_WAIT = timedelta(milliseconds=50)  # shorter waits are not shown
WIDTH = 1000.0  # SVG units of the track on which the bars are drawn
THINNEST = 12.0
COARSE = 5.0  # seconds by which the track of an unfinished task grows, so that open pages are updated rarely
SHOWN_LOGS = 500
WORDS = {"step": "step", "sleep": "sleep", "event": "event", "child": "child task"}


def stories() -> list[Story]:
    """Return the sources of timeline entries that extensions bring."""
    return list(contributions("stories"))


async def timeline(visit: Visit, task: dict[str, Any]) -> list[Context]:
    """Return all entries of a task's timeline, oldest first, each with the position of its bar."""
    id, life = task["id"], visit.admin.db.insights.life
    found = [*_own(task), *map(_step, await life.steps(id)), *map(_event, await life.events(id))]
    for story in stories():
        found += await story.entries(visit, id)
    found.sort(key=lambda entry: entry.at)
    return _placed(found, task)


def _own(task: dict[str, Any]) -> Iterator[TimelineEntry]:
    """Return creation, attempts, the waits between them, and the end."""
    yield TimelineEntry(
        key="created", at=task["created_at"], word="created", template="story_created.html", one=task
    )
    since = _ready(task)
    for one in task["attempts_made"]:
        if one["started_at"] - since > SHORTEST_WAIT:
            yield _wait(since, one["started_at"])
        yield _attempt(one)
        ended = one["ended_at"]
        # While a task is suspended, its sleeps, events and child tasks have their own entries.
        since = datetime.max.replace(tzinfo=UTC) if one["outcome"] == "suspended" else ended or since
    ended = task["generation_processed_at"]
    if ended and task["status"] not in ("Queued", "In Progress"):
        yield TimelineEntry(
            key="ended", at=ended, word="ended", state=task["status"], template="story_ended.html", one=task
        )


def _ready(task: dict[str, Any]) -> datetime:
    """Return when the task first became ready to start.

    A `run_at` after the first attempt belongs to a resumed task and is ignored.
    """
    made, due = task["created_at"], task["run_at"]
    began = min((one["started_at"] for one in task["attempts_made"]), default=due)
    ready: datetime = max(made, due) if due and due <= began else made
    return ready


def _wait(since: datetime, until: datetime) -> TimelineEntry:
    return TimelineEntry(
        key=f"wait {since}", at=since, until=until, word="waiting", state="pending",
        template="story_wait.html",
    )  # fmt: skip


def _attempt(one: dict[str, Any]) -> TimelineEntry:
    return TimelineEntry(
        key=f"attempt {one['lease']} {one['attempt']}", at=one["started_at"], until=one["ended_at"],
        word="attempt", state=one["outcome"], template="story_attempt.html", one=one,
    )  # fmt: skip


def _step(one: StepRow) -> TimelineEntry:
    word = "question" if one["question"] is not None else WORDS[one["kind"]]
    return TimelineEntry(
        key=f"{one['kind']} {one['name']} {one['ordinal']}", at=one["started_at"], until=one["ended_at"],
        word=word, state=one["state"], template="story_step.html", one=one,
    )  # fmt: skip


def _event(one: dict[str, Any]) -> TimelineEntry:
    return TimelineEntry(
        key=f"event {one['id']}", at=one["at"], word=one["kind"], state=meaning(one["kind"]),
        template="story_event.html", one=one,
    )  # fmt: skip


def _placed(entries: Sequence[TimelineEntry], task: dict[str, Any]) -> list[Context]:
    start = task["created_at"]
    live = task["status"] in ("Queued", "In Progress")
    last = max([*(entry.until or entry.at for entry in entries), start])
    if live:
        age = (datetime.now(UTC) - start).total_seconds()
        last = max(last, start + timedelta(seconds=age // COARSE * COARSE))
    whole = max((last - start).total_seconds(), 0.001)
    return [_place(entry, start, whole, last if live else entry.at) for entry in entries]


def _place(entry: TimelineEntry, start: datetime, whole: float, now: datetime) -> Context:
    """Return an entry with its bar. The bar of an unfinished entry extends to the end of the track."""
    goes_on = entry.until is None and entry.state in ("waiting", "running")
    until = entry.until or (now if goes_on else entry.at)
    at = min(max((entry.at - start).total_seconds() / whole, 0.0), 1.0) * WIDTH
    width = max((until - entry.at).total_seconds() / whole * WIDTH, THINNEST)
    at = min(at, WIDTH - THINNEST)
    return {
        "entry": entry,
        "offset": f"+{span((entry.at - start).total_seconds())}" if entry.at > start else "0 s",
        "moment": (moment(entry.at) or {})["text"],
        "x": f"{at:.1f}",
        "width": f"{min(width, WIDTH - at):.1f}",
        "took": (entry.until - entry.at).total_seconds() if entry.until else None,
    }


async def emitted(visit: Visit, id: UUID) -> Context | None:
    """Return what the task streamed, or None: as text if all parts are text, else one JSON value per line."""
    rows = await visit.admin.db.insights.life.parts(id)
    if not rows:
        return None
    gone = {seq for row in rows if row["restart"] for seq in row["part"]["discard"]}
    parts = [row for row in rows if not row["restart"] and row["seq"] not in gone]
    return {
        "count": rows[-1]["seq"],
        "shown": len(parts),
        "cut": rows[0]["seq"] > 1,
        "restarts": sum(row["restart"] for row in rows),
        "text": "" if visit.hides else _text([row["part"] for row in parts]),
    }


async def logged(visit: Visit, id: UUID) -> list[Context]:
    """Return the latest log lines of the task, oldest first."""
    rows = await visit.admin.db.insights.life.logs(id, SHOWN_LOGS)
    return [row | {"clock": row["at"].astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]} for row in rows]


def _text(parts: list[Any]) -> str:
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    return "\n".join(map(line, parts))
