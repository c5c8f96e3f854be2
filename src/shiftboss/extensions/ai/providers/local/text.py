"""Cutting text up: words, sentences, language."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from shiftboss.extensions.ai.providers.local.names import LANGUAGES, lexicon

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+(?=[\"'“‘(]?[^\W_])|\n+")
ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|e\.g|i\.e|vs|etc|No|approx)\.$")
WORDS_PER_MINUTE = 200
FEW, SURE = 12, 0.9  # words, and the probability from which even so few are believed


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect_language(text: str) -> tuple[str, float]:
    """ISO 639-1 code and probability; ("und", 0.0) when there is nothing to go by.

    A few words may be of any language; they are taken for one of those that have word lists.
    """
    if not WORD.search(text):
        return "und", 0.0
    ranked = dict(_identifier().rank(text))
    best = max(ranked, key=lambda language: ranked[language])
    if ranked[best] < SURE and len(WORD.findall(text)) < FEW:
        best = max(LANGUAGES, key=lambda language: ranked.get(language, 0.0))
    return str(best), float(ranked[best])


def split_sentences(text: str) -> list[str]:
    sentences: list[str] = []
    for piece in (p.strip() for p in SENTENCE_END.split(text)):
        if not piece:
            continue
        if sentences and ABBREVIATION.search(sentences[-1]):
            sentences[-1] = f"{sentences[-1]} {piece}"
        else:
            sentences.append(piece)
    return sentences


@dataclass(frozen=True)
class Text:
    """One text, with the parts that several analysers need worked out at most once."""

    raw: str

    @cached_property
    def sentences(self) -> list[str]:
        return split_sentences(self.raw)

    @cached_property
    def words(self) -> list[str]:
        return WORD.findall(self.raw)

    @cached_property
    def lower_words(self) -> list[str]:
        return [word.lower().replace("’", "'") for word in self.words]

    @cached_property
    def language(self) -> tuple[str, float]:
        return detect_language(self.raw)

    @cached_property
    def tongue(self) -> str:
        """The language whose word lists apply: the text's own if there are any, English otherwise."""
        return lexicon(self.language[0]).language

    @property
    def reading_minutes(self) -> int:
        return -(-len(self.words) // WORDS_PER_MINUTE)

    @property
    def evidence(self) -> float:
        """0–1: how much there is to judge by. Few words, or another language than English, are little."""
        if not self.words:
            return 0.0
        length = min(1.0, 0.4 + len(self.words) / 30)
        language, probability = self.language
        # Short English is often taken for a neighbour language, so a lone wrong guess costs only a part.
        known = 1.0 if language == "en" else 1.0 - 0.6 * probability * min(1.0, len(self.words) / 12)
        return length * known
