"""What passes from stage to stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.vectorizer.model import SourceRow

Step = Literal["format", "chunk", "embed", "write"]


class Prepared(NamedTuple):
    """A row and the texts that stand for it; none if it is gone or has nothing to say."""

    row: SourceRow
    chunks: list[str]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Rows with their vectors: one line of the matrix per chunk, row by row."""

    rows: Sequence[Prepared]
    vectors: Vectors

    def halves(self) -> tuple[Embedded, Embedded]:
        middle = len(self.rows) // 2
        lines = sum(len(each.chunks) for each in self.rows[:middle])
        return (
            Embedded(self.rows[:middle], self.vectors[:lines]),
            Embedded(self.rows[middle:], self.vectors[lines:]),
        )


class Failed(NamedTuple):
    """A row that did not get through a step."""

    row: SourceRow
    step: Step
    reason: str
