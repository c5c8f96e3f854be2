"""Small pieces of HTML. Whatever is put into a template is escaped; only `Markup` passes as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import orjson
from markupsafe import Markup

NONE = Markup('<span class="dim">–</span>')

# One colour per meaning, whoever has the state: worker, slot, task, run, circuit, vectorizer.
TONES = {
    "good": (
        "healthy",
        "active",
        "Complete",
        "finished",
        "closed",
        "idle",
        "HEALTHY",
        "completed",
        "done",
        "live",
        "set up",
    ),
    "busy": ("In Progress", "running", "starting", "working", "updating", "half-open"),
    "warn": ("paused", "stopping", "draining", "deferred", "STALE_HEARTBEAT", "STUCK_TASK", "lost"),
    "bad": ("crashed", "failed", "Failed", "open", "NO_HEARTBEAT", "critical", "source dropped", "refused"),
}
_TONE = {word: tone for tone, words in TONES.items() for word in words}
_WORDS = {
    "HEALTHY": "healthy",
    "STALE_HEARTBEAT": "silent",
    "NO_HEARTBEAT": "never beat",
    "STUCK_TASK": "stuck task",
}


def html(template: str, *args: Any, **named: Any) -> Markup:
    """The template with the arguments in it, escaped."""
    return Markup(template).format(*args, **named)  # noqa: S704 -- templates are literals of ours


def join(parts: Iterable[Any]) -> Markup:
    return Markup("").join(parts)


def badge(state: str | None) -> Markup:
    """A state as a word with a colour; never by colour alone."""
    if not state:
        return NONE
    return html('<span class="badge {}">{}</span>', tone_of(state), _WORDS.get(state, state).lower())


def tone_of(state: str) -> str:
    return _TONE.get(state, "plain")


def when(moment: datetime | float | None) -> Markup:
    """A time that the browser shows relative to now, the exact one on hover."""
    if moment is None:
        return NONE
    at = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else moment.astimezone(UTC)
    exact = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return html('<time datetime="{}" title="{}">{}</time>', stamp, exact, exact)


def span(seconds: float | None) -> str:
    """A length of time in the two words that matter."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit, smaller, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = int(seconds % size // smaller)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{seconds:.0f} s"


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def link(to: str, text: Any, *parts: object) -> Markup:
    """`link("/tasks/{}", "label", id)`: parts of the address are quoted."""
    return html('<a href="{}">{}</a>', to.format(*(quote(str(part), safe="") for part in parts)), text)


def short(id: object) -> str:
    """The last part of a UUID: the first is a time and the same for neighbours."""
    return str(id)[-8:]


def bar(percent: float | None, label: str) -> Markup:
    shown = int(percent or 0)
    return html(
        '<span class="bar" role="progressbar" aria-label="{}" aria-valuenow="{}" aria-valuemin="0"'
        ' aria-valuemax="100"><i style="width:{}%"></i></span> <span class="num">{} %</span>',
        label,
        shown,
        shown,
        shown,
    )


def button(
    label: str, act: str, arg: object = "", *, confirm: str | None = None, may: bool = True, tone: str = ""
) -> Markup:
    """Asks the server for an action. Who may not act is shown none; the server asks again in any case."""
    if not may:
        return Markup("")
    asked = html(' data-confirm="{}"', confirm) if confirm else ""
    return html(
        '<button type="button" class="btn {}" data-act="{}" data-arg="{}"{}>{}</button>',
        tone,
        act,
        arg,
        asked,
        label,
    )


def acts(*buttons: Any) -> Markup:
    """The actions of one row or card; nothing if there are none."""
    shown = join(filter(None, buttons))
    return html('<span class="acts">{}</span>', shown) if shown else shown


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str, keys: Sequence[object] = ()
) -> Markup:
    """Heads that begin with `#` are of figures and stand to the right. No actions, no column."""
    rows = list(rows)
    shown = [n for n, head in enumerate(heads) if "Action" not in head or any(row[n] for row in rows)]
    heads, rows = [heads[n] for n in shown], [[_cell(heads[n], row[n]) for n in shown] for row in rows]
    right = [head.startswith("#") for head in heads]
    top = join(
        html('<th scope="col"{}>{}</th>', _num(r), head.lstrip("#"))
        for head, r in zip(heads, right, strict=True)
    )
    body = []
    for n, row in enumerate(rows):
        key = html(' data-key="{}"', keys[n]) if keys else ""
        cells = zip(row, right, strict=True)
        body.append(
            html(
                "<tr{}>{}</tr>",
                key,
                join(html("<td{}>{}</td>", _num(r), cell) for cell, r in cells),
            )
        )
    return html(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table>'
        '<caption class="unseen">{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>",
        caption,
        caption,
        top,
        join(body),
    )


def _num(right: bool) -> Markup:
    return Markup(' class="num"') if right else Markup("")


def _cell(head: str, cell: Any) -> Any:
    if cell is None or cell == "":
        return "" if "Action" in head else NONE
    return cell


def empty(title: str, *steps: Any) -> Markup:
    """Nothing here yet, and what to do about it."""
    return html(
        '<div class="empty"><p><b>{}</b></p>{}</div>', title, join(html("<p>{}</p>", step) for step in steps)
    )


def code(text: str) -> Markup:
    return html("<code>{}</code>", text)


def card(title: str, body: Any, *, side: Any = "", wide: bool = False) -> Markup:
    return html(
        '<section class="card{}"><header><h2>{}</h2><div class="side">{}</div></header>{}</section>',
        " wide" if wide else "",
        title,
        side,
        body,
    )


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """What is known; what is not is left out."""
    known = ((name, value) for name, value in pairs if value not in (None, "", NONE))
    return html(
        '<dl class="facts">{}</dl>',
        join(
            html('<div data-key="{}"><dt>{}</dt><dd>{}</dd></div>', name, name, value)
            for name, value in known
        ),
    )


def trouble(error: str) -> Markup:
    """What went wrong, in its first line; the rest for those who want it."""
    first, _, rest = error.strip().partition("\n")
    shown = html('<p class="error">{}</p>', first)
    return shown + fold("Traceback", html('<pre tabindex="0">{}</pre>', rest.strip())) if rest else shown


def fold(title: Any, body: Any) -> Markup:
    return html("<details><summary>{}</summary>{}</details>", title, body)


def document(value: Any) -> Markup:
    """JSON to read."""
    text = orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()
    return html('<pre tabindex="0">{}</pre>', text if len(text) < 20_000 else text[:20_000] + "\n…")
