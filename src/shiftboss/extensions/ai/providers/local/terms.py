"""Search terms: the words of a text and of its English gloss, cut to their stems, and its language."""

from __future__ import annotations

import unicodedata

from shiftboss.extensions.ai.providers.local.gloss import gloss
from shiftboss.extensions.ai.providers.local.text import WORD, Text

STEM = 4  # letters: enough to tell words apart, few enough to meet other forms of the same word
SHORTEST = 3


def search_terms(text: str) -> list[str]:
    """Stems, `~stems` of the English gloss and `#language`. Texts that share rare ones are about the same."""
    read = Text(text)
    if not read.words:
        return []
    english = WORD.findall(gloss(text, read.tongue)) if read.tongue != "en" else []
    stems = {_stem(word) for word in read.words if len(word) >= SHORTEST}
    stems |= {f"~{_stem(word)}" for word in english if len(word) >= SHORTEST}
    return sorted(stems | {f"#language {read.tongue}"})


def _stem(word: str) -> str:
    plain = unicodedata.normalize("NFD", word.casefold())
    return "".join(letter for letter in plain if letter.isalpha())[:STEM]
