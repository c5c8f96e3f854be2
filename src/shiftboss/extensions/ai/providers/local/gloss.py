"""Word-by-word English of a text in another language, for models that read only English."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
LANGUAGES = {"de": "german", "pt": "portuguese", "es": "spanish"}
SHORTEST = 4  # letters of each part of a German compound


@cache
def _stemmer(language: str) -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer(LANGUAGES[language])


_stemming = threading.Lock()  # a stemmer keeps the word at hand in itself


@lru_cache(maxsize=50_000)
def _stem(language: str, word: str) -> str:
    with _stemming:
        return str(_stemmer(language).stemWord(word))


@cache
def _words(language: str) -> Mapping[str, str]:
    """English by word and by stem; the first line of a file that names a form decides."""
    column = 1 + list(LANGUAGES).index(language)
    found: dict[str, str] = {}
    stems: dict[str, str] = {}
    for name in ("gloss.txt", "concepticon.txt"):
        for line in files(__package__).joinpath("lexicon", name).read_text(encoding="utf-8").splitlines():
            english, *others = line.split("|")
            for form in others[column - 1].split():
                found.setdefault(form, english)
                if "_" not in form:
                    stems.setdefault(_stem(language, form), english)
    return stems | found


@cache
def _reader(language: str) -> tuple[re.Pattern[str], list[str]]:
    """A pattern of the idioms, each a group, and of any word; and the English of each idiom.

    In the word list, `_` stands for a space of an idiom and `*` for any ending.
    """
    idioms = [(form, english) for form, english in _words(language).items() if "_" in form]
    idioms.sort(key=lambda idiom: -len(idiom[0]))
    forms = [re.escape(form).replace(r"\*", r"\w*").replace("_", r"\s+") for form, _ in idioms]
    pattern = "|".join([*(rf"\b({form})\b" for form in forms), WORD.pattern])
    return re.compile(pattern, re.IGNORECASE), [english for _, english in idioms]


def _word(language: str, word: str) -> str:
    """A word without a translation stays: names and words that both languages share do no harm."""
    plain = word.lower()
    return _known(language, plain) or (_compound(plain) if language == "de" else None) or word


def _known(language: str, word: str) -> str | None:
    """By the form, by its stem, without a pronoun behind a hyphen, and without the `ge` of a participle."""
    words = _words(language)
    found = words.get(word) or words.get(_stem(language, word))
    if found is None and "-" in word:
        return _known(language, word.partition("-")[0])
    if found is None and language == "de" and word.startswith("ge") and len(word) > SHORTEST + 2:
        return words.get(_stem(language, word[2:]))
    return found


def _compound(word: str) -> str | None:
    """German compounds by their longest known last part, with the first part if it is known too."""
    for cut in range(SHORTEST, len(word) - SHORTEST + 1):
        last = _known("de", word[cut:])
        if last:
            first = _known("de", word[:cut]) or _known("de", word[:cut].rstrip("s"))
            return f"{first} {last}" if first else last
    return None


def gloss(text: str, language: str) -> str:
    """The text with each word in English; unchanged where the language has no word list."""
    if language not in LANGUAGES:
        return text
    pattern, idioms = _reader(language)
    return pattern.sub(
        lambda match: idioms[match.lastindex - 1] if match.lastindex else _word(language, match.group()), text
    )
