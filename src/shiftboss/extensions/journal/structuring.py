"""Stage 1, data structuring: raw parsing, normalisation, schema inference and multimodal integration."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from shiftboss.extensions.ai import AI, Need
from shiftboss.extensions.ai.answers import RawDataParsing
from shiftboss.extensions.journal.entry import Entry
from shiftboss.extensions.journal.schema import content_type, infer_schema, processing_rules
from shiftboss.extensions.journal.steps import Found, Inputs, Results, Stage, Step, ask

ASSUMPTION_COST = 0.15
SPOKEN_OR_WRITTEN = ("text", "voice_transcript")


def _select_raw(entry: Entry, results: Results) -> Inputs:
    return {"parts": entry.parts}


async def parse_raw(inputs: Inputs, ai: AI) -> Found:
    """Find title, sentences, dates and named values of each part.

    The confidence is the mean of the parts, weighted by length. The text of a part is the writer's own, never
    the model's.
    """
    variables = [{"content": part["content"], "source": part["kind"]} for part in inputs["parts"]]
    asked = (ask(ai, "raw_data_parsing", RawDataParsing, Need.BASIC, each) for each in variables)
    found = await asyncio.gather(*asked)
    parts = [part | one.processed_data for part, one in zip(inputs["parts"], found, strict=True)]
    lengths = [len(part["content"]) for part in parts]
    confidence = sum(one.confidence * n for one, n in zip(found, lengths, strict=True)) / sum(lengths)
    spoken = [part for part in parts if part["kind"] in SPOKEN_OR_WRITTEN] or parts
    data = {
        "title": spoken[0]["title"],
        "language": spoken[0]["language"],
        "parts": [{key: value for key, value in part.items() if key != "source"} for part in parts],
    }
    return Found(data, confidence, found[0].provider, found[0].model)


def _select_normal(entry: Entry, results: Results) -> Inputs:
    return {
        "parsed": results["raw_data_parsing"].processed_data,
        "metadata": entry.metadata,
        "written_at": entry.written_at.isoformat(),
        "local_time": entry.local_time.isoformat(),
        "timezone": entry.timezone,
    }


async def normalise(inputs: Inputs, ai: AI) -> Found:
    """Normalise text, dates and metadata. Each assumption lowers the confidence."""
    parsed, given = inputs["parsed"], inputs["metadata"]
    assumptions = _assumptions(inputs)
    data = {
        "title": given.get("title") or clean(parsed["title"]),
        "language": given.get("language") or parsed["language"],
        "written_at": inputs["written_at"],
        "local_time": inputs["local_time"],
        "timezone": inputs["timezone"],
        "parts": [_normal_part(part) for part in parsed["parts"]],
        "tags": _unique([*given.get("tags", []), *(tag for part in parsed["parts"] for tag in part["tags"])]),
        "fields": {key: value for part in parsed["parts"] for key, value in part["fields"].items()},
        "dates": _unique(date for part in parsed["parts"] for date in part["dates"]),
        "location": given.get("location"),
        "weather": given.get("weather"),
        "extra": given.get("extra", {}),
        "assumptions": assumptions,
    }
    return Found(data, 1 - ASSUMPTION_COST * len(assumptions))


def _assumptions(inputs: Inputs) -> list[str]:
    given, detected = inputs["metadata"].get("language"), inputs["parsed"]["language"]
    found = []
    if given is None:
        found.append(f"language taken to be {detected}")
    elif detected not in ("und", given[:2]):
        found.append(f"language said to be {given}, looks like {detected}")
    if inputs["timezone"] == "UTC":
        found.append("time zone taken to be UTC")
    return found


def _normal_part(part: dict[str, Any]) -> dict[str, Any]:
    text = clean(part["text"]) or clean(part["content"])
    kept = {key: part[key] for key in ("kind", "duration_seconds") if key in part}
    return kept | {"text": text, "words": len(text.split())}


def clean(text: str) -> str:
    """Return the text with composed characters, single spaces and at most one empty line in a row."""
    composed = unicodedata.normalize("NFC", text)
    visible = "".join(ch for ch in composed if ch == "\n" or unicodedata.category(ch) not in ("Cc", "Cf"))
    lines = [re.sub(r"\s+", " ", line).strip() for line in visible.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def _select_schema(entry: Entry, results: Results) -> Inputs:
    return {"source": entry.source, "parts": results["data_normalization"].processed_data["parts"]}


async def infer(inputs: Inputs, ai: AI) -> Found:
    """Infer the JSON schema of the raw record; the confidence is the share of values with a clear type."""
    schema, clear = infer_schema(inputs["source"])
    kinds = [part["kind"] for part in inputs["parts"]]
    data = {"content_type": content_type(kinds), "rules": processing_rules(kinds), "schema": schema}
    return Found(data, clear)


def _select_parts(entry: Entry, results: Results) -> Inputs:
    normal = results["data_normalization"].processed_data
    return {"parts": normal["parts"], "language": normal["language"]}


async def integrate(inputs: Inputs, ai: AI) -> Found:
    """Combine all parts into one text: `text` has the writer's words, `full_text` also image descriptions.

    Parts are related by common words. Parts without common words lower the confidence.
    """
    parts = inputs["parts"]
    said = [part["text"] for part in parts if part["kind"] in SPOKEN_OR_WRITTEN]
    links = [
        {"from": a, "to": b, "relation": _relation(parts[a]["kind"], parts[b]["kind"]), "strength": strength}
        for a, b in combinations(range(len(parts)), 2)
        if (strength := shared_words(parts[a]["text"], parts[b]["text"])) > 0
    ]
    everything = "\n\n".join(part["text"] for part in parts)
    data = {
        "text": "\n\n".join(said) or everything,
        "full_text": everything,
        "language": inputs["language"],
        "modalities": [part["kind"] for part in parts],
        "segments": _segments(parts),
        "relationships": links,
    }
    linked = {index for link in links for index in (link["from"], link["to"])}
    return Found(data, 1.0 if len(parts) == 1 else 0.6 + 0.4 * len(linked) / len(parts))


def _segments(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    segments, start = [], 0
    for part in parts:
        end = start + len(part["text"])
        segments.append({"kind": part["kind"], "start": start, "end": end})
        start = end + 2
    return segments


def _relation(first: str, second: str) -> str:
    return "illustrates" if "image_description" in (first, second) else "continues"


def shared_words(first: str, second: str) -> float:
    """Return the share of words with at least four letters that both texts contain."""
    a, b = (set(re.findall(r"\w{4,}", text.lower())) for text in (first, second))
    return round(len(a & b) / max(1, min(len(a), len(b))), 3)


STRUCTURING = Stage(
    "data_structuring",
    (
        (Step("raw_data_parsing", _select_raw, parse_raw, version=2, paid=True),),
        (Step("data_normalization", _select_normal, normalise),),
        (
            Step("schema_inference", _select_schema, infer),
            Step("multimodal_integration", _select_parts, integrate),
        ),
    ),
)
