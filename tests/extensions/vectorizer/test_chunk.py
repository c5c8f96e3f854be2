"""Every method of chunking."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftboss.extensions.vectorizer.chunk import CHUNKERS, chunker
from shiftboss.extensions.vectorizer.model import VectorizerSpec

MARKDOWN = """Before any heading.

# One
text of one
```python
# not a heading
```
## Two
text of two
"""


def cut(text: str, **options: Any) -> list[str]:
    return chunker(VectorizerSpec(id=1, name="x", **options))(text)


def test_separators_are_tried_in_order_and_short_pieces_are_joined() -> None:
    text = "one one|two two|three-three three-four"
    options = {"chunking": "separators", "chunk_size": 16, "chunk_overlap": 0}
    assert cut(text, separators=["|", "-"], **options) == ["one one|two two|", "three-", "three three-four"]
    assert cut("a" * 40, separators=["|"], **options) == ["a" * 16, "a" * 16, "a" * 8]


def test_separators_overlap_by_whole_pieces() -> None:
    options = {"chunking": "separators", "chunk_size": 12, "chunk_overlap": 6}
    assert cut("aaa bbb ccc ddd eee", **options) == ["aaa bbb ccc", "ccc ddd eee"]


def test_markdown_is_cut_at_headings() -> None:
    assert cut(MARKDOWN, chunking="markdown") == [
        "Before any heading.",
        "# One\ntext of one\n```python\n# not a heading\n```",
        "## Two\ntext of two",
    ]


def test_a_long_section_is_cut_further() -> None:
    pieces = cut("# One\n\n" + "Some words. " * 50, chunking="markdown", chunk_size=100, chunk_overlap=0)
    assert len(pieces) > 5
    assert all(len(piece) <= 100 for piece in pieces)


@pytest.mark.parametrize(
    ("provider", "model"), [("local", None), ("openai", "text-embedding-3-small"), ("ollama", "unheard-of")]
)
def test_tokens_are_those_of_the_model(provider: str, model: str | None) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 10
    options = {"chunking": "tokens", "provider": provider, "model": model}
    pieces = cut(text, chunk_size=20, chunk_overlap=0, **options)
    assert 4 <= len(pieces) <= 10
    assert cut(text, chunk_size=2000, chunk_overlap=0, **options) == [text.strip()]


@given(text=st.text(), size=st.integers(1, 50), way=st.sampled_from(sorted(CHUNKERS)))
def test_no_word_is_lost_and_no_chunk_too_long(text: str, size: int, way: str) -> None:
    pieces = cut(text, chunking=way, chunk_size=size, chunk_overlap=0)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert way in ("tokens", "none") or all(len(piece) <= size for piece in pieces)
