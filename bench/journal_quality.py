"""How well the local provider reads journal texts: labels against what it finds, in four languages.

    python bench/journal_quality.py [--misses tuned|check|all] [--no-search] [--fresh]

Prints a Markdown table of bench/journal_labels.jsonl (see journal_labels.md). While the analysis is tuned,
look at the misses of the tuned texts only. The column `check` is bench/journal_check.jsonl. With --fresh come
`fresh`, bench/journal_check2.jsonl, and `voices`, bench/journal_check3.jsonl: nothing is fitted to any of
them, and the last two are measured only when tuning has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from shiftboss.extensions.ai.providers.local.extraction import find_entities, is_common_place, plain_name
from shiftboss.extensions.ai.providers.local.moods import analyse_sentiment, detect_emotions
from shiftboss.extensions.ai.providers.local.terms import search_terms
from shiftboss.extensions.ai.providers.local.text import Text
from shiftboss.extensions.ai.providers.local.topics import identify_themes
from shiftboss.extensions.journal import commands, vectors
from shiftboss.extensions.journal.parsing import parse
from shiftboss.extensions.journal.store import Journal

HERE = Path(__file__).parent
TARGETS = {"people": 0.85, "places": 0.8, "sentiment": 0.85, "emotion": 0.75, "theme": 0.75, "search": 0.9}
Row = dict[str, Any]
Score = Callable[[list[Row], str], float]


SETS = {
    "labels": "journal_labels.jsonl",
    "check": "journal_check.jsonl",
    "fresh": "journal_check2.jsonl",
    "voices": "journal_check3.jsonl",
}


def read(sets: Iterable[str]) -> list[Row]:
    return [
        json.loads(line) | {"set": name}
        for name in sets
        for line in (HERE / SETS[name]).read_text(encoding="utf-8").splitlines()
    ]


def judge(row: Row) -> None:
    """What is found in the text, under the names of the labels."""
    text = Text(row["text"])
    entities = find_entities(text)
    people = {plain_name(e["text"]) for e in entities if e["type"] == "PERSON"}
    places = {e["text"] for e in entities if e["type"] == "LOCATION" and not is_common_place(e["text"])}
    themes = identify_themes(text)["processed_data"]["primary_themes"]
    row["found"] = {
        "people": people,
        "places": places,
        "sentiment": analyse_sentiment(text)["processed_data"]["overall_sentiment"]["label"],
        "emotion": detect_emotions(text)["processed_data"]["dominant_emotion"],
        "themes": [theme["theme"] for theme in themes],
        "language": text.language[0],
    }


def counts(row: Row, name: str) -> tuple[int, int, int]:
    """Right, found in all, labelled in all."""
    found = {item.casefold() for item in row["found"][name]}
    wanted = {item.casefold() for item in row[name]}
    return len(found & wanted), len(found), len(wanted)


def f1(rows: list[Row], name: str) -> float:
    right, found, wanted = (sum(part) for part in zip(*(counts(row, name) for row in rows), strict=True))
    return 2 * right / max(1, found + wanted)


def correct(row: Row, name: str) -> bool:
    match name:
        case "people" | "places":
            right, found, wanted = counts(row, name)
            return right == found == wanted
        case "theme":
            return bool(row["found"]["themes"]) and row["found"]["themes"][0] in row["themes"]
        case "search":
            return row["id"] in row["found"]["search"][:3]
        case _:
            return bool(row["found"][name] == row[name])


def share(rows: list[Row], name: str) -> float:
    asked = [row for row in rows if name != "search" or row["query"]]
    return sum(correct(row, name) for row in asked) / max(1, len(asked))


MEASURES: dict[str, tuple[str, Score]] = {
    "people": ("people, F1", f1),
    "places": ("places, F1", f1),
    "sentiment": ("sentiment, share right", share),
    "emotion": ("emotion, share right", share),
    "theme": ("theme told first is a labelled one", share),
    "themes": ("all themes, F1", f1),
    "language": ("language, share right", share),
    "search": ("search, right text among the first three", share),
}


def table(rows: list[Row], measures: Iterable[str]) -> str:
    checks = {name: [row for row in rows if row["set"] == name] for name in SETS if name != "labels"}
    rows = [row for row in rows if row["set"] == "labels"]
    columns: dict[str, list[Row]] = {"all": rows}
    columns["tuned"] = [row for row in rows if not row["held_out"]]
    columns["held out"] = [row for row in rows if row["held_out"]]
    columns |= {name: part for name, part in checks.items() if part}
    languages: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        languages[row["language"]].append(row)
    columns |= languages
    lines = ["| | target | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    lines.append("| texts | | " + " | ".join(str(len(part)) for part in columns.values()) + " |")
    for name in measures:
        title, score = MEASURES[name]
        values = " | ".join(f"{score(part, name):.2f}" for part in columns.values())
        lines.append(f"| {title} | {TARGETS.get(name, '')} | {values} |")
    return "\n".join(lines)


def misses(rows: list[Row], measures: Iterable[str]) -> str:
    lines = []
    for name in measures:
        wrong = [
            r for r in rows if (name != "search" or r["query"]) and name in TARGETS and not correct(r, name)
        ]
        for row in wrong:
            key = "themes" if name == "theme" else name
            wanted = row["query"] if name == "search" else row[key]
            told = row["found"][key][:3] if name == "search" else row["found"][key]
            lines.append(f"{name}\t{row['id']}\t{_flat(wanted)}\t{_flat(told)}\t{row['text']}")
    return "\n".join(lines)


def _flat(value: Any) -> str:
    return (
        value
        if isinstance(value, str)
        else ", ".join(sorted(value) if isinstance(value, set) else value) or "–"
    )


async def search(rows: list[Row]) -> None:
    """Every query against all texts as one diary, the way `shiftboss journal search` does it."""
    with tempfile.TemporaryDirectory() as folder:
        async with await Database.open(data_dir=Path(folder)) as db, await AI.open() as ai:
            await _fill(db, ai, rows)
            for row in filter(lambda row: row["query"], rows):
                hits = await commands.search(db, ai, row["query"], limit=3)
                row["found"]["search"] = [hit["external_id"] for hit in hits]


async def _fill(db: Database, ai: AI, rows: list[Row]) -> None:
    first = datetime(2025, 1, 1, tzinfo=UTC)
    dates = (str(first + timedelta(days=day)) for day in range(len(rows)))
    records = [
        parse({"user": "all", "id": row["id"], "date": day, "text": row["text"]}).row()
        for row, day in zip(rows, dates, strict=True)
    ]
    texts = {row["id"]: row["text"] for row in rows}
    results = []
    for made in await db.family(Journal).upsert_entries(records):
        text = texts[made["external_id"]]
        inputs = {"text": text, "words": [], "terms": search_terms(text)}
        found = await vectors.embed(inputs, ai)
        results.append(
            {
                "entry_id": str(made["id"]),
                "revision": made["revision"],
                "task_type": "embedding_generation",
                "input_hash": "x",
                "processed_data": found.processed_data,
                "confidence_score": found.confidence,
                "provider": found.provider,
                "model": found.model,
                "vector": found.vector,
            }
        )
    await db.family(Journal).store_results(results)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--misses", choices=("tuned", "check", "all"))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--no-search", action="store_true")
    options = parser.parse_args()
    rows = read(SETS if options.fresh else ("labels", "check"))
    for row in rows:
        judge(row)
    measures = [name for name in MEASURES if name != "search" or not options.no_search]
    if not options.no_search:
        asyncio.run(search(rows))
    print(table(rows, measures))
    if options.misses:
        print(misses([row for row in rows if _shown(row, options.misses)], measures))


def _shown(row: Row, which: str) -> bool:
    return which in ("all", row["set"]) or (which == "tuned" and not row["held_out"])


if __name__ == "__main__":
    main()
