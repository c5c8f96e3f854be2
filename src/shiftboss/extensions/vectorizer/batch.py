"""Data passed between the stages of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from shiftboss.extensions.ai.protocol import Vectors
from shiftboss.extensions.vectorizer.model import SourceRow

Step = Literal["format", "chunk", "embed", "write"]


class Prepared(NamedTuple):
    """A row and its chunks; none if the row was deleted or its text is empty."""

    row: SourceRow
    chunks: list[str]


@dataclass(frozen=True, slots=True)
class EmbeddedRows:
    """Rows with their vectors: one row of the matrix per chunk, in order."""

    rows: Sequence[Prepared]
    vectors: Vectors

    def halves(self) -> tuple[EmbeddedRows, EmbeddedRows]:
        middle = len(self.rows) // 2
        chunks = sum(len(each.chunks) for each in self.rows[:middle])
        return (
            EmbeddedRows(self.rows[:middle], self.vectors[:chunks]),
            EmbeddedRows(self.rows[middle:], self.vectors[chunks:]),
        )


class Failed(NamedTuple):
    """A row that failed at a step."""

    row: SourceRow
    step: Step
    reason: str
