"""Stage 2, content analysis: extraction, sentiment, themes, emotions and activities, by the AI engine.

The confidence is the provider's own. Mood is based on the writer's words only; entities and key phrases also
on image descriptions.
"""

from __future__ import annotations

from functools import partial

from shiftboss.extensions.ai import AI, Need
from shiftboss.extensions.ai.answers import (
    ActivityRecognition,
    Analysis,
    ContentExtraction,
    EmotionDetection,
    SentimentAnalysis,
    ThemeIdentification,
)
from shiftboss.extensions.journal.entry import Entry
from shiftboss.extensions.journal.steps import Found, Inputs, Results, Stage, Step, ask


def _select(entry: Entry, results: Results, *, text: str) -> Inputs:
    whole = results["multimodal_integration"].processed_data
    return {"text": whole[text], "language": whole["language"]}


async def _analyse(inputs: Inputs, ai: AI, *, name: str, schema: type[Analysis], need: Need) -> Found:
    variables = {"content": inputs["text"], "language": inputs["language"]}
    return await ask(ai, name, schema, need, variables)


def _step(name: str, schema: type[Analysis], need: Need, text: str = "text") -> Step:
    analyse = partial(_analyse, name=name, schema=schema, need=need)
    return Step(name, partial(_select, text=text), analyse, paid=True)


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
