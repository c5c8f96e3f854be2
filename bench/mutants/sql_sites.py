"""Where a SQL file can be changed: a comparison, a condition, a status, a lock, a sum, one at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.mutants.sites import Site

FUNCTION = re.compile(r"^CREATE OR REPLACE FUNCTION shiftboss\.(\w+)", re.MULTILINE)
BODY = re.compile(r"AS\s+\$\$|\bRETURN\n|\bRETURN\s|BEGIN ATOMIC")
HIDDEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
WORDS = {
    "'Queued'": "'In Progress'",
    "'In Progress'": "'Queued'",
    "'Complete'": "'Failed'",
    "'Failed'": "'Cancelled'",
    "'Cancelled'": "'Failed'",
}
SWAPS: list[tuple[str, str, str]] = [
    ("comparison", r" <= ", " < "),
    ("comparison", r" < ", " <= "),
    ("comparison", r" >= ", " > "),
    ("comparison", r" > ", " >= "),
    ("comparison", r" = (?!ANY|ALL)", " <> "),
    ("comparison", r" <> (?!ALL)", " = "),
    ("comparison", r" IS NULL\b", " IS NOT NULL"),
    ("comparison", r" IS NOT NULL\b", " IS NULL"),
    ("comparison", r"\bNOT EXISTS\b", "EXISTS"),
    ("comparison", r"(?<!NOT )\bEXISTS\b", "NOT EXISTS"),
    ("condition", r" AND ", " OR "),
    ("condition", r" OR (?!REPLACE)", " AND "),
    ("lock", r" FOR (?:NO KEY )?UPDATE(?: OF \w)?(?: SKIP LOCKED)?", ""),
    ("lock", r" SKIP LOCKED", ""),
    ("arithmetic", r" \+ ", " - "),
    ("arithmetic", r" - ", " + "),
    ("arithmetic", r" \* (?!FROM)", " / "),
    ("arithmetic", r"\bgreatest\(", "least("),
    ("arithmetic", r"\bleast\(", "greatest("),
    ("constant", r"(?<![\w.'])0(?![\w.'])", "1"),
    ("constant", r"(?<![\w.'])1(?![\w.'])", "2"),
    ("constant", r"\btrue\b", "false"),
    ("constant", r"\bfalse\b", "true"),
    ("statement", r"(?<=\n)[ ]+PERFORM shiftboss\.[^;]*;", "    NULL;"),
    ("statement", r"(?<=\n)[ ]+DELETE FROM [^;)]*;", "    NULL;"),
]
CONDITION = re.compile(r"\s(?:AND|OR) (?=[^\s])")
STOP = re.compile(
    r"\s(?:AND|OR|ORDER BY|GROUP BY|LIMIT|FOR|RETURNING|THEN|LOOP|UNION|ON|DO|ELSE|END)\b|[;,)]"
)
ASSIGNMENT = re.compile(r"(?<=[ (,])(\w+) = (?=[^=])")


def sites(target: str, file: str, text: str, functions: set[str] | None) -> Iterator[Site]:
    """Every possible change inside the bodies of these functions, or of all."""
    hidden = HIDDEN.sub(lambda found: " " * len(found[0]), text)
    for name, start, end in bodies(text):
        if functions is not None and name not in functions:
            continue
        for kind, begin, stop, new in changes(text, hidden, start, end):
            yield Site(
                target, file, name, kind, text.count("\n", 0, begin) + 1, begin, stop, text[begin:stop], new
            )


def bodies(text: str) -> Iterator[tuple[str, int, int]]:
    found = list(FUNCTION.finditer(text))
    for here, after in zip(found, [*found[1:], None], strict=True):
        body = BODY.search(text, here.end())
        assert body is not None
        close = "\n$$" if "$$" in body[0] else ";"
        end = re.compile(r"END \$\$;|\n\$\$;|\$\$;" if close == "\n$$" else ";\n").search(text, body.end())
        limit = after.start() if after else len(text)
        yield here[1], body.end(), min(end.start() if end else limit, limit)


def changes(text: str, hidden: str, start: int, end: int) -> Iterator[tuple[str, int, int, str]]:
    for kind, pattern, new in SWAPS:
        for found in re.compile(pattern).finditer(hidden, start, end):
            yield kind, found.start(), found.end(), new
    for word, other in WORDS.items():
        for found in re.finditer(re.escape(word), text[start:end]):
            yield "status", start + found.start(), start + found.end(), other
    for found in CONDITION.finditer(hidden, start, end):
        if (stop := condition_end(hidden, found.end(), end)) is not None:
            yield "condition", found.start(), stop, ""
    for found in ASSIGNMENT.finditer(hidden, start, end):
        stop = condition_end(hidden, found.end(), end)
        if stop is not None and hidden[stop] == ",":
            yield "assignment", found.start(), stop + 1, ""


def condition_end(hidden: str, begin: int, end: int) -> int | None:
    """Where the expression that begins here ends: before whatever stops it outside of parentheses."""
    depth, place = 0, begin
    while place < end:
        if depth == 0 and place > begin and STOP.match(hidden, place):
            return place
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(hidden[place], 0)
        if depth < 0:
            return place
        place += 1
    return None
