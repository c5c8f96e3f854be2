"""Runs over HTTP: the documented calls, unknown keys, two operators, a missing id."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import httpx

from shiftboss.db import Database
from shiftboss.model.worker import Member

V1 = "/api/v1/admin"


async def test_start_list_show_cancel_retry(api: httpx.AsyncClient, db: Database) -> None:
    made = await api.post(
        f"{V1}/workers/run", json={"bot": " Discovery ", "city": "rotterdam", "category": "bakery"}
    )
    assert made.status_code == 201
    body = made.json()
    id = body.pop("run_id")
    assert body == {
        "bot": "discovery",
        "city": "rotterdam",
        "category": "bakery",
        "tracking_available": True,
        "created": True,
    }
    shown = (await api.get(made.headers["Location"])).json()
    assert (shown["status"], shown["progress"], shown["counters"], shown["error_message"]) == (
        "pending",
        0,
        {},
        None,
    )
    page = (await api.get(f"{V1}/workers/runs", params={"bot": "discovery", "status": "pending"})).json()
    assert (page["total"], page["limit"], page["offset"], page["items"][0]["id"]) == (1, 50, 0, id)
    snapshot = (await api.get(f"{V1}/metrics/snapshot")).json()
    assert snapshot["current_runs"][0].items() >= {"id": id, "status": "pending", "progress": 0}.items()
    assert snapshot["queue"]["queued"] == 1
    assert set(snapshot["latency"]) == {"p50_ms", "avg_ms", "max_ms"}

    assert (await api.post(f"{V1}/workers/runs/{id}/retry")).status_code == 409
    stopped = await api.post(f"{V1}/workers/runs/{id}/cancel")
    assert (stopped.json()["status"], stopped.json()["error_message"]) == ("failed", "cancelled: by local")
    assert (await api.post(f"{V1}/workers/runs/{id}/cancel")).status_code == 409
    again = await api.post(f"{V1}/workers/runs/{id}/retry")
    assert again.status_code == 201
    new = (await api.get(again.headers["Location"])).json()
    assert (new["retry_of"], new["status"]) == (id, "pending")


async def test_blank_keys_are_none_and_unknown_ones_are_named(api: httpx.AsyncClient) -> None:
    made = await api.post(f"{V1}/workers/run", json={"bot": "verify", "city": "  "})
    assert made.json()["city"] is None
    for field, body in {
        "bot": {"bot": "burglar"},
        "city": {"bot": "verify", "city": "atlantis"},
        "category": {"bot": "verify", "category": "unicorns"},
    }.items():
        answer = await api.post(f"{V1}/workers/run", json=body)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        (error,) = answer.json()["errors"]
        assert (error["field"], error["value"]) == (field, body[field])
        assert {"bot": "discovery", "city": "rotterdam", "category": "bakery"}[field] in error["allowed"]
    wrong = await api.post(f"{V1}/workers/run", json={"bot": "verify", "params": {"limit": 0, "colour": 1}})
    assert {error["field"] for error in wrong.json()["errors"]} == {"limit", "colour"}


async def test_two_operators_start_the_same_run(as_role, db: Database) -> None:  # type: ignore[no-untyped-def]
    ann, bob = await as_role("operator"), await as_role("operator")
    body = {"bot": "monitor", "city": "delft"}
    answers = await asyncio.gather(*(who.post(f"{V1}/workers/run", json=body) for who in (ann, bob)))
    assert sorted(answer.status_code for answer in answers) == [200, 201]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert await db.runs.count_runs() == 1


async def test_a_missing_run(api: httpx.AsyncClient) -> None:
    for call in (
        api.get(f"{V1}/workers/runs/{uuid4()}"),
        api.post(f"{V1}/workers/runs/{uuid4()}/cancel"),
        api.post(f"{V1}/workers/runs/{uuid4()}/retry"),
    ):
        answer = await call
        assert answer.status_code == 404
        assert "there is no run" in answer.json()["detail"]


async def test_a_run_whose_worker_dies(api: httpx.AsyncClient, db: Database) -> None:
    id = (await api.post(f"{V1}/workers/run", json={"bot": "verify"})).json()["run_id"]
    await db.workers.register(Member(id="w"))
    (task,) = await db.tasks.claim("w")
    assert task.run_id is not None
    await db.runs.report_run(task.run_id, task.lease, 64, {"checked": 9})
    await db.workers.lose_worker(["w"], "crashed", "killed by SIGKILL")
    run = (await api.get(f"{V1}/workers/runs/{id}")).json()
    assert (run["status"], run["progress"], run["counters"], run["error_message"]) == (
        "failed",
        64,
        {"checked": 9},
        "killed by SIGKILL",
    )
