"""Formats the columns of a row as text, and its chunks with the template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Template

from shiftboss.extensions.vectorizer.model import SourceRow, VectorizerSpec


class ColumnTemplate(Template):
    """A template with `$column` or `${any column}`; `$$` is a dollar sign."""

    idpattern = r"[A-Za-z_]\w*"
    braceidpattern = r"[^}]+"
    flags = re.RegexFlag(0)


class Format:
    """Formats rows. With columns, the template wraps each chunk; without, it makes the whole text."""

    def __init__(self, vectorizer: VectorizerSpec) -> None:
        self._names = vectorizer.watched
        self._columns = vectorizer.columns
        self._template = None if vectorizer.template is None else ColumnTemplate(vectorizer.template)

    def text(self, row: SourceRow) -> str:
        """Return the text to split into chunks."""
        values = self._values(row)
        if self._columns is None:
            assert self._template is not None
            return self._template.safe_substitute(values).strip() if any(values.values()) else ""
        return "\n".join(text for name in self._columns if (text := values[name].strip()))

    def wrap(self, chunk: str, row: SourceRow) -> str:
        """Return the chunk as it is embedded, in the template if there is one."""
        if self._columns is None or self._template is None:
            return chunk
        return self._template.safe_substitute(self._values(row), chunk=chunk)

    def _values(self, row: SourceRow) -> Mapping[str, str]:
        return {name: value or "" for name, value in zip(self._names, row.fields, strict=True)}
