"""Alerts: announced once when they start and once when they end, signed, and retried until delivered."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.leader.alerts import Alarm, LeaderWatch
from shiftboss.leader.rules import CORE, all_rules
from shiftboss.model.settings import AlertSettings
from shiftboss.model.task import NewTask
from shiftboss.model.worker import Member

KEY = b"0123456789abcdef01234567"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Delivery(NamedTuple):
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return str(json.loads(self.body)["text"])

    def fields(self) -> dict[str, str]:
        [attachment] = json.loads(self.body)["attachments"]
        return {field["title"]: field["value"] for field in attachment["fields"]}


class Receiver(HTTPServer):
    """A webhook's other end; answers with `statuses` first, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.got: list[Delivery] = []
        self.statuses: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook/secret-path"


class _Answer(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append(Delivery({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def old_task(db: Database) -> None:
    at = datetime.now(UTC) - timedelta(hours=1)
    await db.tasks.enqueue([NewTask(task_type="t", queue="mail", run_at=at)])


async def quiet(db: Database) -> None:
    """Nothing was found for a while."""
    await db.execute("UPDATE shiftboss.alerts SET seen_at = seen_at - interval '1 minute'")


def alarm(db: Database, **settings: Any) -> Alarm:
    return Alarm(db, AlertSettings(off=("nobody_leads",), **settings))


async def test_an_alert_is_announced_once_at_its_start_and_its_end(db: Database, receiver: Receiver) -> None:
    watch = alarm(db, webhooks=(receiver.url,), secret=SECRET)
    await old_task(db)
    assert [row["moment"] for row in await watch.look()] == ["start"]
    assert await watch.look() == []
    await quiet(db)
    assert await watch.look() == [], "it still holds"
    assert await watch.send() == 1
    [row] = await db.alerts.firing()
    assert (row["rule"], row["subject"], row["threshold"]) == ("queue_too_old", "mail", 600)
    await db.execute("DELETE FROM tasks")
    assert await watch.look() == [], "it ends after a quiet while"
    await quiet(db)
    assert [row["moment"] for row in await watch.look()] == ["end"]
    assert await watch.send() == 1
    assert await watch.send() == 0
    assert await db.alerts.firing() == []
    start, end = receiver.got
    assert start.text.startswith("Warning: the oldest task in queue mail has waited for 36")
    assert end.text.startswith("Resolved: the oldest task in queue mail")
    assert start.fields()["advice"] == "shiftboss queues list"
    assert (start.fields()["moment"], end.fields()["moment"]) == ("start", "end")
    for delivery in receiver.got:
        said = delivery.headers
        signed = f"{said['webhook-id']}.{said['webhook-timestamp']}.".encode() + delivery.body
        digest = base64.b64encode(hmac.digest(KEY, signed, hashlib.sha256)).decode()
        assert said["webhook-signature"] == f"v1,{digest}"
    kinds = [row["kind"] for row in await db.events.latest(10)]
    assert sorted(kind for kind in kinds if kind.startswith("alert.")) == ["alert.ended", "alert.started"]


async def test_a_delivery_is_retried_with_the_same_id(
    db: Database, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500, 404]
    watch = alarm(db, webhooks=(receiver.url,))
    await old_task(db)
    await watch.look()
    for delivered in (0, 0, 1):
        assert await watch.send() == delivered
        assert await watch.send() == 0, "not before its time"
        await db.execute("UPDATE shiftboss.alert_deliveries SET next_at = now() WHERE next_at IS NOT NULL")
    assert len({delivery.headers["webhook-id"] for delivery in receiver.got}) == 1
    assert len(receiver.got) == 3
    assert "webhook-signature" not in receiver.got[0].headers
    assert "secret-path" not in caplog.text
    stored = await db.fetch("SELECT * FROM shiftboss.alert_deliveries")
    assert "secret-path" not in str(stored)


async def test_an_alert_can_be_handed_to_a_task(db: Database) -> None:
    await old_task(db)
    await alarm(db, task="page_somebody").look()
    [row] = await db.fetch("SELECT params FROM tasks WHERE task_type = 'page_somebody'")
    assert (row["params"]["alert"]["rule"], row["params"]["alert"]["moment"]) == ("queue_too_old", "start")


async def test_every_rule_of_the_core_finds_what_it_is_about(db: Database) -> None:
    await old_task(db)
    await db.workers.register(Member(id="w"))
    work = {"queue": "q", "task_type": "flaky", "completed": 5, "failed": 20, "seconds": 1, "buckets": []}
    await db.workers.beat("w", [], {}, [work])
    await db.health.register_worker("worker:q:0", 1)
    await db.execute(
        "UPDATE health SET status = 'crashed', restarts = array_fill(extract(epoch FROM now())::float8, '{4}')"
    )
    await db.execute("UPDATE health SET status = 'failed'")
    await Alarm(db, AlertSettings()).look()
    firing = {row["rule"]: row for row in await db.alerts.firing()}
    assert set(firing) == {rule.name for rule in CORE}
    assert firing["failure_rate"]["subject"] == "flaky"
    assert firing["failure_rate"]["value"] == 0.8
    assert firing["worker_failed"]["advice"] == "shiftboss restart worker:q:0"
    shown = await db.insights.overview.alerts()
    assert {alert["kind"] for alert in shown if alert["since"]} == set(firing)


async def test_thresholds_can_be_set_and_rules_turned_off(db: Database) -> None:
    await old_task(db)
    assert await alarm(db, thresholds={"queue_too_old": 10_000}).look() == []
    assert await Alarm(db, AlertSettings(off=("queue_too_old", "nobody_leads"))).look() == []
    assert len(await alarm(db, thresholds={"queue_too_old": 3000}).look()) == 1


async def test_that_nobody_leads_is_announced_by_a_process_that_does_not(
    db: Database, receiver: Receiver, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaderWatch, "LASTING", 0.0)
    async with LeaderWatch(db, AlertSettings(webhooks=(receiver.url,), every_seconds=0.05)):
        await eventually(lambda: receiver.got)
    assert receiver.got[0].text.startswith("Critical: the fleet has no leader")
    assert "start a worker (shiftboss worker module:app)" in receiver.got[0].text


def test_rules_for_prometheus_and_a_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None and os.environ.get("CI") != "true":
        pytest.skip("no promtool on this machine: script/setup --browser installs it as root")
    assert promtool, "in CI no test is left out"

    def printed(what: str) -> str:
        capsys.readouterr()
        assert main(["alerts", what]) == 0
        return capsys.readouterr().out

    file = tmp_path / "rules.yml"
    file.write_text(printed("prometheus"))
    checked = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"SUCCESS: {len(all_rules())} rules found" in checked.stdout
    board = json.loads(printed("grafana"))
    titles = {panel["title"] for panel in board["panels"]}
    assert titles >= {rule.summary for rule in all_rules()}
    # Both use metrics that exist: promtool checks each expression of the board as a rule.
    rules = [{"record": f"r:{n}", "expr": p["targets"][0]["expr"]} for n, p in enumerate(board["panels"])]
    file.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    subprocess.run([promtool, "check", "rules", file], capture_output=True, check=True)
