"""The local provider answers every task type in the documented shape, whatever the text."""

import asyncio
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shiftboss
from shiftboss import App, Context
from shiftboss.extensions.ai import AI, answers
from shiftboss.extensions.ai.errors import Refused, Unsuitable
from shiftboss.extensions.ai.providers.local import ANALYSERS, LocalProvider, embedder, encoder, multilingual
from shiftboss.extensions.ai.providers.local.extraction import find_entities
from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.text import Text, split_sentences
from shiftboss.kit import Kit

from .asking import asked, chat

ENTRY = (
    "Today was a productive day at work. We had a team meeting with Anna and Dr. Brown about the roadmap in "
    "Berlin. Then I went for a run in the park and called my mother. I was worried about the exam next "
    "Friday, but overall I'm happy."
)
SHAPES = {shape.model_fields["task_type"].default: shape for shape in answers.Analysis.__subclasses__()}


def test_every_analyser_has_a_shape() -> None:
    assert set(SHAPES) == set(ANALYSERS)


@given(content=st.text(max_size=400))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("task_type", sorted(ANALYSERS))
def test_any_text_gives_a_valid_answer(task_type: str, content: str) -> None:
    request = chat(task_type, content, SHAPES[task_type], variables={"labels": ["a", "b"]})
    reply = asyncio.run(LocalProvider().complete(request))
    assert SHAPES[task_type].model_validate(reply.payload)


async def test_content_is_extracted() -> None:
    ai = await AI.open()
    answer = await ai.complete(**asked("content_extraction", ENTRY, answers.ContentExtraction))
    data = answer.value.processed_data
    assert {"Anna", "Dr. Brown", "my mother"} <= {e.text for e in data.entities if e.type == "PERSON"}
    assert {"Berlin", "work"} <= {e.text for e in data.entities if e.type == "LOCATION"}
    assert "team meeting" in {e.text for e in data.entities if e.type == "EVENT"}
    assert data.word_count == len(ENTRY.split())
    assert data.reading_time_minutes == 1
    assert "productive day" in data.key_phrases
    assert data.language == "en"


async def test_analysers_may_run_at_the_same_time() -> None:
    local = LocalProvider()
    texts = [
        f"I met Anna in Berlin on day {n} and we were happy about the new job. {ENTRY}" for n in range(24)
    ]
    requests = [
        chat(kind, text, SHAPES[kind])
        for text in texts
        for kind in sorted(ANALYSERS.keys() - {"classification"})
    ]
    together = await asyncio.gather(*(local.complete(request) for request in requests))
    assert [reply.payload for reply in together] == [(await local.complete(r)).payload for r in requests]


async def test_activities_are_recognised_with_their_sentence() -> None:
    ai = await AI.open()
    answer = await ai.complete(**asked("activity_recognition", ENTRY, answers.ActivityRecognition))
    found = {a.activity: a.evidence for a in answer.value.processed_data.activities}
    assert found["exercising"].startswith("Then I went for a run")


async def test_labelled_lines_become_fields() -> None:
    raw = "Title: Lake day\nMood: 7\nTags: sun, water\n\nWe swam all day. #summer\nSlept early."
    ai = await AI.open()
    answer = await ai.complete(**asked("raw_data_parsing", raw, answers.RawDataParsing))
    data = answer.value.processed_data
    assert (data.title, data.fields, data.tags) == (
        "Lake day",
        {"mood": 7, "tags": ["sun", "water"]},
        ["summer"],
    )
    assert data.text == raw, "what was written stays where it was written"


async def test_transcripts_lose_their_clockwork() -> None:
    raw = "[00:01] Um, today I, uh, met Lena.\n[00:09] We talked for hours."
    ai = await AI.open()
    answer = await ai.complete(**asked("raw_data_parsing", raw, answers.RawDataParsing))
    assert answer.value.processed_data.source == "voice_transcript"
    assert answer.value.processed_data.text == "today I, met Lena.\nWe talked for hours."


async def test_insights_compare_with_history() -> None:
    history = [
        {"sentiment": 0.6, "themes": ["health_fitness"], "activities": ["exercising"]},
        {"sentiment": -0.1, "themes": ["finances"], "activities": []},
    ] * 6
    text = "I cried all evening, everything is hopeless and I hate my life. Went for a run in the gym anyway."
    request = asked("insight_generation", text, answers.InsightGeneration, variables={"history": history})
    found = (await (await AI.open()).complete(**request)).value.processed_data
    kinds = {(i.kind, i.text.split()[0]) for i in found.insights}
    assert ("anomaly", "The") in kinds
    assert any(i.kind == "pattern" and "exercising" in i.text for i in found.insights)
    assert found.recommendations


async def test_classification_needs_labels() -> None:
    with pytest.raises(Unsuitable, match="at least one label"):
        await LocalProvider().complete(chat("classification", "a cafe", answers.Classification))


async def test_a_place_is_classified_by_described_labels() -> None:
    labels = {
        "food": "restaurant, cafe, bar, pizza, bakery",
        "sight": "museum, castle, monument",
        "sport": "gym, pool",
    }
    request = asked("classification", "Trattoria da Luigi, wood oven pizza", answers.Classification,
                      variables={"labels": labels})  # fmt: skip
    answer = await (await AI.open()).complete(**request)
    assert answer.value.processed_data.label == "food"


async def test_unknown_task_type_names_the_known() -> None:
    with pytest.raises(Unsuitable) as caught:
        await LocalProvider().complete(chat("haiku", "x", answers.Classification))
    assert "sentiment_analysis" in (caught.value.hint or "")


async def test_embeddings_are_unit_vectors_and_mean_something() -> None:
    made = await LocalProvider().embed(
        ["my dog ran in the park", "the puppy played outside", "quarterly tax return", ""]
    )
    assert made.vectors.shape == (4, 256)
    assert made.vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)
    near, far = made.vectors[0] @ made.vectors[1], made.vectors[0] @ made.vectors[2]
    assert near > far + 0.2


async def test_the_sentence_encoder_knows_what_other_words_mean() -> None:
    texts = [
        "I lost my job",
        "They let me go after eleven years at the firm",
        "Ich bin arbeitslos",
        "A long hike",
        "",
    ]
    made = await LocalProvider().embed(texts, encoder.MODEL)
    assert made.model == "all-MiniLM-L6-v2"
    assert made.vectors.shape == (5, 384)
    assert np.allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)
    same, german, other, _ = made.vectors[1:] @ made.vectors[0]
    assert same > other + 0.2
    assert german > other + 0.2


async def test_the_multilingual_model_knows_words_that_no_list_has() -> None:
    texts = ["entorse no tornozelo", "torci o pé a correr", "comprei um chapéu", ""]
    made = await LocalProvider().embed(texts, multilingual.MODEL)
    assert made.vectors.shape == (4, multilingual.DIMENSIONS)
    assert np.allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)
    same, other, _ = made.vectors[1:] @ made.vectors[0]
    assert same > other + 0.1


@pytest.mark.parametrize("model", [encoder.MODEL, multilingual.MODEL])
async def test_a_long_text_is_the_mean_of_its_parts(model: str) -> None:
    """The encoder reads 128 tokens; what follows them must count too."""
    start, end = "We sailed along the coast. " * 40, "My tooth was pulled at the dentist. " * 40
    whole, first, about = (await LocalProvider().embed([start + end, start, end[:100]], model)).vectors
    assert whole @ about > first @ about + 0.2


async def test_an_unknown_embedding_model_is_refused() -> None:
    with pytest.raises(Refused, match="no embedding model 'x'"):
        await LocalProvider().embed(["a"], "x")


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("de", "Ich habe die Nase voll davon.", "I have had enough"),
        ("pt", "Fiquei com um nó na garganta.", "lump in the throat"),
        ("es", "Estoy harta de todo.", "I have had enough"),
    ],
)
def test_idioms_are_glossed_as_a_whole(language: str, text: str, wanted: str) -> None:
    assert wanted in gloss(text, language)


def test_no_model_is_inside_the_package() -> None:
    """The base install has no use for weights: they come with the extra `ai`."""
    large = [file.name for file in Path(shiftboss.__file__).parent.rglob("*") if file.stat().st_size > 10**6]
    assert large == []


def test_sentences_survive_abbreviations() -> None:
    assert split_sentences("I met Dr. Brown. He smiled!  Good…\nBye") == [
        "I met Dr. Brown.", "He smiled!", "Good…", "Bye",
    ]  # fmt: skip


def test_an_entity_is_listed_once() -> None:
    found = find_entities(Text("I met Anna. Anna laughed. Then Anna left."))
    assert [(e["text"], e["type"]) for e in found] == [("Anna", "PERSON")]


def test_one_long_text_makes_no_others_long() -> None:
    texts = [*(f"a short text, number {n}" for n in range(63)), "a long walk by the sea " * 4000]
    embedder.embed(["warm up"])
    tracemalloc.start()
    try:
        vectors = embedder.embed(texts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300e6, "all of them as long as the longest would take gigabytes"
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    assert np.allclose(vectors, alone, atol=1e-5)
    assert vectors[63] @ embedder.embed(["a long walk by the sea"])[0] > 0.99


async def test_a_registered_answer_serves_tests_of_tasks(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_AI_PROVIDERS", '["local"]')
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-used")
    monkeypatch.setitem(ANALYSERS, "shop.describe", lambda text, variables: "A blue vase.")
    app = App("shop")

    @app.task()
    async def describe(ctx: Context, product: str) -> str:
        return (await ctx.ai.complete(f"Describe {product}")).text

    async with Kit.open(app, database_url) as kit:
        handle = await describe.enqueue("vase")
        await kit.drain()
        assert await handle.result() == "A blue vase."
