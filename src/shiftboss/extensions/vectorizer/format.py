"""Format: from a row's columns to its text, and from a chunk to what is embedded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Template

from shiftboss.extensions.vectorizer.model import SourceRow, Vectorizer


class ColumnTemplate(Template):
    """`$column`, or `${any column}` in braces; `$$` is a dollar sign."""

    idpattern = r"[A-Za-z_]\w*"
    braceidpattern = r"[^}]+"
    flags = re.RegexFlag(0)


class Format:
    """Columns give the text to cut into chunks, a template then dresses each; alone it gives the text."""

    def __init__(self, vectorizer: Vectorizer) -> None:
        self._names = vectorizer.watched
        self._columns = vectorizer.columns
        self._template = None if vectorizer.template is None else ColumnTemplate(vectorizer.template)

    def text(self, row: SourceRow) -> str:
        """What is to be cut into chunks."""
        values = self._values(row)
        if self._columns is None:
            assert self._template is not None
            return self._template.safe_substitute(values).strip() if any(values.values()) else ""
        return "\n".join(text for name in self._columns if (text := values[name].strip()))

    def dress(self, chunk: str, row: SourceRow) -> str:
        """A chunk as it is embedded."""
        if self._columns is None or self._template is None:
            return chunk
        return self._template.safe_substitute(self._values(row), chunk=chunk)

    def _values(self, row: SourceRow) -> Mapping[str, str]:
        return {name: value or "" for name, value in zip(self._names, row.fields, strict=True)}
