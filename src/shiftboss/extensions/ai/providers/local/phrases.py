"""Key phrases, by YAKE."""

from __future__ import annotations

from functools import cache
from typing import Any

from shiftboss.extensions.ai.providers.local.text import Text


@cache
def _extractor(language: str, longest: int) -> Any:
    import yake

    return yake.KeywordExtractor(lan=language, n=longest, top=24, dedupLim=0.7)


def key_phrases(text: Text, *, most: int = 8, longest: int = 3) -> list[str]:
    """The most telling phrases, best first; a phrase inside a better one is left out."""
    if not text.words:
        return []
    language = text.language[0] if text.language[1] > 0.8 and len(text.words) > 12 else "en"
    kept: list[str] = []
    for phrase, _ in _extractor(language, longest).extract_keywords(text.raw):
        plain = str(phrase).lower()
        if not any(plain in other or other in plain for other in kept):
            kept.append(plain)
    return kept[:most]
