"""Stage 2, content analysis: extraction, sentiment, themes, emotions, activities, asked of the AI router.

Confidence is the provider's own. Mood is read from what the writer said; entities and key phrases also from
what images show.
"""

from __future__ import annotations

from functools import partial

from shiftboss.ai import AI, Need, Request
from shiftboss.ai.answers import (
    ActivityRecognition,
    Analysis,
    ContentExtraction,
    EmotionDetection,
    SentimentAnalysis,
    ThemeIdentification,
)
from shiftboss.journal.entry import Entry
from shiftboss.journal.steps import Found, Inputs, Results, Stage, Step, ask


def _select(entry: Entry, results: Results, *, text: str) -> Inputs:
    whole = results["multimodal_integration"].processed_data
    return {"text": whole[text], "language": whole["language"]}


async def _analyse(inputs: Inputs, ai: AI, *, name: str, schema: type[Analysis], need: Need) -> Found:
    return await ask(ai, Request(name, inputs["text"], schema, need, {"language": inputs["language"]}))


def _step(name: str, schema: type[Analysis], need: Need, text: str = "text") -> Step:
    return Step(name, partial(_select, text=text), partial(_analyse, name=name, schema=schema, need=need))


ANALYSIS = Stage(
    "content_analysis",
    (
        (
            _step("content_extraction", ContentExtraction, Need.STANDARD, "full_text"),
            _step("sentiment_analysis", SentimentAnalysis, Need.STANDARD),
            _step("theme_identification", ThemeIdentification, Need.ADVANCED, "full_text"),
            _step("emotion_detection", EmotionDetection, Need.STANDARD),
            _step("activity_recognition", ActivityRecognition, Need.BASIC),
        ),
    ),
)
