"""Search terms: the words of a text cut to their stems, and what it is about in words of no language."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.labels import cue_pattern, label_set
from shiftboss.extensions.ai.providers.local.names import described, words_of
from shiftboss.extensions.ai.providers.local.text import WORD, Text

STEM = 4  # letters: enough to tell words apart, few enough to meet other forms of the same word
SHORTEST = 3
FAMILIES = ("emotions", "themes", "activities")


def search_terms(text: str) -> list[str]:
    """Stems, `~stems` of the English gloss, `#labels`, `##concepts` and the language.

    Texts that share rare ones are about the same.
    """
    read = Text(text)
    if not read.words:
        return []
    english = WORD.findall(gloss(text, read.tongue)) if read.tongue != "en" else []
    stems = {_stem(word) for word in read.words if len(word) >= SHORTEST}
    stems |= {f"~{_stem(word)}" for word in english if len(word) >= SHORTEST}
    labels = {f"#{name}" for family in FAMILIES for name in _labels(family, read)}
    concepts = {f"##{name}" for name, pattern in _concepts().items() if pattern.search(text)}
    return sorted(stems | labels | concepts | {f"#language {read.tongue}"})


def _stem(word: str) -> str:
    plain = unicodedata.normalize("NFD", word.casefold())
    return "".join(letter for letter in plain if letter.isalpha())[:STEM]


def _labels(family: str, text: Text) -> list[str]:
    labels = label_set(family)
    counts = labels.cue_counts([gloss(text.raw, text.tongue)])[0]
    return [name for name, count in zip(labels.names, counts, strict=True) if count > 0]


@cache
def _concepts() -> dict[str, re.Pattern[str]]:
    patterns = {name: cue_pattern(words_of(cues)) for name, cues in described("concepts").items()}
    return {name: pattern for name, pattern in patterns.items() if pattern}
