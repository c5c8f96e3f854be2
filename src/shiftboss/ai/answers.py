"""The shapes of analyses: what every provider must answer for each task type."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Unit = Annotated[float, Field(ge=0, le=1)]
Signed = Annotated[float, Field(ge=-1, le=1)]


class Shape(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Analysis(Shape):
    """The envelope of every result; `confidence_score` says how far to trust `processed_data`."""

    confidence_score: Unit


class Entity(Shape):
    text: str
    type: str = Field(description="PERSON, LOCATION, ORGANIZATION, EVENT, DATE, CONCEPT or ACTIVITY")
    confidence: Unit


class Content(Shape):
    extracted_text: str
    key_phrases: list[str]
    entities: list[Entity]
    word_count: Annotated[int, Field(ge=0)]
    reading_time_minutes: Annotated[int, Field(ge=0)]
    language: str | None = None


class ContentExtraction(Analysis):
    task_type: Literal["content_extraction"] = "content_extraction"
    processed_data: Content


class OverallSentiment(Shape):
    score: Signed
    label: Literal["positive", "negative", "neutral"]
    magnitude: Unit


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


class ThemeIdentification(Analysis):
    task_type: Literal["theme_identification"] = "theme_identification"
    processed_data: Themes


class EmotionProfile(Shape):
    emotions: Emotions
    dominant_emotion: str = Field(description="joy, sadness, anger, fear, surprise or neutral")
    emotional_intensity: Unit
    triggers: list[str] = Field(default_factory=list, description="the sentences that show the emotion most")


class EmotionDetection(Analysis):
    task_type: Literal["emotion_detection"] = "emotion_detection"
    processed_data: EmotionProfile


class Activity(Shape):
    activity: str
    category: str
    confidence: Unit
    evidence: str = ""


class Activities(Shape):
    activities: list[Activity]


class ActivityRecognition(Analysis):
    task_type: Literal["activity_recognition"] = "activity_recognition"
    processed_data: Activities


class StructuredEntry(Shape):
    title: str
    text: str
    language: str
    source: str = Field(description="text, voice_transcript or image_description")
    sentences: list[str]
    fields: dict[str, Any] = Field(default_factory=dict, description="named values found in the text")
    dates: list[str] = Field(default_factory=list)
    tags: list[str] = Field(default_factory=list)


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


class InsightGeneration(Analysis):
    task_type: Literal["insight_generation"] = "insight_generation"
    processed_data: Insights


class Choice(Shape):
    label: str
    confidence: Unit
    alternatives: list[Theme] = Field(default_factory=list, description="the other labels, best first")


class Classification(Analysis):
    """Request variables: `labels`, a list of names or a mapping of name to description."""

    task_type: Literal["classification"] = "classification"
    processed_data: Choice
