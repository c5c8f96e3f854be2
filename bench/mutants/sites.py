"""One place where a file can be changed, and the file with that change."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Site:
    target: str
    file: str
    function: str
    kind: str
    line: int
    begin: int
    end: int
    old: str
    new: str

    @property
    def id(self) -> str:
        words = f"{self.file}:{self.function}:{self.begin}:{self.old}:{self.new}"
        return hashlib.sha256(words.encode()).hexdigest()[:8]

    def apply(self, text: str) -> str:
        assert text[self.begin : self.end] == self.old
        return text[: self.begin] + self.new + text[self.end :]

    def told(self) -> dict[str, Any]:
        return {"id": self.id, **asdict(self)}
