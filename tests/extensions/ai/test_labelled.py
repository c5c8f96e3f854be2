"""The local provider against texts labelled by hand. Only the split `test` counts: none was tuned on it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from shiftboss.extensions.ai.providers.local.moods import analyse_sentiment, detect_emotions
from shiftboss.extensions.ai.providers.local.text import Text
from shiftboss.extensions.ai.providers.local.topics import identify_themes

# measured: sentiment 0.66, emotion 0.67, theme 0.64 (0.72 among the first three); see local-ai.md
CHANCE = {"sentiment": 1 / 3, "emotion": 1 / 6, "theme": 1 / 20, "theme among three": 3 / 20}
MARGIN = {"sentiment": 0.25, "emotion": 0.40, "theme": 0.50, "theme among three": 0.50}


def judge(row: dict[str, str]) -> dict[str, tuple[bool, float]]:
    """For each task: was it right, and how sure was it?"""
    text = Text(row["text"])
    mood, feeling, themes = analyse_sentiment(text), detect_emotions(text), identify_themes(text)
    found = [theme["theme"] for theme in themes["processed_data"]["primary_themes"]]
    label = mood["processed_data"]["overall_sentiment"]["label"]
    return {
        "sentiment": (label == row["sentiment"], mood["confidence_score"]),
        "emotion": (
            feeling["processed_data"]["dominant_emotion"] == row["emotion"],
            feeling["confidence_score"],
        ),
        "theme": (found[0] == row["theme"], themes["confidence_score"]),
        "theme among three": (row["theme"] in found, themes["confidence_score"]),
    }


@pytest.fixture(scope="module")
def judged() -> list[dict[str, Any]]:
    lines = (Path(__file__).parent / "labelled.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) >= 60
    return [judge(row) for row in rows if row["split"] == "test"]


@pytest.mark.parametrize("task", sorted(CHANCE))
def test_better_than_chance_by_the_stated_margin(task: str, judged: list[dict[str, Any]]) -> None:
    accuracy = fmean(verdicts[task][0] for verdicts in judged)
    assert accuracy >= CHANCE[task] + MARGIN[task], f"{task}: {accuracy:.2f}"


@pytest.mark.parametrize("task", ["emotion", "sentiment", "theme"])
def test_confidence_means_something(task: str, judged: list[dict[str, Any]]) -> None:
    """The surer half is right more often than the other."""
    ranked = sorted((verdicts[task] for verdicts in judged), key=lambda verdict: -verdict[1])
    half = len(ranked) // 2
    sure, unsure = fmean(right for right, _ in ranked[:half]), fmean(right for right, _ in ranked[half:])
    assert sure > unsure + 0.1, f"{task}: {sure:.2f} against {unsure:.2f}"
