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

SHARPNESS = 9.0  # similarities lie close together; this spreads them before they become shares
CUE_WEIGHT = 0.14  # one cue word counts like this much cosine similarity
MOST_CUES = 3
NEAR_WEIGHT, BASE = 0.6, 0.15  # of the similarity to the examples, and what stands for the rest


@dataclass(frozen=True)
class Label:
    name: str
    group: str
    examples: tuple[str, ...]
    cues: tuple[str, ...]

    def count_cues(self, text: str) -> int:
        pattern = cue_pattern(self.cues)
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

    def cue_counts(self, texts: Sequence[str]) -> Vectors:
        counts = [[min(label.count_cues(text), MOST_CUES) for label in self.labels] for text in texts]
        return np.asarray(counts, dtype=np.float32).reshape(len(texts), len(self.labels))

    def scores(self, texts: Sequence[str]) -> Vectors:
        """Evidence for each label in English texts, about -0.1 (none) to 1 (plain)."""
        near = NEAR_WEIGHT * self.similarities(embed(texts)) + (1 - NEAR_WEIGHT) * BASE
        return np.asarray(near + CUE_WEIGHT * self.cue_counts(texts), dtype=np.float32)

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
            Label(name, str(d.get("group", name)), tuple(d["examples"]), tuple(d.get("cues", ())))
            for name, d in _described()[family].items()
        ]
    )
