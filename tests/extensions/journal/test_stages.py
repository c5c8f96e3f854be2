"""Every stage returns results of the documented shape that make sense for the sample."""

from __future__ import annotations

from typing import Any

import pytest

from shiftboss.db import Database
from shiftboss.extensions.journal import commands
from shiftboss.extensions.journal.entry import Entry
from shiftboss.extensions.journal.pipeline import Pipeline

from .conftest import run, write

STEPS = {
    "raw_data_parsing", "data_normalization", "schema_inference", "multimodal_integration",
    "content_extraction", "sentiment_analysis", "theme_identification", "emotion_detection",
    "activity_recognition", "embedding_generation", "context_vectorization", "semantic_indexing",
    "cross_reference_embedding", "user_context", "temporal_context", "relationship_context",
}  # fmt: skip
MIXED: dict[str, Any] = {
    "id": "mixed",
    "user": "ada",
    "date": "2025-06-01T08:15",
    "tz": "Australia/Sydney",
    "body": "Mood: 7\nWe had a wonderful team meeting at work with Grace. #proud  I am very happy about it!",
    "voiceNote": "[00:01] um, so, you know, Grace gave me flowers after the meeting and I was delighted",
    "photo": "A bunch of yellow flowers on a desk.",
}


async def processed(db: Database, pipeline: Pipeline, record: dict[str, Any]) -> Entry:
    rows = await write(db, record)
    await run(pipeline, rows)
    return await pipeline.entry(rows[0]["id"])


async def test_every_step_has_a_result_in_the_documented_shape(db: Database, pipeline: Pipeline) -> None:
    entry = await processed(db, pipeline, MIXED)
    assert set(entry.results) == STEPS
    for name, result in entry.results.items():
        document = result.document()
        assert document["task_type"] == name
        assert isinstance(document["processed_data"], dict)
        assert 0 <= document["confidence_score"] <= 1
        assert len(result.input_hash) == 64


async def test_structuring_cleans_types_and_joins_the_parts(db: Database, pipeline: Pipeline) -> None:
    results = (await processed(db, pipeline, MIXED)).results
    normal = results["data_normalization"].processed_data
    assert normal["fields"] == {"mood": 7}
    assert normal["tags"] == ["proud"]
    assert normal["local_time"] == "2025-06-01T08:15:00+10:00"
    assert "um" not in normal["parts"][1]["text"].split()
    schema = results["schema_inference"].processed_data
    assert schema["content_type"] == "mixed"
    assert schema["schema"]["properties"]["date"] == {"type": "string", "format": "date-time"}
    whole = results["multimodal_integration"].processed_data
    assert "yellow flowers" in whole["full_text"]
    assert "yellow flowers" not in whole["text"]
    assert {"from": 1, "to": 2, "relation": "illustrates"}.items() <= whole["relationships"][-1].items()
    for segment, part in zip(whole["segments"], normal["parts"], strict=True):
        assert whole["full_text"][segment["start"] : segment["end"]] == part["text"]


async def test_assumptions_cost_confidence(db: Database, pipeline: Pipeline) -> None:
    given = {"language": "en"}
    sure = await processed(db, pipeline, MIXED | given | {"id": "sure"})
    unsure = await processed(db, pipeline, {k: v for k, v in MIXED.items() if k != "tz"} | {"id": "unsure"})
    assert sure.results["data_normalization"].confidence_score == 1
    assert unsure.results["data_normalization"].confidence_score == pytest.approx(0.7)


async def test_analysis_of_a_glad_entry(db: Database, pipeline: Pipeline) -> None:
    results = (await processed(db, pipeline, MIXED)).results
    mood = results["sentiment_analysis"].processed_data
    assert mood["overall_sentiment"]["label"] == "positive"
    assert set(mood["emotions"]) == {"joy", "sadness", "anger", "fear", "surprise"}
    assert results["emotion_detection"].processed_data["dominant_emotion"] == "joy"
    content = results["content_extraction"].processed_data
    assert "Grace" in [entity["text"] for entity in content["entities"]]
    assert content["word_count"] > 30
    assert content["reading_time_minutes"] == 1
    assert results["theme_identification"].processed_data["primary_themes"]


async def test_the_context_vector_tells_moods_and_times_apart(db: Database, pipeline: Pipeline) -> None:
    async def vector(name: str, **change: str) -> list[float]:
        record = {k: v for k, v in MIXED.items() if k not in ("voiceNote", "photo")} | {"id": name} | change
        entry = await processed(db, pipeline, record)
        return entry.results["context_vectorization"].vector or []

    glad = await vector("glad")
    later = await vector("later", date="2025-06-01T20:15")
    sad = await vector("sad", body="I cried all day. I am so sad, lonely and tired, and I miss her terribly.")
    assert len(glad) == 64
    assert dot(glad, glad) == pytest.approx(1, abs=1e-4)
    assert dot(glad, later) > dot(glad, sad) + 0.2


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


async def test_an_entry_with_only_an_image_goes_through(db: Database, pipeline: Pipeline) -> None:
    entry = await processed(db, pipeline, {"user": "ada", "date": "2025-01-01", "photo": "A red door."})
    assert entry.results["multimodal_integration"].processed_data["text"] == "A red door."
    assert set(entry.results) == STEPS


@pytest.mark.parametrize(
    "text", ["?", "🎉🎉🎉", "a" * 50_000, "日本語の日記です。今日はとても楽しかった。", "\u202e\u200b x"]
)
async def test_odd_text_goes_through(db: Database, pipeline: Pipeline, text: str) -> None:
    entry = await processed(db, pipeline, {"user": "ada", "date": "2025-01-01", "text": text})
    assert set(entry.results) == STEPS


async def test_context_looks_back_only(analysed: Database) -> None:
    first = (await commands.show(analysed, "jonas-2024-09-01"))["results"]
    last = (await commands.show(analysed, "jonas-2025-08-24"))["results"]
    assert first["user_context"]["processed_data"]["entries_before"] == 0
    assert first["user_context"]["confidence_score"] == 0
    context = last["user_context"]["processed_data"]["user_context"]
    assert context["timezone"] == "Europe/Berlin"
    assert context["language"] == "en"
    assert context["historical_patterns"]["frequent_themes"][0] == "family"
    assert last["user_context"]["confidence_score"] == pytest.approx(30 / 38, abs=0.001)
    temporal = last["temporal_context"]["processed_data"]
    assert temporal["local_time"]["season"] == "summer"
    assert temporal["similar_periods"]["last_year"]["latest"] == ["jonas-2024-09-01", "jonas-2024-09-11"]
    assert temporal["similar_periods"]["season"]["mood"] > 0.2


async def test_people_are_followed_from_entry_to_entry(analysed: Database) -> None:
    results = (await commands.show(analysed, "jonas-2025-03-08"))["results"]
    relations = results["relationship_context"]["processed_data"]
    people = {person["name"]: person for person in relations["people"]}
    assert people["Bernd"]["mentions_before"] == 1
    assert people["Bernd"]["state"] == "recurring"
    assert people["father"]["mentions_before"] > 5
    assert "jonas-2025-02-22" in [link["entry"] for link in relations["connections"]]


async def test_names_known_from_other_entries_are_found_in_any_language(analysed: Database) -> None:
    results = (await commands.show(analysed, "jonas-2025-04-19"))["results"]  # German
    names = {person["name"] for person in results["relationship_context"]["processed_data"]["people"]}
    assert {"Lotte", "Amira"} <= names
