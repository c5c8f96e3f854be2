"""Check the language of docs, messages and comments: words that plain technical English does not need.

Prints each place as file:line and what to write instead; the exit code says whether there was one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GIT = ["git", "ls-files", "-co", "--exclude-standard"]
ROOT = Path(__file__).resolve().parent.parent
WORDS = {
    r"can not": "cannot",
    r"(?:he|him|his|himself)": "it, its, itself; or name the process",
    r"(?:whoever|whosoever|whomever)": "the process that, any client that",
    r"anew": "again",
    r"(?:wherefore|thereof|hereby|therein)": "plain words",
    r"by and by": "over time",
    r"in vain": "without effect, unsuccessfully",
    r"amiss": "wrong",
    r"who asks": "the caller",
    r"says nothing": "is silent, has no message",
    r"a word on": "a message on",
    r"without a word": "silently, without a report",
    r"for ever": "forever",
    r"(?:comes?|brings?) home": "returns",
    r"at the door": "when it is enqueued, when it arrives",
    r"(?:say|says) goodbye": "unregister, leave",
    r"the house(?:'s)?": "the process, the service",
    r"many a": "many",
    r"lest": "so that ... not",
    r"of whatever kind": "of any kind",
    r"save for": "except",
    r"did not land": "failed",
    r"last words": "last message",
    r"crosswise": "conflict, deadlock",
    r"(?:very|this) moment": "immediately, now",
    r"never heard of": "unknown to, never received by",
    r"whose time has come": "that are due",
    r"former self": "previous process",
}
PATTERNS = [(re.compile(rf"\b{word}\b", re.IGNORECASE), advice) for word, advice in WORDS.items()]
KINDS = (".py", ".sql", ".html", ".md", ".toml")
# Texts that are data, files that must not change, and this list.
LEFT_OUT = re.compile(
    r"/sql/migrations/|/sample/|/providers/local/|labelled|fixtures|^tests/|^bench/|^script/prose\.py$|_pb2"
)


def main() -> int:
    done = subprocess.run(GIT, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    tracked = done.stdout.splitlines()
    found = 0
    for name in tracked:
        path = ROOT / name
        if path.suffix in KINDS and path.is_file() and not LEFT_OUT.search(name):
            found += _look(name, path.read_text(encoding="utf-8"))
    return int(found > 0)


def _look(name: str, text: str) -> int:
    found = 0
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, advice in PATTERNS:
            for match in pattern.finditer(line):
                print(f"{name}:{number}: {match[0]!r}: write {advice}")
                found += 1
    return found


if __name__ == "__main__":
    sys.exit(main())
