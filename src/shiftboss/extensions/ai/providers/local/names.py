"""Names and the words around them, by language: lists of first names and places, kinship words, titles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import yaml

LANGUAGES = ("en", "de", "pt", "es")
POSSESSIVE = (
    r"my|our|mein(?:e[mnrs]?)?|unser(?:e[mnrs]?)?|(?:o\s+|a\s+)?(?:meu|minha|nosso|nossa)|mi|nuestr[oa]"
)
PLACE_TAIL = re.compile(
    r"(?:\b(?:Street|Avenue|Road|Park|Lake|River|Mountains?|Beach|Island|City|Square|Bridge|Bay|Falls)$)"
    r"|^(?:Lake|Mount|Rua|Avenida|Calle|Plaza|Praia|Praça|Serra|Sierra|Monte|Playa|Lago|Isla|Ilha|Bad|Sankt)\s"
    r"|(?:straße|gasse|burg|dorf|stadt|heim|hausen|furt|ingen|gebirge|wald)$"
)


def words_of(listed: str) -> tuple[str, ...]:
    return tuple(listed.split(", "))


def _read(name: str) -> str:
    return files(__package__).joinpath("lexicon", name).read_text(encoding="utf-8")


def described(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(_read(f"{name}.yaml"))
    return found


@cache
def first_names() -> frozenset[str]:
    return frozenset(_read("first_names.txt").split())


@cache
def places() -> frozenset[str]:
    return frozenset([*_read("places.txt").splitlines(), *regions()])


@cache
def regions() -> frozenset[str]:
    """Mountains, rivers, districts: what a list of cities does not have."""
    return frozenset(_read("regions.txt").splitlines())


@cache
def not_names() -> frozenset[str]:
    """Words that are never a name, though some are on the lists: function words, days, months, languages."""
    return frozenset(_read("not_names.txt").split())


@cache
def ordinary() -> frozenset[str]:
    """Words that are names elsewhere, and mostly ordinary words where a sentence begins with them."""
    return frozenset(_read("ordinary.txt").split())


@dataclass(frozen=True)
class Lexicon:
    """The words that stand for people and places, or before their names, in one language."""

    language: str
    data: Mapping[str, Any]

    def words(self, name: str) -> tuple[str, ...]:
        return words_of(self.data[name]) if name in self.data else ()

    @cached_property
    def kin(self) -> re.Pattern[str]:
        """A relative without a name; a word marked `$` counts only with a possessive."""
        free = _choice(word for word in self.words("kin") if not word.endswith("$"))
        bound = _choice(word[:-1] for word in self.words("kin") if word.endswith("$"))
        genitive = "s?" if self.language == "de" else ""
        return re.compile(
            rf"\b(?:(?:{POSSESSIVE})\s+(?:{free}|{bound or free}){genitive}|(?:{free}){genitive})\b(?!-)",
            re.IGNORECASE,
        )

    @cached_property
    def titled(self) -> re.Pattern[str]:
        return re.compile(
            rf"\b(?i:{_choice(self.words('titles'))})\b\.?\s+(?:[A-ZÀ-Þ][\w’-]+(?:\s+(?=[A-ZÀ-Þ]))?){{1,2}}"
        )

    @cached_property
    def before_place(self) -> re.Pattern[str]:
        articles = r"(?:the\s+|de[rmn]\s+|die\s+|das\s+|los\s+|las\s+|el\s+|la\s+)?"
        return re.compile(rf"\b(?:{_choice(self.words('place_before'))})\s+{articles}$", re.IGNORECASE)

    @cached_property
    def before_person(self) -> re.Pattern[str]:
        return re.compile(rf"\b(?:{_choice(self.words('person_before'))})\s+$", re.IGNORECASE)

    @cached_property
    def common_places(self) -> re.Pattern[str]:
        return re.compile(rf"\b(?:{_choice(self.words('common_places'))})\b", re.IGNORECASE)


def _choice(words: Any) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


@cache
def lexicon(language: str) -> Lexicon:
    """The lexicon of a language, English where there is none."""
    known = language if language in LANGUAGES else "en"
    return Lexicon(known, described(known))


@cache
def common_place_names() -> frozenset[str]:
    return frozenset(word for language in LANGUAGES for word in lexicon(language).words("common_places"))
