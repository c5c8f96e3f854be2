"""Schemas of the analyses that providers return, one per task type.

Validators receive the analysed text as `info.context["content"]`. They replace values that can be computed,
whatever the model returned, and remove quotations, phrases and names that are not in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.json_schema import SkipJsonSchema

if TYPE_CHECKING:
    from shiftboss.extensions.ai.providers.local.text import Text

NEUTRAL_BAND = 0.08  # scores closer to 0 are neutral
SHARE_TOLERANCE = 0.05  # shares whose sum is closer to 1 are not normalised

SAME_STEM = 0.55  # of the letters of the longer word, at least 4, that two forms of a word start with
CERTAIN = 0.7  # names that the local extraction is less sure of may be ordinary words
ENTITIES = ("PERSON", "LOCATION", "ORGANIZATION", "EVENT", "DATE", "CONCEPT", "ACTIVITY")
SOURCES = ("text", "voice_transcript", "image_description")
LONGEST_TITLE = 100
SURE_LANGUAGE, SURE_WORDS = 0.9, 12

Unit = Annotated[float, Field(ge=0, le=1)]
Signed = Annotated[float, Field(ge=-1, le=1)]


class Shape(BaseModel):
    model_config = ConfigDict(extra="ignore")


def given_text(info: ValidationInfo) -> Text | None:
    """Return the analysed text, or None if the context has none."""
    from shiftboss.extensions.ai.providers.local.text import Text

    content = (info.context or {}).get("content")
    return Text(content) if isinstance(content, str) else None


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def quoted(piece: str, text: Text | None) -> bool:
    """Whether the piece occurs in the text word for word, ignoring case, spaces and punctuation."""
    return text is None or " ".join(words_of(piece)) in " ".join(words_of(text.raw))


def occurs(phrase: str, text: Text) -> bool:
    """Whether every word of the phrase is in the text, perhaps in another form."""
    written = {_plain(word) for word in words_of(text.raw)}
    return all(
        word in written or any(_same_stem(word, other) for other in written)
        for word in map(_plain, words_of(phrase))
    )


def _plain(word: str) -> str:
    return "".join(ch for ch in unicodedata.normalize("NFD", word) if not unicodedata.combining(ch))


def _same_stem(word: str, other: str) -> bool:
    stem = max(4, ceil(SAME_STEM * max(len(word), len(other))))
    return len(word) >= stem and word[:stem] == other[:stem]


def invents_names(piece: str, text: Text) -> bool:
    """Whether the piece names a person, place or organization that is not in the text."""
    from shiftboss.extensions.ai.providers.local.extraction import find_entities
    from shiftboss.extensions.ai.providers.local.text import Text

    names = [e for e in find_entities(Text(piece)) if e["type"] in ENTITIES[:3] and e["confidence"] > CERTAIN]
    return any(not quoted(name["text"], text) for name in names)


class Analysis(Shape):
    """The base of all results; `confidence_score` is the confidence in `processed_data`."""

    confidence_score: Unit


class Entity(Shape):
    text: str
    type: str = Field(description=f"{', '.join(ENTITIES[:-1])} or {ENTITIES[-1]}")
    confidence: Unit

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.type = self.type.upper() if self.type.upper() in ENTITIES else "CONCEPT"
        return self


class Content(Shape):
    extracted_text: SkipJsonSchema[str] = ""
    key_phrases: list[str]
    entities: list[Entity]
    word_count: SkipJsonSchema[Annotated[int, Field(ge=0)]] = 0
    reading_time_minutes: SkipJsonSchema[Annotated[int, Field(ge=0)]] = 0
    language: SkipJsonSchema[str | None] = None

    @model_validator(mode="after")
    def _compute(self, info: ValidationInfo) -> Self:
        if (text := given_text(info)) is not None:
            self.extracted_text = text.raw.strip()
            self.word_count, self.reading_time_minutes = len(text.words), text.reading_minutes
            self.language = (info.context or {}).get("language") or text.language[0]
            self.key_phrases = [phrase for phrase in self.key_phrases if occurs(phrase, text)]
            self.entities = [entity for entity in self.entities if quoted(entity.text, text)]
        return self


class ContentExtraction(Analysis):
    task_type: Literal["content_extraction"] = "content_extraction"
    processed_data: Content


class OverallSentiment(Shape):
    score: Signed
    label: SkipJsonSchema[Literal["positive", "negative", "neutral"]] = "neutral"
    magnitude: Unit

    @model_validator(mode="after")
    def _compute(self) -> Self:
        neutral = abs(self.score) < NEUTRAL_BAND
        self.label = "neutral" if neutral else "positive" if self.score > 0 else "negative"
        return self


class Emotions(Shape):
    joy: Unit = 0
    sadness: Unit = 0
    anger: Unit = 0
    fear: Unit = 0
    surprise: Unit = 0


class Sentiment(Shape):
    overall_sentiment: OverallSentiment
    emotions: Emotions
    emotional_intensity: Unit


class SentimentAnalysis(Analysis):
    task_type: Literal["sentiment_analysis"] = "sentiment_analysis"
    processed_data: Sentiment


class Theme(Shape):
    theme: str
    confidence: Unit


class Themes(Shape):
    primary_themes: Annotated[list[Theme], Field(max_length=10)]
    topic_distribution: dict[str, Unit]
    related_concepts: list[str]

    @model_validator(mode="after")
    def _compute(self) -> Self:
        """Normalise the shares so that they add up to 1."""
        whole = sum(self.topic_distribution.values())
        if whole and abs(whole - 1) > SHARE_TOLERANCE:
            shares = self.topic_distribution.items()
            self.topic_distribution = {name: round(share / whole, 4) for name, share in shares}
        return self


class ThemeIdentification(Analysis):
    task_type: Literal["theme_identification"] = "theme_identification"
    processed_data: Themes


class EmotionProfile(Shape):
    emotions: Emotions
    dominant_emotion: str = Field(description="joy, sadness, anger, fear, surprise or neutral")
    emotional_intensity: Unit
    triggers: list[str] = Field(default_factory=list, description="the sentences that show the emotion most")

    @model_validator(mode="after")
    def _compute(self, info: ValidationInfo) -> Self:
        """Make the highest value the dominant emotion, and drop quotations that are not in the text."""
        figures: dict[str, float] = self.emotions.model_dump()
        highest = max(figures, key=lambda name: figures[name])
        if not figures[highest]:
            self.dominant_emotion = "neutral"
        elif self.dominant_emotion != "neutral" and figures.get(self.dominant_emotion) != figures[highest]:
            self.dominant_emotion = highest
        self.triggers = [piece for piece in self.triggers if quoted(piece, given_text(info))]
        return self


class EmotionDetection(Analysis):
    task_type: Literal["emotion_detection"] = "emotion_detection"
    processed_data: EmotionProfile


class Activity(Shape):
    activity: str
    category: str
    confidence: Unit
    evidence: str = ""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if not quoted(self.evidence, given_text(info)):
            self.evidence = ""
        return self


class Activities(Shape):
    activities: list[Activity]


class ActivityRecognition(Analysis):
    task_type: Literal["activity_recognition"] = "activity_recognition"
    processed_data: Activities


class StructuredEntry(Shape):
    """A parsed raw input. The text remains the writer's: a parse that adds or drops words is rejected."""

    title: str
    text: SkipJsonSchema[str] = ""
    language: str
    source: str = Field(description="text, voice_transcript or image_description")
    sentences: SkipJsonSchema[list[str]] = []
    fields: dict[str, Any] = Field(default_factory=dict, description="named values found in the text")
    dates: SkipJsonSchema[list[str]] = []
    tags: SkipJsonSchema[list[str]] = []

    @model_validator(mode="after")
    def _keep_the_text(self, info: ValidationInfo) -> Self:
        text = given_text(info)
        if text is None:
            return self
        from shiftboss.extensions.ai.providers.local.structuring import facts

        found = facts(text, (info.context or {}).get("source"))
        self._refuse_changes(text.raw, found)
        self.text, self.sentences = found["text"], found["sentences"]
        self.dates, self.tags = found["dates"], found["tags"]
        self._check_the_rest(text, (info.context or {}).get("source"))
        return self

    def _check_the_rest(self, text: Text, source: str | None) -> None:
        """Replace what the model made up: title, language, source and names of fields."""
        from shiftboss.extensions.ai.providers.local.structuring import source_of, title_of

        self.source = source or (self.source if self.source in SOURCES else source_of(text.raw))
        language, certainty = text.language
        sure = certainty >= SURE_LANGUAGE and len(text.words) >= SURE_WORDS
        if sure or not re.fullmatch("[a-z]{2,3}", self.language):
            self.language = language
        self.fields = {name: value for name, value in self.fields.items() if occurs(_spaced(name), text)}
        numbers = set(re.findall(r"\d+", self.title)) - set(re.findall(r"\d+", text.raw))
        usable = 0 < len(self.title.strip()) <= LONGEST_TITLE
        if numbers or not usable or invents_names(self.title, text):
            self.title = title_of(text, self.source)

    def _refuse_changes(self, original: str, found: dict[str, Any]) -> None:
        written = Counter(words_of(original))
        invented = Counter(words_of(self.text)) - written
        invented += Counter(word for value in _leaves(self.fields) for word in words_of(value)) - written
        if invented:  # count the words: the error is stored, and must not quote the entry
            raise ValueError(f"adds {invented.total()} words that are not in the input")
        named = Counter(word for value in _leaves(found["fields"]) for word in words_of(value))
        named += Counter(word for name in found["fields"] for word in words_of(_spaced(name)))
        named += Counter(word for tag in found["tags"] for word in words_of(tag))
        dropped = Counter(words_of(found["text"])) - Counter(words_of(self.text)) - named
        if self.text.strip() and dropped:
            raise ValueError(f"drops {dropped.total()} words that are in the input")


def _spaced(name: str) -> str:
    return re.sub(r"[_-]|(?<=[a-z])(?=[A-Z])", " ", name)


def _leaves(value: Any) -> list[str]:
    match value:
        case dict():
            return [leaf for item in value.values() for leaf in _leaves(item)]
        case list():
            return [leaf for item in value for leaf in _leaves(item)]
        case None | bool():
            return []
        case float() if value.is_integer():
            return [str(int(value))]
        case _:
            return [str(value)]


class RawDataParsing(Analysis):
    task_type: Literal["raw_data_parsing"] = "raw_data_parsing"
    processed_data: StructuredEntry


class Insight(Shape):
    kind: Literal["pattern", "trend", "anomaly", "recommendation"]
    text: str
    confidence: Unit
    evidence: list[str] = Field(default_factory=list)


class Insights(Shape):
    summary: str
    insights: list[Insight]
    recommendations: list[str]

    @model_validator(mode="after")
    def _drop_inventions(self, info: ValidationInfo) -> Self:
        """Drop statements about people, places and organizations that are not in the material."""
        if given_text(info) is not None:
            from shiftboss.extensions.ai.providers.local.text import Text

            known = orjson.dumps(info.context, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
            material = Text(known.replace("\\n", " "))
            self.summary = " ".join(s for s in Text(self.summary).sentences if not invents_names(s, material))
            self.insights = [one for one in self.insights if not invents_names(one.text, material)]
            self.recommendations = [one for one in self.recommendations if not invents_names(one, material)]
        return self


class InsightGeneration(Analysis):
    task_type: Literal["insight_generation"] = "insight_generation"
    processed_data: Insights


class Choice(Shape):
    label: str
    confidence: Unit
    alternatives: list[Theme] = Field(default_factory=list, description="the other labels, best first")


class Classification(Analysis):
    """The choice among `labels`, a variable with a list of names or a mapping of names to descriptions."""

    task_type: Literal["classification"] = "classification"
    processed_data: Choice

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        labels = (info.context or {}).get("labels")
        if labels:
            choice = self.processed_data
            if choice.label not in labels:
                raise ValueError("the label is not one of the given labels")
            choice.alternatives = [other for other in choice.alternatives if other.theme in labels]
        return self
