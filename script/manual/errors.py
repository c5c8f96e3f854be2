"""Exit codes, and every error with its remedy, from the tree of errors."""

from __future__ import annotations

import inspect
from typing import Any

from manual.markdown import cell, code, table
from manual.remedies import REMEDIES
from shiftboss.model import errors


def text() -> str:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    ours = [kind for kind in kinds if issubclass(kind, Exception) and kind.__module__ == errors.__name__]
    missing = [kind.__name__ for kind in ours if kind.__name__ not in REMEDIES]
    if missing:
        raise SystemExit(f"script/manual/remedies.py does not know {', '.join(missing)}")
    return "\n".join([*_codes(ours), "## Every error", "", *_errors(ours)])


def _codes(kinds: list[Any]) -> list[str]:
    by_code: dict[int, list[str]] = {}
    for kind in kinds:
        if "exit_code" in vars(kind):
            by_code.setdefault(kind.exit_code, []).append(code(kind.__name__))
    rows = [("0", "success"), *((str(one), ", ".join(by_code[one])) for one in sorted(by_code))]
    return ["## Exit codes", "", *table(("code", "error"), rows)]


def _errors(kinds: list[Any]) -> list[str]:
    rows = [
        (
            code(kind.__name__),
            cell(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]),
            REMEDIES[kind.__name__],
        )
        for kind in kinds
    ]
    return table(("error", "when", "what to do"), rows)
