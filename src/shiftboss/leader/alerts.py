"""Alert notifications: the start and end of an alert are sent to webhooks and enqueued as a task."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from shiftboss.leader.election import Duty
from shiftboss.leader.rules import enabled_rules
from shiftboss.lifecycle import Service, ticks
from shiftboss.log import get_logger
from shiftboss.model.errors import ConfigError, ShiftbossError

if TYPE_CHECKING:
    from shiftboss.db import Database, Row
    from shiftboss.model.settings import AlertSettings

log = get_logger(__name__)

SEND_SECONDS = 2.0
TIMEOUT = 10.0
COLOURS = {"critical": "danger", "warning": "warning"}


class Alarm:
    """Evaluates the alert rules and sends notifications."""

    def __init__(self, db: Database, settings: AlertSettings) -> None:
        self._db, self._settings = db, settings
        self._targets = {target(url): url for url in settings.webhooks}
        self._key = signing_key(settings.secret)

    def duties(self) -> list[Duty]:
        duties = [Duty("alerts", self._settings.every_seconds, self.look)]
        return duties + ([Duty("announce", SEND_SECONDS, self.send)] if self._targets else [])

    async def look(self, only: str | None = None) -> list[Row]:
        """Evaluate every rule, or one of them. Return the alerts that started or ended.

        If a rule cannot be evaluated, its alerts stay as they are.
        """
        found, looked = [], []
        for rule, threshold in enabled_rules(self._settings):
            if only not in (None, rule.name):
                continue
            try:
                seen = await rule.find(self._db, threshold)
            except ShiftbossError as error:
                log.warning("cannot evaluate alert rule", rule=rule.name, reason=error.message)
                continue
            looked.append(rule.name)
            about = {"rule": rule.name, "severity": rule.severity, "threshold": threshold}
            found += [about | one._asdict() for one in seen]
        return await self._db.alerts.settle(looked, found, list(self._targets), self._settings.task)

    async def send(self) -> int:
        """Send the notifications that are due. Return how many were delivered."""
        due = await self._db.alerts.take_deliveries(list(self._targets))
        errors = await asyncio.gather(*(self._post(row) for row in due))
        for row, error in zip(due, errors, strict=True):
            await self._db.alerts.delivered(row["id"], error)
        return errors.count(None)

    async def _post(self, row: Row) -> str | None:
        """Send one notification. Return the error, or None. The URL is a secret: log its host only."""
        url = self._targets[row["target"]]
        body = orjson.dumps(message(row["alert"], row["moment"]))
        headers = signed(f"alert-{row['alert']['id']}-{row['moment']}", body, self._key)
        error = await asyncio.to_thread(_send, url, body, headers)
        if error is not None:
            log.warning("alert not delivered", host=urlsplit(url).hostname, reason=error)
        return error


class LeaderWatch(Service):
    """Raises an alert when there is no leader. Runs in processes that cannot become the leader."""

    LASTING = 60.0

    def __init__(self, db: Database, settings: AlertSettings) -> None:
        super().__init__()
        self._db, self._every = db, settings.every_seconds
        self._alarm = Alarm(db, settings)
        self._led_at = time.monotonic()

    async def run(self) -> None:
        self.ready()
        async for _ in ticks(self._every, self.stopping):
            try:
                await self._look()
            except ShiftbossError as error:
                log.warning("cannot check for a leader", reason=error.message)

    async def _look(self) -> None:
        if (await self._db.insights.figures.fleet())["led"]:
            self._led_at = time.monotonic()
        elif time.monotonic() - self._led_at >= self.LASTING:
            await self._alarm.look(only="nobody_leads")
            await self._alarm.send()


def target(url: str) -> str:
    """Return a hash that identifies a URL in the database."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def message(alert: dict[str, Any], moment: str) -> dict[str, Any]:
    """Return the body for a webhook, in Slack's format. Other receivers find all values in `fields`."""
    ended = moment == "end"
    title = "Resolved" if ended else alert["severity"].capitalize()
    names = ("rule", "subject", "severity", "value", "threshold", "started_at", "ended_at", "advice")
    fields = [
        {"title": n, "value": str(alert[n]), "short": n != "advice"}
        for n in names
        if alert[n] not in (None, "")
    ]
    return {
        "text": f"{title}: {alert['message']}",
        "attachments": [
            {
                "color": "good" if ended else COLOURS[alert["severity"]],
                "fallback": f"{title}: {alert['message']}",
                "title": alert["rule"],
                "text": "" if ended else f"`{alert['advice']}`",
                "fields": [{"title": "moment", "value": moment, "short": True}, *fields],
            }
        ],
    }


def signing_key(secret: str | None) -> bytes | None:
    """Return the key of a secret in the form `whsec_BASE64`."""
    try:
        return None if secret is None else base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ConfigError(
            "alerts.secret is not base64", hint="use whsec_ and 24 to 64 random bytes in base64"
        ) from None


def signed(id: str, body: bytes, key: bytes | None) -> dict[str, str]:
    """Return headers as standardwebhooks.com describes them. A repeated delivery has the same id."""
    at = str(int(time.time()))
    headers = {"Content-Type": "application/json", "webhook-id": id, "webhook-timestamp": at}
    if key is not None:
        digest = hmac.digest(key, f"{id}.{at}.".encode() + body, hashlib.sha256)
        headers["webhook-signature"] = "v1," + base64.b64encode(digest).decode()
    return headers


def _send(url: str, body: bytes, headers: dict[str, str]) -> str | None:
    from urllib.error import HTTPError  # with its HTTP client half a megabyte: few leaders have webhooks
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(url, body, headers), timeout=TIMEOUT) as answer:  # noqa: S310 -- checked in settings
            answer.read(1000)
    except HTTPError as error:
        return f"status {error.code}"
    except (OSError, ValueError) as error:
        return type(error).__name__
    return None
