"""Renders the journal: rich text on a terminal, plain lines on a pipe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
EXTREME = 0.6  # moods beyond have the lowest or the highest bar
HIDDEN = ("embedding_generation", "schema_inference")  # much data, little to read
SIGNS = {"pattern": "◆", "trend": "↗", "anomaly": "!", "relationship": "♥", "recommendation": "→"}


def sparkline(moods: Iterable[float | None]) -> str:
    """Return one bar per mood, and a space for a missing mood."""
    return "".join(" " if mood is None else BARS[_height(mood)] for mood in moods)


def _height(mood: float) -> int:
    share = (max(-EXTREME, min(EXTREME, mood)) + EXTREME) / (2 * EXTREME)
    return min(len(BARS) - 1, int(share * len(BARS)))


def colour(mood: float | None) -> str:
    if mood is None:
        return "dim"
    return "green" if mood > 0.15 else "red" if mood < -0.15 else "yellow"


def coloured_sparkline(moods: Sequence[float | None]) -> Text:
    return Text.assemble(*((sparkline([mood]), colour(mood)) for mood in moods))


def show_hits(console: Console, hits: Sequence[Mapping[str, Any]]) -> None:
    if not console.is_terminal:
        for hit in hits:
            _plain(
                console, f"{hit['score']:.3f}\t{hit['user']}\t{hit['external_id']}\t{_line(hit['excerpt'])}"
            )
        return
    table = Table(box=None, header_style="dim")
    for name in ("score", "entry", "written", "text"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for hit in hits:
        score = f"[bold]{hit['score']:.3f}[/]"
        table.add_row(score, f"[cyan]{hit['external_id']}[/]", hit["written_at"][:10], _line(hit["excerpt"]))
    console.print(table if hits else "nothing found")


def show_entry(console: Console, entry: Mapping[str, Any]) -> None:
    state = "processed" if entry["processed"] else "not processed yet"
    title = f"{entry['external_id']} · {entry['user']} · {entry['written_at'][:16]} · {state}"
    body = "\n\n".join(_part(part) for part in entry["parts"])
    if console.is_terminal:
        console.print(Panel(Text(body), title=title, title_align="left", border_style="cyan"))
    else:
        _plain(console, f"{title}\n\n{body}\n")
    for name, result in entry["results"].items():
        if name not in HIDDEN:
            sure = (f"  {result['confidence_score']:.2f}", "dim")
            console.print(Text.assemble((name, "bold"), sure), soft_wrap=True)
            for key, value in result["processed_data"].items():
                console.print(Text(f"    {key}: {_short(value)}"), soft_wrap=not console.is_terminal)


def _part(part: Mapping[str, Any]) -> str:
    prefix = {"voice_transcript": "(voice) ", "image_description": "(image) "}.get(part["kind"], "")
    return f"{prefix}{part['content']}"


def _short(value: Any, most: int = 150) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(console: Console, line: str) -> None:
    """Print a line unchanged; the console would replace its tabs with spaces."""
    print(line, file=console.file)


def _line(text: str) -> str:
    return " ".join((text or "").split())


def show_insights(console: Console, found: Mapping[str, Any], *, most: int | None = None) -> None:
    """Show mood over time, people, places and insights, highest confidence first."""
    moods = [month["mood"] for month in found["mood"]]
    span = f"{found['mood'][0]['month']} – {found['mood'][-1]['month']}" if moods else "nothing analysed yet"
    console.print(
        Text.assemble((found["user"], "bold"), "  mood ", coloured_sparkline(moods), (f"  {span}", "dim"))
    )
    for kind, title in (("person", "people"), ("place", "places"), ("concept", "themes")):
        names = [entity for entity in found["entities"] if entity["kind"] == kind][:6]
        if names:
            shown = [(f"{entity['name']} {entity['mentions']}", colour(entity["mood"])) for entity in names]
            console.print(Text.assemble((f"  {title}: ", "dim"), *_commas(shown)))
    for told in varied(found["insights"])[:most] if most else found["insights"]:
        sign = SIGNS.get(told["kind"], "·")
        line = Text.assemble(f"  {sign} ", told["text"], (f"  {told['confidence']:.2f}", "dim"))
        console.print(line, soft_wrap=not console.is_terminal)


def varied(insights: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the insights with the best of each kind first, then the second of each kind, and so on."""
    seen: Counter[str] = Counter()
    ranked = []
    for told in insights:
        ranked.append((seen[told["kind"]], told))
        seen[told["kind"]] += 1
    return [told for _, told in sorted(ranked, key=lambda item: item[0])]


def _commas(items: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [piece for item in items for piece in ((", ", ""), item)][1:]


def show_status(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = ("user_id", "entries", "processed", "results", "people", "places", "concepts", "insights")
    if not console.is_terminal:
        _plain(console, "\t".join(columns))
        for row in rows:
            _plain(console, "\t".join(str(row[name]) for name in columns))
        return
    table = Table(box=None, header_style="dim")
    for name in columns:
        table.add_column(name.removesuffix("_id"), justify="left" if name == "user_id" else "right")
    for row in rows:
        table.add_row(*(str(row[name]) for name in columns))
    console.print(table if rows else "the journal is empty; run `shiftboss journal import FILE`")
