"""The codec: encrypted values can be decrypted only with the right key, and stay valid JSON and text."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftboss.model.codec import Codec, Sealed, missing_key, new_key, shown
from shiftboss.model.errors import ConfigError
from shiftboss.worker.threads import describe

pytest.importorskip("cryptography", reason="comes with the extra encryption")

OLD, NEW = new_key(), new_key()
codec = Codec([OLD])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_json_opens_again_and_is_sealed_once(value: Any) -> None:
    try:
        text = orjson.dumps(value)
    except TypeError:  # a lone surrogate
        return
    sealed = codec.json(text)
    assert orjson.loads(sealed).keys() == {"$enc"}
    assert codec.json(sealed) == sealed
    assert codec.open(orjson.loads(sealed)) == orjson.loads(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_text_opens_again_wherever_it_stands(text: str) -> None:
    sealed = codec.text(text)
    assert sealed is not None
    assert sealed != text
    assert codec.text(sealed) == sealed
    assert codec.open_text(f"ended: {sealed}") == f"ended: {text}"
    assert codec.open({"rows": [[1, sealed]]}) == {"rows": [[1, text]]}


@pytest.mark.parametrize(
    "message", ["the secret", "", "two\nlines", "two\n\nparagraphs", 'File "x", line 1, in secret']
)
def test_an_error_keeps_its_type_and_its_place_alone(message: str) -> None:
    try:
        raise ValueError(message)
    except ValueError as error:
        text = describe(error)
    sealed = codec.error(text)
    assert sealed is not None
    assert sealed.startswith("ValueError: ")
    assert not message or message not in sealed or message.startswith("File")
    assert "test_codec.py" in sealed.splitlines()[-1] or message.startswith("File")
    assert codec.error(sealed) == sealed
    assert codec.open_text(sealed) == text
    assert codec.open_text(f"cancelled: {codec.error('Peter: no')}") == "cancelled: Peter: no"
    assert "Peter" not in str(codec.error("Peter: no"))


def test_the_first_key_seals_and_all_open() -> None:
    both, only_new = Codec([NEW, OLD]), Codec([NEW])
    old, new = orjson.loads(codec.json(b'{"n":1}')), orjson.loads(both.json(b'{"n":2}'))
    assert (both.open(old), both.open(new), only_new.open(new)) == ({"n": 1}, {"n": 2}, {"n": 2})
    locked = only_new.open({"rows": [old]})
    assert isinstance(locked["rows"][0], Sealed)
    assert missing_key(locked) == codec.names[0]
    assert orjson.loads(orjson.dumps(locked)) == {"rows": [old]}
    assert shown(locked) == {"rows": ["(encrypted)"]}


def test_a_changed_or_cut_value_is_never_opened() -> None:
    sealed = codec.text("the secret") or ""
    changed = sealed[:-1] + ("A" if sealed[-1] != "A" else "B")
    assert codec.open_text(changed) == changed
    assert codec.open_text(sealed[:-4]) == sealed[:-4]
    assert shown(f"x {sealed[:-4]} y") == "x (encrypted) y"
    as_json = {"$enc": sealed.removeprefix("$enc:")}
    assert isinstance(codec.open(as_json), Sealed), "text is not accepted in place of JSON"


def test_results_of_parents_beside_sealed_params() -> None:
    params = codec.value({"own": 1, "pages": "replaced"})
    merged = params | {"pages": codec.value({"a": 2}), "all": [codec.value(3), None]}
    assert codec.open(merged) == {"own": 1, "pages": {"a": 2}, "all": [3, None]}


def test_plain_values_that_look_sealed_stay_as_they_are() -> None:
    for value in ({"$enc": 1}, {"$enc": "hello"}, "$enc", "costs $enc:12", {"$enc": "00000000:AAAA", "b": 1}):
        assert codec.open(value) == value
    assert codec.open(orjson.loads(codec.json(b'{"$enc":"mine"}'))) == {"$enc": "mine"}


def test_dedup_keys_survive_a_rotation() -> None:
    assert codec.dedup_key("a") == Codec([NEW, OLD]).dedup_key("a") != Codec([NEW]).dedup_key("a")
    assert Codec([NEW], OLD).dedup_key("a") == codec.dedup_key("a") == codec.dedup_key(codec.dedup_key("a"))
    assert codec.dedup_key("a") != codec.dedup_key("b")
    assert Codec().dedup_key("a") == "a"


@pytest.mark.parametrize(
    "key", ["", "short", "c2hvcnQ=", "not base64 at all, but long enough to be one ....."]
)
def test_what_is_no_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Codec([key])
    assert not key or key not in refused.value.message
