"""Files of each kind; an invalid line is reported by its number and does not affect others."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftboss.extensions.journal.parsing import Parsed
from shiftboss.extensions.journal.reading import Problem, read
from shiftboss.model.errors import UsageError


def split(paths: list[Path], user: str | None = None) -> tuple[list[Parsed], list[Problem]]:
    found = list(read(paths, user=user))
    good = [entry for entry in found if isinstance(entry, Parsed)]
    return good, [entry for entry in found if isinstance(entry, Problem)]


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"user": "ada", "date": "2025-01-01", "text": "One."}\n'
        "\n"
        '{"user": "ada", "date": "2025-01-02"\n'
        "[1, 2]\n"
        '{"user": "ada", "date": "soon", "text": "Bad date."}\n'
        '{"user": "ada", "date": "2025-01-03", "text": "Two."}'
    )
    good, bad = split([file])
    assert [entry.parts[0]["content"] for entry in good] == ["One.", "Two."]
    assert [(problem.line, problem.message.split(":")[0]) for problem in bad] == [
        (3, "not JSON"),
        (4, "not a JSON object"),
        (5, "cannot read the date 'soon'"),
    ]


def test_csv_with_lines_inside_a_field(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        "author,date,body,labels\n"
        'ada,2025-01-01,"two\nlines","x, y"\n'
        "ada,2025-01-02\n"
        "ada,2025-01-03,a,b,c,d\n"
        "ada,2025-01-04,last,\n"
    )
    good, bad = split([file])
    assert [entry.parts[0]["content"] for entry in good] == ["two\nlines", "last"]
    assert good[0].metadata["tags"] == ["x", "y"]
    assert [problem.line for problem in bad] == [4, 5]


def test_a_folder_of_prose(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "2025-02-03 monday.md").write_text("# Monday\n\nRain.")
    (tmp_path / "deep" / "b.txt").write_text("---\ndate: 2025-04-05\nuser: bob\ntags: [a, b]\n---\nSun.")
    (tmp_path / "deep" / "c.md").write_text("---\ndate: [\n---\nBroken.")
    (tmp_path / "deep" / "d.md").write_text("---\ndate: 2025-02-30\n---\nThere is no such day.")
    (tmp_path / "deep" / "e.md").write_text("---\ndate: 2025-02-03\ncount: 99999999999999999999\n---\nMany.")
    (tmp_path / "deep" / "f.txt").write_bytes(b"\xff")
    (tmp_path / "deep" / "picture.png").write_bytes(b"\x89PNG")
    good, bad = split([tmp_path], user="ada")
    assert [(e.user_id, e.written_at.date().isoformat(), e.external_id) for e in good] == [
        ("ada", "2025-02-03", "2025-02-03 monday"),
        ("bob", "2025-04-05", "b"),
    ]
    assert [Path(problem.path).name for problem in bad] == ["c.md", "d.md", "e.md", "f.txt"]


def test_a_wrong_path_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Rain.")
    entries = read([tmp_path / "a.txt", tmp_path / "b.txt"], user="ada")
    with pytest.raises(UsageError, match=r"there is no file .*b\.txt"):
        next(entries)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"%PDF", "unknown kind of file"),
        ("a.jsonl", b"\xff\xfe\x00", "not UTF-8"),
        ("missing.csv", None, "there is no file"),
        ("", None, "no text files in"),
    ],
)
def test_a_file_that_can_not_be_read_is_a_clear_error(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        list(read([path]))
