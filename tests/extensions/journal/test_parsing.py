"""Raw records of any app become entries, or errors that say what is wrong."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftboss.extensions.journal.parsing import BadEntry, parse, snake

from .conftest import sample

MINIMAL: dict[str, Any] = {"user": "ada", "date": "2025-03-01", "text": "A walk."}


@pytest.mark.parametrize("name", ["voiceNote", "Voice Note", "voice-note", "voice_note", " VoiceNote "])
def test_names_have_one_spelling(name: str) -> None:
    assert snake(name) == "voice_note"


def test_an_entry_has_parts_of_three_kinds_whatever_they_are_called() -> None:
    record = MINIMAL | {"voiceNote": "um, hello", "voiceSeconds": 4, "photo": "A dog."}
    entry = parse(record)
    assert [part["kind"] for part in entry.parts] == ["text", "voice_transcript", "image_description"]
    assert entry.parts[1]["duration_seconds"] == 4
    assert entry.renamed["photo"] == "image_description"


def test_a_time_without_zone_is_on_the_writers_clock() -> None:
    entry = parse(MINIMAL | {"date": "2025-07-01T21:30", "tz": "Europe/Lisbon"})
    assert entry.written_at == datetime(2025, 7, 1, 20, 30, tzinfo=UTC)
    assert parse(MINIMAL | {"date": 1751401800}).written_at == datetime(2025, 7, 1, 20, 30, tzinfo=UTC)
    assert parse(MINIMAL | {"date": 1751401800000}).written_at == datetime(2025, 7, 1, 20, 30, tzinfo=UTC)


def test_metadata_takes_one_form_and_the_unknown_is_kept() -> None:
    entry = parse(MINIMAL | {"labels": "#Work; Money", "weather": "rain, -4 °C", "steps": 900, "empty": ""})
    assert entry.metadata == {
        "tags": ["work", "money"],
        "weather": {"condition": "rain", "temperature_c": -4.0},
        "extra": {"steps": 900},
    }


def test_an_entry_without_id_has_a_lasting_one() -> None:
    assert parse(MINIMAL).external_id == parse(dict(reversed(MINIMAL.items()))).external_id
    assert parse(MINIMAL).external_id != parse(MINIMAL | {"text": "A run."}).external_id


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "  "}, "no content"),
        ({"user": None}, "no user"),
        ({"date": None}, "no date"),
        ({"date": "yesterday"}, "cannot read the date 'yesterday'"),
        ({"date": 1e300}, "out of range"),
        ({"date": "9999-12-31T23:59:59"}, "out of range"),
        ({"tz": "Mars/Olympus"}, "unknown time zone"),
        ({"tz": "../../etc/passwd"}, "unknown time zone"),
        ({"parts": "text"}, "not a list"),
        ({"parts": [{"kind": "smell", "content": "tea"}]}, "unknown kind of part 'smell'"),
        ({"parts": [{"kind": "text"}]}, "has no content"),
        ({"parts": ["text"]}, "not an object"),
        ({"text": "a\x00b"}, "NUL"),
        ({"extra": {"deep": ["a\x00b"]}}, "NUL"),
        ({"date": -62135596800}, "out of range"),
        ({"text": "x" * 1_000_001}, "longer than 1000000 characters"),
        ({"tz": "localtime"}, "unknown time zone"),
        ({"tz": "right/UTC"}, "unknown time zone"),
        ({"id": "é" * 300}, "longer than 500 bytes"),
        ({"user": "u" * 501}, "longer than 500 bytes"),
        ({"extra": 2**70}, "cannot be stored"),
        ({"extra": "half \ud83d"}, "cannot be stored"),
        ({"extra": LOOP}, "cannot be stored"),
    ],
)
def test_a_bad_record_says_why(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadEntry, match=message):
        parse(MINIMAL | change)


def test_the_sample_is_a_year_of_three_people() -> None:
    entries = [parse(record) for record in sample()]
    kinds = {part["kind"] for entry in entries for part in entry.parts}
    days = sorted(entry.written_at for entry in entries)
    assert len({entry.external_id for entry in entries}) == len(entries) >= 60
    assert {entry.user_id for entry in entries} == {"mara", "jonas", "priya"}
    assert kinds == {"text", "voice_transcript", "image_description"}
    assert {entry.language for entry in entries} == {"en", "de", "pt"}
    assert 350 <= (days[-1] - days[0]).days <= 366


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["user", "date", "text", "parts", "tz", "tags", "weather", "place", "voice", "id"])


@given(st.dictionaries(names | st.text(), json_values, max_size=8))
def test_any_json_object_is_an_entry_or_a_clear_error(record: dict[str, Any]) -> None:
    with contextlib.suppress(BadEntry):
        assert parse(record).row()["parts"]
