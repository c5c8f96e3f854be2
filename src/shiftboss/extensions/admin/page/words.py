"""Format values for the pages: states, times, durations, numbers and snippets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson
from markupsafe import Markup

from shiftboss.model.codec import shown
from shiftboss.model.errors import ShiftbossError

# One colour per meaning, for the states of workers, slots, tasks, runs, circuits and vectorizers.
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
    """Return the page's name for a state of a task, run or worker."""
    return _WORDS.get(state, state).lower()


def tone(state: str) -> str:
    return _TONE.get(word(state).replace(" ", "-"), "plain")


def moment(at: datetime | float | None) -> dict[str, str] | None:
    """Return a time in ISO format for the browser, and as text."""
    if at is None:
        return None
    exact = datetime.fromtimestamp(at, UTC) if isinstance(at, int | float) else at.astimezone(UTC)
    return {"iso": exact.strftime("%Y-%m-%dT%H:%M:%SZ"), "text": exact.strftime("%Y-%m-%d %H:%M:%S UTC")}


def span(seconds: float | None) -> str:
    """Return a duration in at most two units."""
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
    """Return a duration in coarse steps, so that open pages are not updated every second."""
    if seconds < 10:
        return "under 10 s"
    return span(seconds // 10 * 10 if seconds < 600 else seconds // 60 * 60)


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def count(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 task`, `2 tasks`."""
    return f"{number(n)} {noun if n == 1 else plural or noun + 's'}"


def depth(queue: dict[str, Any]) -> str:
    """Return how many tasks wait in a queue, with a sign if it is long and not all of them were counted."""
    if not queue["more"] or not queue["queued"]:
        return number(queue["queued"])
    return f"≈ {number(queue['queued'])}" if queue["counted"] else f"{number(queue['queued'])}+"


def short(id: object, among: Iterable[object] = ()) -> str:
    """Return the start of an ID, which the command line accepts, longer if others in `among` start the same.

    The first 13 characters of a version 7 UUID are a millisecond, which many tasks share.
    """
    text = str(id)
    others, least = [other for other in map(str, among) if other != text], 18 if text[14:15] == "7" else 13
    sizes = (size for size in (13, 18, 23, 36) if size >= least)
    return next(text[:size] for size in sizes if not any(other.startswith(text[:size]) for other in others))


def snippet(text: str | None, most: int = 300) -> str:
    """Return the beginning of a text, cut at a word boundary."""
    plain = " ".join(shown(text or "").split())
    if len(plain) <= most:
        return plain
    return plain[: most + 1].rpartition(" ")[0].rstrip(",;:.–- ") + " …"


def document(value: Any) -> str:
    """Return indented JSON, truncated if it is very long."""
    text = orjson.dumps(shown(value), default=str, option=orjson.OPT_INDENT_2).decode()
    return text if len(text) < LONGEST_DOCUMENT else text[:LONGEST_DOCUMENT] + "\n…"


def line(value: Any) -> str:
    """Return JSON on one line."""
    return orjson.dumps(shown(value), default=str).decode()


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def sentences(error: ShiftbossError) -> str:
    """Return the message of an error and its hint as text for people."""
    told = (error.message, error.hint) if error.hint else (error.message,)
    return " ".join(capital(text).removesuffix(".") + "." for text in told)


def coded(text: str) -> Markup:
    """Return a text in which what is between backticks is shown as code."""
    code, parts = Markup("<code>{}</code>"), text.split("`")
    if len(parts) % 2 == 0:
        return Markup.escape(text)
    return Markup("").join(code.format(part) if n % 2 else part for n, part in enumerate(parts))


def first_line(text: str | None) -> str:
    return str(shown(text or "")).strip().partition("\n")[0]


def rest_of(text: str | None) -> str:
    return str(shown(text or "")).strip().partition("\n")[2].strip()


def details(found: dict[str, Any]) -> str:
    """Return the names and values of an event's details on one line."""
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
    "depth": depth,
    "short": short,
    "snippet": snippet,
    "document": document,
    "capital": capital,
    "coded": coded,
    "sentences": sentences,
    "first_line": first_line,
    "rest_of": rest_of,
    "details": details,
    "after": lambda text, start: text.removeprefix(start),
    "without": lambda chosen, name: {key: value for key, value in chosen.items() if key != name},
    "zip_self": lambda options: [(option, option) for option in options],
}
