"""Labels described in words: how near a text is to each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import numpy as np
import yaml

from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.ai.providers.local.embedder import embed
from shiftboss.extensions.ai.providers.local.names import lexicon

SHARPNESS = 9.0  # similarities lie close together; this spreads them before they become shares
CUE_WEIGHT = 0.14  # one cue word counts like this much cosine similarity
MOST_CUES = 3
NEAR_WEIGHT = {"en": 0.6}  # of the similarity to English examples
FOREIGN_BASE = 0.15  # what stands for the rest of it


@dataclass(frozen=True)
class Label:
    name: str
    group: str
    examples: tuple[str, ...]
    cues: tuple[str, ...]
    family: str = ""

    def pattern(self, language: str = "en") -> re.Pattern[str] | None:
        """The cue words of a language; those of labels.yaml are English."""
        own = self.cues if language == "en" else ()
        return cue_pattern(own + lexicon(language).cues(self.family, self.name))

    def count_cues(self, text: str, language: str = "en") -> int:
        pattern = self.pattern(language)
        hits = {hit.lower() for hit in pattern.findall(text)} if pattern else set()
        return sum(2 if " " in hit else 1 for hit in hits)  # a phrase says more than a word


@cache
def cue_pattern(cues: tuple[str, ...]) -> re.Pattern[str] | None:
    """Cues are word beginnings: `cook` finds cooking. `$` asks for the end of the word, `*` for any start."""
    if not cues:
        return None
    return re.compile("|".join(map(_cue, sorted(cues, key=len, reverse=True))), re.IGNORECASE)


def _cue(cue: str) -> str:
    start = "" if cue.startswith("*") else r"\b"
    return start + re.escape(cue.strip("*$")) + (r"\b" if cue.endswith("$") else "")


class LabelSet:
    """Scores texts against labels by the nearest of each label's examples, plus its cue words."""

    def __init__(self, labels: Sequence[Label]) -> None:
        self.labels = tuple(labels)
        self.names = [label.name for label in labels]

    @cached_property
    def _examples(self) -> list[Vectors]:
        return [embed(label.examples) for label in self.labels]

    def similarities(self, vectors: Vectors) -> Vectors:
        """One row per text, one column per label: the mean of the two nearest examples."""
        columns = []
        for examples in self._examples:
            ranked = np.sort(vectors @ examples.T, axis=1)[:, ::-1]
            columns.append(ranked[:, :2].mean(axis=1))
        return np.stack(columns, axis=1)

    def cue_counts(self, texts: Sequence[str], language: str = "en") -> Vectors:
        counts = [
            [min(label.count_cues(text, language), MOST_CUES) for label in self.labels] for text in texts
        ]
        return np.asarray(counts, dtype=np.float32).reshape(len(texts), len(self.labels))

    def scores(self, texts: Sequence[str], language: str = "en") -> Vectors:
        """Evidence for each label, about -0.1 (none) to 1 (plain); comparable between texts.

        The examples are English and so is the model: in other languages they count little.
        """
        weight = NEAR_WEIGHT.get(language, 0.2)
        near = weight * self.similarities(embed(texts)) + (1 - weight) * FOREIGN_BASE
        return np.asarray(near + CUE_WEIGHT * self.cue_counts(texts, language), dtype=np.float32)

    @staticmethod
    def shares(scores: Vectors) -> Vectors:
        """Scores of one text as shares that add up to 1."""
        powers = np.exp(SHARPNESS * (scores - scores.max()))
        return np.asarray(powers / powers.sum(), dtype=np.float32)


@cache
def _described() -> Mapping[str, Any]:
    source = files(__package__).joinpath("labels.yaml").read_text(encoding="utf-8")
    described: Mapping[str, Any] = yaml.safe_load(source)
    return described


@cache
def label_set(family: str) -> LabelSet:
    """The labels of one family of labels.yaml: emotions, themes, activities or entities."""
    return LabelSet(
        [
            Label(name, str(d.get("group", name)), tuple(d["examples"]), tuple(d.get("cues", ())), family)
            for name, d in _described()[family].items()
        ]
    )
