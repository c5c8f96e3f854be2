"""An external worker in any language: durable work by SQL functions alone, over a plain driver."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest


@pytest.fixture
def conn(database_url: str) -> Any:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


def one(conn: psycopg.Connection[Any], sql: str, *params: Any) -> Any:
    row = conn.execute(sql, params).fetchone()
    return row[0] if row and len(row) == 1 else row


def enqueue(conn: psycopg.Connection[Any], kind: str = "research") -> UUID:
    id: UUID = one(conn, "INSERT INTO tasks (task_type, params) VALUES (%s, '{}') RETURNING id", kind)
    return id


def claim(conn: psycopg.Connection[Any]) -> tuple[UUID, int, int]:
    found = one(conn, "SELECT id, lease, attempt FROM shiftboss.claim('perl-1')")
    assert found is not None, "nothing to claim"
    id, lease, attempt = found
    return id, lease, attempt


def steps(conn: psycopg.Connection[Any], id: UUID) -> dict[tuple[str, str, int], Any]:
    found = one(conn, "SELECT steps FROM shiftboss.load_steps(ARRAY[%s]::uuid[])", id) or []
    return {(kind, name, ordinal): (state, result) for kind, name, ordinal, state, result, _ in found}


def store(conn: psycopg.Connection[Any], id: UUID, lease: int, name: str, result: Any) -> list[UUID]:
    stale: list[UUID] = one(
        conn,
        "SELECT shiftboss.store_steps(ARRAY[%s]::uuid[], ARRAY[%s]::bigint[], ARRAY[%s], ARRAY[1], ARRAY[0.1],"
        " ARRAY[%s]::jsonb[])",
        id,
        lease,
        name,
        json.dumps(result),
    )
    return stale


def suspend(conn: psycopg.Connection[Any], id: UUID, lease: int, *waits: dict[str, Any]) -> list[UUID]:
    sql = "SELECT shiftboss.suspend(ARRAY[%s]::uuid[], ARRAY[%s]::bigint[], ARRAY[%s]::jsonb[])"
    stale: list[UUID] = one(conn, sql, id, lease, json.dumps(waits))
    return stale


def complete(conn: psycopg.Connection[Any], id: UUID, lease: int, result: Any) -> None:
    sql = "SELECT shiftboss.complete(ARRAY[%s]::uuid[], ARRAY[%s]::bigint[], ARRAY[%s]::jsonb[])"
    assert one(conn, sql, id, lease, json.dumps(result)) == []


def test_steps_sleeps_events_children_and_streams_by_functions_alone(conn: psycopg.Connection[Any]) -> None:
    id = enqueue(conn)
    claimed, lease, attempt = claim(conn)
    assert (claimed, attempt, steps(conn, id)) == (id, 1, {})
    assert store(conn, id, lease, "search", [1, 2]) == []
    sql = "SELECT shiftboss.append_parts(ARRAY[%s]::uuid[], ARRAY[%s]::bigint[], ARRAY[NULL], ARRAY[%s]::jsonb[], ARRAY[1])"
    for _ in range(2):  # sent again, it adds nothing
        assert one(conn, sql, id, lease, '"hello"') == []
    assert suspend(conn, id, lease, {"kind": "sleep", "name": "rest", "ordinal": 1, "seconds": 0}) == []

    assert one(conn, "SELECT shiftboss.wake_due()") == 1
    _, second, attempt = claim(conn)
    assert attempt == 1, "a wait spends no attempt"
    assert steps(conn, id) == {
        ("step", "search", 1): ("done", [1, 2]),
        ("sleep", "rest", 1): ("done", None),
    }
    assert store(conn, id, lease, "late", 1) == [id], "the lease of the claim before is stale"
    question = {"question": "Good?", "schema": {"type": "boolean"}}
    event = {"kind": "event", "name": "verdict", "ordinal": 1, "key": "verdict", **question}
    child = {"kind": "child", "name": "draft", "ordinal": 1, "task": {"task_type": "draft", "params": {}}}
    assert suspend(conn, id, second, event, child) == []

    assert one(conn, "SELECT question, name FROM shiftboss.approvals") == ("Good?", "verdict")
    assert one(conn, "SELECT shiftboss.send_event('verdict', 'true')") == 1
    draft, its_lease, _ = claim(conn)
    assert draft != id
    complete(conn, draft, its_lease, "a draft")
    _, third, _ = claim(conn)
    found = steps(conn, id)
    assert found["event", "verdict", 1] == ("done", True)
    assert found["child", "draft", 1] == ("done", "a draft")
    complete(conn, id, third, {"ok": True})
    assert one(conn, "SELECT status, result_data FROM tasks WHERE id = %s", id) == ("Complete", {"ok": True})
    parts = conn.execute("SELECT seq, part FROM shiftboss.read_parts(%s)", [id]).fetchall()
    assert parts == [(1, "hello")]


def test_an_answer_by_sql_wakes_one_task(conn: psycopg.Connection[Any]) -> None:
    id = enqueue(conn)
    _, lease, _ = claim(conn)
    wait = {"kind": "event", "name": "approval", "ordinal": 1, "key": "approval", "question": "Publish it?"}
    suspend(conn, id, lease, wait)
    conn.execute("SELECT shiftboss.answer(%s, 'approval', 1, '{\"ok\": true}', 'ann')", [id])
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="no longer waits"):
        conn.execute("SELECT shiftboss.answer(%s, 'approval', 1, '{\"ok\": false}', 'bob')", [id])
    assert claim(conn)[0] == id
    assert steps(conn, id)["event", "approval", 1] == ("done", {"ok": True})
