"""The core names no extension: neither in code, nor in SQL, help texts, messages or comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shiftboss.extension import extensions

SOURCE = Path(__file__).resolve().parent.parent / "src" / "shiftboss"
CORE = sorted(
    path
    for pattern in ("**/*.py", "sql/functions/*.sql", "sql/views/*.sql")
    for path in SOURCE.glob(pattern)
    if path.relative_to(SOURCE).parts[0] != "extensions"
)
# Words that mean something else as well, and so count only where a name stands.
AMBIGUOUS = {"admin", "runs"}
# Contracts of the core whose names contain that of an extension, and landed columns.
TRACKING = {"ai", "vectorizer", "vectorizers"}  # the schema and the tables of worker tracking
EXEMPT = {
    "cli/token.py": {"admin"},  # the role
    "db/insights/condition.py": {"ai"},
    "db/roles.py": {"ai"},
    "db/tracking.py": TRACKING,
    "model/access.py": {"admin"},
    "model/settings.py": {"ai"},  # `ai_providers`, a capability of workers
    "sql/functions/50_steer.sql": {"coordinator"},  # a column of lane_reasons
    "sql/functions/72_process.sql": TRACKING,
    "sql/functions/95_tracking.sql": TRACKING,
    "worker/tracking.py": TRACKING,
}


def names() -> set[str]:
    found = {word for one in extensions() for word in (one.name, one.package.rpartition(".")[2])}
    return found | {f"{word}s" for word in found if not word.endswith("s")} | {"bot", "worker_runs"}


def named_in(text: str) -> set[str]:
    words = "|".join(sorted(names() - AMBIGUOUS))
    places = "|".join(sorted(AMBIGUOUS))
    found = re.findall(rf"\b({words})\b", text, re.IGNORECASE)
    found += re.findall(rf"(?:\bshiftboss |[.\"'\[])({places})\b", text)
    return {word.lower() for word in found}


def test_the_names_are_found() -> None:
    assert {"ai", "grpc", "coordinator", "journal", "bots", "ray", "chaos", "vectorizer"} <= names()
    assert named_in("`shiftboss runs list` and db.admin of gRPC") == {"runs", "admin", "grpc"}
    assert named_in("a service that runs while an admin waits") == set()


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_names_no_extension(path: Path) -> None:
    exempt = EXEMPT.get(str(path.relative_to(SOURCE)), set())
    assert named_in(path.read_text(encoding="utf-8")) - exempt == set()


def test_every_exemption_is_needed() -> None:
    for name, words in EXEMPT.items():
        assert words & named_in((SOURCE / name).read_text(encoding="utf-8")), name
