"""How values read on every page: one word per state, lengths of time, figures, snippets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from shiftboss.model.codec import shown

# One colour per meaning, whatever has the state: worker, slot, task, run, circuit, vectorizer.
_TONES = {
    "good": "healthy active complete closed idle live done ready ok",
    "busy": "running starting working updating half-open",
    "warn": "paused stopping draining deferred silent stuck lost cancelling suspended interrupted",
    "bad": "crashed failed open critical refused never-seen source-dropped timeout error malformed declined"
    " unavailable truncated spent",
}
_TONE = {word: tone for tone, words in _TONES.items() for word in words.split()}
_WORDS = {
    "Queued": "waiting",
    "pending": "waiting",
    "In Progress": "running",
    "Complete": "complete",
    "completed": "complete",
    "finished": "complete",
    "Failed": "failed",
    "Cancelled": "cancelled",
    "HEALTHY": "healthy",
    "STALE_HEARTBEAT": "silent",
    "NO_HEARTBEAT": "never seen",
    "STUCK_TASK": "stuck",
    "terminated": "gone",
}
_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
LONGEST_DOCUMENT = 20_000


def word(state: str) -> str:
    """The page's name for a state, the same for tasks, runs and workers."""
    return _WORDS.get(state, state).lower()


def tone(state: str) -> str:
    return _TONE.get(word(state).replace(" ", "-"), "plain")


def moment(at: datetime | float | None) -> dict[str, str] | None:
    """A time as ISO for the browser, and as people write it."""
    if at is None:
        return None
    exact = datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else at.astimezone(UTC)
    return {"iso": exact.strftime("%Y-%m-%dT%H:%M:%SZ"), "text": exact.strftime("%Y-%m-%d %H:%M:%S UTC")}


def span(seconds: float | None) -> str:
    """A length of time in at most two units."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit, smaller, part in _UNITS:
        if seconds >= size:
            rest = int(seconds % size // smaller)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{seconds:.0f} s"


def age(seconds: float) -> str:
    """A length of time in coarse steps, so that an open page is not sent each second of it."""
    if seconds < 10:
        return "under 10 s"
    return span(seconds // 10 * 10 if seconds < 600 else seconds // 60 * 60)


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def count(n: int, noun: str, plural: str | None = None) -> str:
    """`count(1, "task")` is "1 task", `count(2, "task")` "2 tasks"."""
    return f"{number(n)} {noun if n == 1 else plural or noun + 's'}"


def short(id: object) -> str:
    """The start of an id, which the command line takes for the whole."""
    return str(id)[:13]


def snippet(text: str | None, most: int = 300) -> str:
    """The beginning of a text, ended at a word."""
    plain = " ".join(shown(text or "").split())
    if len(plain) <= most:
        return plain
    return plain[: most + 1].rpartition(" ")[0].rstrip(",;:.–- ") + " …"


def document(value: Any) -> str:
    """JSON to read."""
    text = orjson.dumps(shown(value), default=str, option=orjson.OPT_INDENT_2).decode()
    return text if len(text) < LONGEST_DOCUMENT else text[:LONGEST_DOCUMENT] + "\n…"


def line(value: Any) -> str:
    """JSON on one line."""
    return orjson.dumps(shown(value), default=str).decode()


def first_line(text: str | None) -> str:
    return str(shown(text or "")).strip().partition("\n")[0]


def rest_of(text: str | None) -> str:
    return str(shown(text or "")).strip().partition("\n")[2].strip()


def details(found: dict[str, Any]) -> str:
    """Names and values of an event."""
    known = {name: value for name, value in found.items() if value is not None and name != "run_id"}
    return snippet(" · ".join(f"{name} {_plain(value)}" for name, value in known.items()), 400)


def _plain(value: Any) -> str:
    return first_line(value) if isinstance(value, str) else line(value)


FILTERS = {
    "word": word,
    "tone": tone,
    "span": span,
    "age": age,
    "number": number,
    "short": short,
    "snippet": snippet,
    "document": document,
    "first_line": first_line,
    "rest_of": rest_of,
    "details": details,
    "after": lambda text, start: text.removeprefix(start),
    "without": lambda chosen, name: {key: value for key, value in chosen.items() if key != name},
    "zip_self": lambda options: [(option, option) for option in options],
}
