"""Everything else over HTTP: tasks, workers, slots, queues, metrics, probes."""

from __future__ import annotations

import base64
import hmac
import sys
import time
from datetime import UTC, datetime
from uuid import uuid4

import httpx
import pytest
from admin_helpers import served
from prometheus_client.parser import text_string_to_metric_families

from shiftboss.db import Database
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.extensions.ai.providers.local import encoder
from shiftboss.leader.schedules import Cron, register
from shiftboss.model.settings import Settings
from shiftboss.model.step import Part, Step
from shiftboss.model.task import BUCKETS, NewTask
from shiftboss.model.worker import Member

V1 = "/api/v1/admin"


async def test_tasks(api: httpx.AsyncClient, db: Database, settings: Settings) -> None:
    made = (await api.post(f"{V1}/tasks", json={"task_type": "resize", "params": {"secret": 7}})).json()
    detail = (await api.get(f"{V1}/tasks/{made['id']}")).json()
    assert detail["why"][0]["reason"] == "no capable worker"
    page = (await api.get(f"{V1}/tasks", params={"status": "Queued", "text": "secret"})).json()
    assert [task["id"] for task in page["items"]] == [made["id"]]
    await db.workers.register(Member(id="w"))
    for _ in range(3):
        (task,) = await db.tasks.claim("w")
        await db.tasks.fail([(task.id, task.lease)], ["boom"])
    assert [a["error"] for a in (await api.get(f"{V1}/tasks/{made['id']}")).json()["attempts_made"]] == [
        "boom"
    ] * 3
    again = await api.post(f"{V1}/tasks/retry", json={"status": "Failed", "task_type": "resize"})
    assert again.json() == {"matched": 1, "changed": 1}
    assert (await api.post(f"{V1}/tasks/{made['id']}/run-now")).status_code == 422, "it is due"
    await db.execute("UPDATE tasks SET run_at = now() + interval '1 hour'")
    due = await api.post(f"{V1}/tasks/{made['id']}/run-now")
    assert datetime.fromisoformat(due.json()["run_at"]) <= datetime.now(UTC)
    assert (await api.post(f"{V1}/tasks/{uuid4()}/run-now")).status_code == 404
    gone = await api.post(f"{V1}/tasks/{made['id']}/cancel")
    assert gone.json()["status"] == "Cancelled"
    assert (await api.get(f"{V1}/tasks/{uuid4()}")).status_code == 404
    assert (await api.get(f"{V1}/tasks", params={"cursor": "bad"})).status_code == 422
    hidden = settings.model_copy(update={"admin": AdminSettings(hide_payloads=True)})
    async with served(db, hidden) as url, httpx.AsyncClient(base_url=url) as client:
        for path in (f"{V1}/tasks", f"{V1}/tasks/{made['id']}"):
            assert "secret" not in (await client.get(path)).text


async def test_workers_and_queues(api: httpx.AsyncClient, db: Database) -> None:
    await db.workers.register(Member(id="host/worker:default:0", queues=["default"]))
    for action, flag in (("pause", "paused"), ("drain", "draining")):
        assert (await api.post(f"{V1}/workers/host%2Fworker:default:0/{action}")).status_code == 200
        (worker,) = (await api.get(f"{V1}/workers")).json()
        assert worker[flag] is True
    assert (await api.post(f"{V1}/workers/nobody/pause")).status_code == 404
    assert (await api.post(f"{V1}/queues/default/pause", json={"reason": "lunch"})).json()["changed"] == [
        "default"
    ]
    await api.put(f"{V1}/queues/default/limits", json={"max_running": 3})
    (queue,) = (await api.get(f"{V1}/queues")).json()
    assert (queue["paused"], queue["pause_reason"], queue["max_running"]) == (True, "lunch", 3)


async def test_worker_health_in_the_documented_shape(api: httpx.AsyncClient, db: Database) -> None:
    await db.workers.register(Member(id="w"))
    await db.workers.beat("w", [], {"cpu_percent": 3.5, "memory_mb": 61, "goroutine_count": 9}, None)
    await db.workers.count_work(
        "w",
        [{"queue": "default", "task_type": "t", "completed": 3, "failed": 1, "seconds": 2.0, "buckets": [4]}],
    )
    (row,) = (await api.get(f"{V1}/worker-health")).json()
    assert row.pop("last_heartbeat")
    assert row == {
        "worker_id": "w",
        "status": "healthy",
        "active_tasks": 0,
        "processed_today": 4,
        "error_rate": 0.25,
        "avg_processing_time": 0.5,
        "resource_usage": {"cpu_percent": 3.5, "memory_mb": 61.0, "task_count": 0, "goroutine_count": 9},
    }


async def test_the_documented_worker_paths(api: httpx.AsyncClient, db: Database) -> None:
    for n in range(2):
        await db.health.register_worker(f"worker:processing:{n}", 4000 + n)
    rows = (await api.get("/api/web/worker/status")).json()
    assert set(rows[0]) == {"component", "status", "pid", "current_job", "restart_count", "last_seen"}
    assert (rows[0]["component"], rows[0]["pid"], type(rows[0]["last_seen"])) == (
        "worker:processing:0",
        4000,
        int,
    )
    assert (await api.post("/api/web/worker/pause/worker:processing:1")).json()["changed"] == [
        "worker:processing:1"
    ]
    assert [slot["paused"] for slot in (await api.get(f"{V1}/slots")).json()] == [False, True]
    assert len((await api.post("/api/web/worker/resume")).json()["changed"]) == 2
    assert len((await api.post("/api/web/worker/restart")).json()) == 2
    assert (await api.post("/api/web/worker/restart/worker:none:9")).status_code == 404
    one = (await api.get("/api/web/worker/status/worker:processing:1")).json()
    assert one["status"] == "starting"


async def test_autoscaling_is_set_by_queue(api: httpx.AsyncClient, db: Database) -> None:
    assert (await api.get(f"{V1}/autoscale")).json() == []
    answer = await api.put(f"{V1}/queues/mail/autoscale", json={"enabled": True, "max_workers": 4})
    assert answer.status_code == 200
    assert (answer.json()["queue"], answer.json()["max_workers"], answer.json()["min_workers"]) == (
        "mail",
        4,
        1,
    )
    assert await db.autoscale.get("mail") == {"enabled": True, "max_workers": 4}
    assert (await api.put(f"{V1}/queues/mail/autoscale", json={"max_workers": 0})).status_code == 422
    assert (await api.get(f"{V1}/autoscale")).json() == [answer.json()]


async def suspend_one(db: Database) -> None:
    """A task that sleeps."""
    await db.tasks.enqueue([NewTask(task_type="rest", priority=100)])
    (task,) = await db.tasks.claim("w", 1)
    wait = {"kind": "sleep", "name": "rest", "ordinal": 1, "seconds": 3600}
    await db.steps.suspend([(task.id, task.lease)], [[wait]])


async def test_metrics_under_their_documented_names(api: httpx.AsyncClient, db: Database) -> None:
    await db.workers.register(Member(id="w"))
    await db.health.register_worker("worker:default:0", 1)
    await db.health.mark_crashed("worker:default:0", "gone")
    buckets = [0] * (len(BUCKETS) + 1)
    buckets[0], buckets[-1] = 2, 1
    work = {"queue": "q", "task_type": "t", "completed": 2, "failed": 1, "seconds": 900.5, "buckets": buckets}
    await db.workers.beat("w", [], {}, [work])
    await db.runs.start_run("verify")
    await suspend_one(db)
    answer = await api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    samples = {
        (s.name, *sorted(s.labels.items())): s.value
        for family in text_string_to_metric_families(answer.text)
        for s in family.samples
    }
    who = (("task_type", "t"), ("worker_id", "w"))
    assert samples["worker_tasks_processed_total", ("status", "completed"), *who] == 2
    assert samples["worker_tasks_processed_total", ("status", "failed"), *who] == 1
    assert samples["worker_processing_duration_seconds_count", *who] == 3
    assert samples["worker_processing_duration_seconds_sum", *who] == 900.5
    assert samples["worker_processing_duration_seconds_bucket", ("le", "0.005"), *who] == 2
    assert samples["active_workers_total",] == 1
    assert samples["task_queue_depth",] == 1
    assert samples["tasks_suspended",] == 1
    assert samples["worker_crashes_total",] == 1
    assert samples["workers_by_status", ("status", "crashed")] == 1
    assert samples["worker_seconds_since_last_crash",] >= 0
    alerts = (await api.get(f"{V1}/alerts")).json()
    assert [alert["kind"] for alert in alerts] == ["all_workers_crashed"]


async def test_the_other_rooms(api: httpx.AsyncClient, db: Database) -> None:
    await register(db, [Cron(name="nightly", cron="0 3 * * *", task={"task_type": "report"})])
    await api.post(f"{V1}/schedules/nightly/pause")
    (schedule,) = (await api.get(f"{V1}/schedules")).json()
    assert (schedule["name"], schedule["paused"]) == ("nightly", True)
    await api.post(f"{V1}/schedules/nightly/resume")
    assert (await api.delete(f"{V1}/schedules/nightly")).status_code == 204
    assert (await api.post(f"{V1}/schedules/nightly/pause")).status_code == 404
    for path in ("providers", "vectorizers", "journal", "journal/entries", "places", "schedules", "events"):
        answer = await api.get(f"{V1}/{path}")
        assert (path, answer.status_code) == (path, 200)
    assert (await api.get(f"{V1}/journal/search", params={"query": "sea"})).json() == []
    assert (await api.post(f"{V1}/vectorizers/7/pause")).status_code == 404
    choices = (await api.get(f"{V1}/bots")).json()
    params = {bot["name"]: bot["params"] for bot in choices["bots"]}  # other tests may have brought more
    assert params.keys() >= {"discovery", "classify", "verify", "monitor"}
    assert params["verify"]["properties"]["limit"]["maximum"] == 1_000_000
    assert choices["cities"]["rotterdam"] == "Rotterdam"


async def test_a_search_without_its_packages_says_what_to_install(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    encoder._session.cache_clear()
    answer = await api.get(f"{V1}/journal/search", params={"query": "sea"})
    assert answer.status_code == 503
    assert "not installed (onnxruntime)" in answer.json()["detail"]
    assert answer.json()["hint"] == "pip install 'shiftboss[ai]'"


async def test_schedules_are_made_changed_and_checked(api: httpx.AsyncClient, db: Database) -> None:
    nightly = f"{V1}/schedules/nightly"
    body = {
        "cron": "0 3 * * *",
        "task_type": "cleanup",
        "params": {"days": 7},
        "queue": "slow",
        "priority": 1,
        "tenant": "acme",
        "requires": {"gpu": True},
        "timezone": "Europe/Madrid",
    }
    made = (await api.put(nightly, json=body)).json()
    assert (made["name"], made["timezone"], made["missed"]) == ("nightly", "Europe/Madrid", "latest")
    wanted = {key: body[key] for key in ("task_type", "params", "queue", "priority", "tenant", "requires")}
    assert made["task"] == wanted
    changed = (await api.put(nightly, json=body | {"cron": "0 4 * * *", "missed": "skip"})).json()
    assert (changed["cron"], changed["missed"]) == ("0 4 * * *", "skip")
    for bad in ({"cron": "often"}, {"timezone": "Nowhere"}, {"requires": {"wings": 2}}, {"priority": 101}):
        assert (await api.put(nightly, json=body | bad)).status_code == 422, bad
    (row,) = await db.schedules.all()
    assert row["cron"] == "0 4 * * *"
    assert await db.fetch("SELECT FROM public.tasks") == []


async def test_probes_and_document(api: httpx.AsyncClient) -> None:
    assert (await api.get("/healthz")).json() == {"status": "ok"}
    assert (await api.get("/readyz")).json() == {"status": "ok"}
    document = (await api.get("/api/openapi.json")).json()
    start = document["paths"][f"{V1}/workers/run"]["post"]
    assert "201" in start["responses"]
    assert document["components"]["schemas"]["StartRun"]["properties"]["bot"]["examples"] == ["discovery"]
    nowhere = await api.get("/api/nowhere")
    assert (nowhere.status_code, nowhere.headers["content-type"]) == (404, "application/problem+json")


async def test_steps_and_events(api: httpx.AsyncClient, db: Database) -> None:
    id = (await api.post(f"{V1}/tasks", json={"task_type": "agent"})).json()["id"]
    await db.workers.register(Member(id="w"))
    (task,) = await db.tasks.claim("w")
    held = (task.id, task.lease)
    assert await db.steps.store([Step(*held, name="draft", ordinal=1, seconds=0.5, result=b'{"n": 1}')]) == []
    assert (
        await db.steps.suspend([held], [[{"kind": "event", "name": "ok", "ordinal": 1, "key": "ok"}]]) == []
    )
    steps = (await api.get(f"{V1}/tasks/{id}/steps")).json()
    assert [(step["name"], step["state"], step["result"]) for step in steps] == [
        ("draft", "done", {"n": 1}),
        ("ok", "waiting", None),
    ]
    sent = await api.post(f"{V1}/events", json={"key": "ok", "payload": {"by": "Ann"}, "task_id": id})
    assert (sent.status_code, sent.json()) == (201, {"woken": 1})
    lost = await api.post(f"{V1}/events", json={"key": "ok", "task_id": str(uuid4())})
    assert lost.status_code == 404
    (task,) = await db.tasks.claim("w")
    await db.tasks.fail([(task.id, task.lease)], ["boom"], retry=[False])
    assert (await api.post(f"{V1}/tasks/{id}/retry?from=nothing")).status_code == 404
    assert (await api.post(f"{V1}/tasks/{id}/retry?from=ok")).json()["status"] == "Queued"
    assert [step["name"] for step in (await api.get(f"{V1}/tasks/{id}/steps")).json()] == ["draft"]
    assert (await api.get(f"{V1}/tasks/{uuid4()}/steps")).status_code == 404


async def test_a_stream_goes_on_where_its_reader_was(api: httpx.AsyncClient, db: Database) -> None:
    id = (await api.post(f"{V1}/tasks", json={"task_type": "agent"})).json()["id"]
    await db.workers.register(Member(id="w"))
    (task,) = await db.tasks.claim("w")
    await db.steps.append([Part(task.id, task.lease, None, text) for text in (b'"a"', b'"b"')])
    await db.tasks.fail([(task.id, task.lease)], ["boom"])
    (task,) = await db.tasks.claim("w")
    await db.steps.append([Part(task.id, task.lease, None, b'"c"')])
    await db.tasks.complete([(task.id, task.lease)], [None])
    whole = (await api.get(f"{V1}/tasks/{id}/stream")).text
    assert whole.startswith('id: 1\nevent: part\ndata: "a"\n\n')
    assert 'id: 3\nevent: restart\ndata: {"attempt":2,"discard":[1,2]}\n\n' in whole
    rest = await api.get(f"{V1}/tasks/{id}/stream", headers={"Last-Event-ID": "3"})
    assert rest.text == 'id: 4\nevent: part\ndata: "c"\n\nevent: end\ndata: {}\n\n'


def signed(
    body: bytes, secret: bytes = b"k" * 32, at: float | None = None, id: str = "msg_1"
) -> dict[str, str]:
    """The headers of a delivery, as standardwebhooks.com describes them."""
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.digest(secret, f"{id}.{stamp}.".encode() + body, "sha256")
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": f"v1,old {signature}"}


async def test_a_signed_webhook_becomes_an_event(
    db: Database, settings: Settings, api: httpx.AsyncClient
) -> None:
    body = b'{"paid": true}'
    assert (
        await api.post("/hooks/shop", content=body, headers=signed(body))
    ).status_code == 404  # not set up
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    chosen = settings.model_copy(update={"admin": AdminSettings(auth="required", webhook_secret=secret)})
    await db.workers.register(Member(id="w"))
    await db.tasks.enqueue([NewTask(task_type="order")])
    (task,) = await db.tasks.claim("w")
    wait = {"kind": "event", "name": "hook:shop", "ordinal": 1, "key": "hook:shop"}
    await db.steps.suspend([(task.id, task.lease)], [[wait]])
    async with served(db, chosen) as url, httpx.AsyncClient(base_url=url) as client:
        for headers in (signed(body, b"x" * 32), signed(body, at=1000), signed(b"other")):
            assert (await client.post("/hooks/shop", content=body, headers=headers)).status_code == 401
        assert (await client.post("/hooks/shop", content=body)).status_code == 422
        sent = await client.post("/hooks/shop", content=body, headers=signed(body))
        assert (sent.status_code, sent.json()) == (202, {"woken": 1})
        assert (await client.post("/hooks/shop", content=body, headers=signed(body))).json() == {"woken": 0}
    assert len(await db.fetch("SELECT * FROM shiftboss.sent_events")) == 1
    (step,) = await db.steps.of(task.id)
    assert step["result"] == {"paid": True}
