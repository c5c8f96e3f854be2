"""Every function of ours with random arguments, as an ordinary role: an error that says why, never a broken server.

SHIFTBOSS_TEST_FUZZ=1000 calls each function so often.
"""

from __future__ import annotations

import os
import random
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from shiftboss.db.roles import Kind, grants
from tests.db.test_role_matrix import FUNCTIONS, _call, _rows

ROUNDS = int(os.environ.get("SHIFTBOSS_TEST_FUZZ", "3"))
#: Classes of SQLSTATE that a caller can act upon: what it gave is wrong, missing, too large, taken or not allowed.
CHOSEN = {
    "00",
    "02",
    "0A",  # such as a bin of one month
    "20",
    "21",
    "22",
    "23",
    "25",
    "26",
    "2B",
    "2F",
    "3B",
    "3D",
    "3F",
    "40",
    "42",
    "44",
    "54",
    "55",
    "57",
    "P0",
}
VALUES: dict[str, tuple[str, ...]] = {
    "text": (
        "",
        "default",
        "x" * 3000,
        "'; DROP TABLE tasks; --",
        "ü\U0001f600",
        "public.tasks",
        "NaN",
        "-1",
        "%s",
    ),
    "uuid": ("01890000-0000-7000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "jsonb": (
        "{}",
        "[]",
        "null",
        "1e400",
        '"x"',
        '[{"task_type": ""}]',
        '{"a": {"b": [1, 2, {"c": null}]}}',
        "[[[[]]]]",
    ),
    "integer": ("0", "-1", "1", "2147483647", "-2147483648"),
    "bigint": ("0", "-1", "9223372036854775807", "-9223372036854775808"),
    "smallint": ("0", "-1", "32767"),
    "interval": ("0", "-1 day", "1 second", "178000000 years", "1 month"),
    "timestamp with time zone": ("infinity", "-infinity", "4713-01-01 BC", "2026-01-01", "294276-01-01"),
    "boolean": ("true", "false"),
    "double precision": ("NaN", "Infinity", "-0", "1e308", "5e-324"),
    "real": ("NaN", "Infinity", "1e38"),
    "numeric": ("NaN", "0", "1e1000", "-1e-1000"),
    "bytea": ("", "\\x00ff", "x"),
    "regclass": ("public.tasks", "pg_class"),
    "name": ("tasks", ""),
    "tid": ("(0,1)",),
}


@pytest.mark.timeout(60 * ROUNDS)
async def test_no_function_breaks_the_server(database_url: str, login: str) -> None:
    await grants(database_url, Kind.OPERATOR, urlsplit(login).username or "", apply=True)
    chance = random.Random(26)
    functions = [one for one in _rows(database_url, FUNCTIONS) if not one["fires"] and one["kind"] in "fp"]
    assert len(functions) > 150
    with psycopg.connect(login, autocommit=True) as conn:
        conn.execute("SET statement_timeout = '10s'")
        conn.execute(
            "INSERT INTO tasks (id, task_type) VALUES ('01890000-0000-7000-8000-000000000000', 'default')"
        )
        for one in functions:
            for _ in range(ROUNDS):
                given = {kind: chance.choice((*values, None)) for kind, values in VALUES.items()}  # type: ignore[arg-type]
                state = _call(conn, one, given)  # type: ignore[arg-type]
                assert state[:2] in CHOSEN, (one["name"], state, _told(given, one))
                assert not conn.broken, (one["name"], given)


def _told(given: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    return {kind: given.get(kind.removesuffix("[]")) for kind in one["types"]}
