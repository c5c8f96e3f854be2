"""Masks secrets and the user's text in error messages, since servers often quote the request in them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import quote

MIN_LENGTH = 6  # shorter values occur in texts by chance
PREFIX = 8  # characters at the start of a secret that are masked even if the rest is missing
MASK = "[secret]"
QUOTE_MASK = "[request text]"
RUN = 12  # letters and digits in a row that a message and a request do not share by chance
ESCAPED = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
WHITESPACE = re.compile(r"\\[nrt]")
WORD = re.compile(r"\w+")
IN_QUOTES = re.compile(r"""(['"`])(.+?)\1|[“‘«„](.+?)[”’»“]""")
SENTENCE_START = re.compile(r"(?:^|[.!?]\s+)$")
_known: set[str] = set()


def remember_secret(value: str | None) -> None:
    """Make `redact` mask this value in all texts, also in its URL-encoded and JSON forms."""
    if value and len(value) >= MIN_LENGTH:
        _known.update((value, quote(value, safe=""), json.dumps(value)[1:-1]))


def redact(text: str) -> str:
    """Return the text with every known secret masked, even if only its beginning is present."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    for secret in sorted(_known, key=len, reverse=True):
        text = _without_prefix(text, secret)
    return text


def _without_prefix(text: str, secret: str) -> str:
    start = text.find(secret[:PREFIX]) if len(secret) > PREFIX else -1
    while start >= 0:
        end = start + PREFIX
        while end < len(text) and end - start < len(secret) and text[end] == secret[end - start]:
            end += 1
        text = text[:start] + MASK + text[end:]
        start = text.find(secret[:PREFIX], start + len(MASK))
    return text


def unquoted(text: str, request: str) -> str:
    """Return a server's text with everything masked that it quotes from the request.

    That is every run of `RUN` letters and digits that also occurs there (ignoring case, spaces and
    punctuation), and each word of the request that is a name, has a digit or is between quotation marks.
    """
    text, request = _plain(text), _plain(request)
    hidden = _shared_runs(text, request) | _shared_words(text, request)
    masked = "".join("\0" if place in hidden else letter for place, letter in enumerate(text))
    return re.sub(r"\0(?:[^\w\0]*\0)*", QUOTE_MASK, masked)


def _plain(text: str) -> str:
    """Return the text in one line, with the escapes of JSON decoded."""
    text = ESCAPED.sub(lambda found: json.loads(f'"{found[0]}"'), WHITESPACE.sub(" ", text))
    return " ".join(unicodedata.normalize("NFC", text).replace("\0", "").split())


def _shared_runs(text: str, request: str) -> set[int]:
    letters = [(piece, place) for place, letter in enumerate(text) for piece in _letters(letter)]
    said, asked = "".join(piece for piece, _ in letters), "".join(_letters(request))
    runs = {said[start : start + RUN]: start for start in range(len(said) - RUN + 1)}
    shared = {run for start in range(len(asked) - RUN + 1) if (run := asked[start : start + RUN]) in runs}
    return {
        letters[place][1]
        for start in range(len(said) - RUN + 1)
        if said[start : start + RUN] in shared
        for place in range(start, start + RUN)
    }


def _letters(text: str) -> Iterator[str]:
    return (letter for letter in text.casefold() if letter.isalnum())


def _shared_words(text: str, request: str) -> set[int]:
    asked = set(WORD.findall(request.casefold()))
    quoted = {place for found in IN_QUOTES.finditer(text) for place in range(*found.span())}
    hidden: set[int] = set()
    for found in WORD.finditer(text):
        word, start = found[0], found.start()
        name = len(word) > 1 and word[0].isupper() and not SENTENCE_START.search(text[:start])
        number = len(word) > 2 and any(map(str.isdigit, word))
        telling = name or number or (start in quoted and len(word) > 3)
        if telling and word.casefold() in asked:
            hidden.update(range(*found.span()))
    return hidden
