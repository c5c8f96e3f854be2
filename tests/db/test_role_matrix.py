"""Every function and table in the catalog, called by a real login of each kind of role."""

from __future__ import annotations

import subprocess
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from shiftboss.db.roles import READ_TO_ENQUEUE, SECRET, SETTLED, Kind, grants
from shiftboss.db.server import programs, server_account
from tests.conftest import as_superuser

OURS = ("shiftboss", "ai", "public")
#: Functions that run with the rights of their owner, beside triggers. All but `enqueue`, which is granted, only wake
#: workers: a role that misuses them makes workers poll.
DEFINERS = {
    "shiftboss.arm()",
    "shiftboss.disarm(bigint)",
    "shiftboss.enqueue(jsonb,integer)",
    "shiftboss.hear(bigint)",
    "shiftboss.ring()",
    "shiftboss.somebody_sleeps()",
}
WAKING = ("shiftboss.armed", "shiftboss.heard")
FUNCTIONS = """
    SELECT p.oid::regprocedure::text AS name, n.nspname AS schema, p.proname AS short, p.prosecdef AS definer,
        p.prokind AS kind, p.prorettype = 'trigger'::regtype OR p.prorettype = 'event_trigger'::regtype AS fires,
        ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) t) AS types, p.proconfig AS config
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = ANY (%s) AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    ORDER BY 1"""
TABLES = """
    SELECT format('%%I.%%I', n.nspname, c.relname) AS name, n.nspname AS schema, c.relname AS short FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'p') ORDER BY 1"""
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
Rows = list[dict[str, Any]]


def _rows(url: str, query: str) -> Rows:
    with psycopg.connect(as_superuser(url), row_factory=psycopg.rows.dict_row) as conn:
        return conn.execute(query, [list(OURS)]).fetchall()  # type: ignore[arg-type]


def _data(url: str) -> list[str]:
    """All rows, as a dump has them; random restriction keys of pg_dump left out."""
    pg_dump = programs(server_account()) / "pg_dump"
    command = [pg_dump, "--data-only", "--inserts", as_superuser(url)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line for line in text.splitlines() if line.startswith("INSERT") or "setval" in line]
    return [row for row in rows if not any(name in row for name in WAKING)]


def _call(conn: psycopg.Connection[Any], one: dict[str, Any], values: dict[str, str]) -> str:
    """The SQLSTATE of the call."""
    words = sql.SQL(", ").join(
        sql.SQL("{}::{}").format(sql.Literal(values.get(kind.removesuffix("[]"))), sql.SQL(kind))
        if not kind.endswith("[]")
        else sql.SQL("ARRAY[{}]::{}").format(sql.Literal(values.get(kind.removesuffix("[]"))), sql.SQL(kind))
        for kind in one["types"]
    )
    name = sql.Identifier(one["schema"], one["short"])
    verb = "CALL" if one["kind"] == "p" else "SELECT"
    try:
        conn.execute(sql.SQL("{} {}({})").format(sql.SQL(verb), name, words))
    except psycopg.Error as error:
        return error.sqlstate or "XX000"
    return "00000"


def test_no_function_runs_with_its_owners_rights_but_triggers(database_url: str) -> None:
    found = _rows(database_url, FUNCTIONS)
    assert len(found) > 150
    assert {one["name"] for one in found if one["definer"] and not one["fires"]} == DEFINERS
    loose = [one["name"] for one in found if one["definer"] and "search_path" not in str(one["config"])]
    assert loose == [], "a definer's function without a search_path of its own can be hijacked"


@pytest.mark.parametrize("kind", [None, Kind.ENQUEUE, Kind.VIEWER])
async def test_no_function_lets_a_lesser_role_change_anything(
    database_url: str, login: str, kind: Kind | None
) -> None:
    role = urlsplit(login).username or ""
    if kind is not None:
        await grants(database_url, kind, role, apply=True)
    with psycopg.connect(database_url) as owner:
        task = owner.execute(
            "INSERT INTO tasks (task_type, params) VALUES ('t', '{}') RETURNING id::text"
        ).fetchone()
        assert task is not None
    values = {"uuid": task[0], "text": "default", "integer": "1", "bigint": "1", "jsonb": "{}", "interval": "1 second",
              "boolean": "true", "smallint": "1", "timestamp with time zone": "2026-01-01", "json": "{}", "bytea": "x",
              "double precision": "1", "numeric": "1", "real": "1", "regclass": "public.tasks", "name": "tasks"}  # fmt: skip
    before, allowed = _data(database_url), 0
    with psycopg.connect(login, autocommit=True) as conn:
        conn.execute("SET statement_timeout = '5s'")
        for one in _rows(database_url, FUNCTIONS):
            adds = one["short"] == "enqueue" or (one["short"] == "record" and kind is Kind.ENQUEUE)
            if one["fires"] or one["kind"] not in "fp" or adds:
                continue
            for given in ({}, values):
                state = _call(conn, one, given)
                allowed += state == "00000"
                assert state[:2] not in ("XX", "58"), (one["name"], state)
    assert _data(database_url) == before, "something was changed"
    if kind is None:
        assert allowed == 0, "a role without a grant called something"


@pytest.mark.parametrize("kind", [None, Kind.ENQUEUE, Kind.VIEWER, Kind.WORKER, Kind.OPERATOR])
async def test_the_rights_on_every_table(database_url: str, login: str, kind: Kind | None) -> None:
    role = urlsplit(login).username or ""
    if kind is not None:
        await grants(database_url, kind, role, apply=True)
    with psycopg.connect(as_superuser(database_url)) as conn:
        for one in _rows(database_url, TABLES):
            for right in RIGHTS:
                query = "SELECT has_table_privilege(%s, %s, %s)"
                has = (conn.execute(query, [role, one["name"], right]).fetchone() or (None,))[0]
                assert has == _may(kind, one, right, bool(has)), (kind, one["name"], right, has)


def _may(kind: Kind | None, table: dict[str, Any], right: str, has: bool) -> bool:
    """Whether a kind may; where a table belongs to an extension's own choice, what it has, if that is allowed."""
    if right in ("TRUNCATE", "REFERENCES", "TRIGGER") or kind is None:
        return False
    ours = table["schema"] == "shiftboss"
    if kind is Kind.ENQUEUE:
        reads = right == "SELECT" and table["short"] in READ_TO_ENQUEUE
        return ours and (reads or (table["short"], right) == ("audit", "INSERT"))
    kept = table["short"] == "migrations" or (table["short"] == "audit" and right != "INSERT")
    if kind is Kind.OPERATOR and ours and right != "SELECT" and kept:
        return False
    if ours and table["short"] in SECRET:
        return kind is Kind.OPERATOR
    if right != "SELECT" and (kind is Kind.VIEWER or (kind is Kind.WORKER and table["short"] in SETTLED)):
        return False
    return has if table["schema"] == "public" else True
