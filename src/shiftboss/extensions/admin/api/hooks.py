"""Webhooks: a signed POST becomes an event. The signature replaces the token."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from typing import Annotated
from uuid import NAMESPACE_URL, uuid5

import orjson
from fastapi import APIRouter, Header, Request
from pydantic import StringConstraints

from shiftboss.extensions.admin.api.common import NO_NUL, Out, PathName
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.problems import Unauthorized, responses
from shiftboss.extensions.admin.settings import AdminSettings
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import ConfigError, NotFound, UsageError

router = APIRouter(tags=["events"])

#: The allowed difference between the clocks in seconds, as the specification recommends.
TOLERANCE = 300
Short = Annotated[str, StringConstraints(max_length=1000, pattern=NO_NUL)]


class Received(Out):
    woken: int


@router.post("/hooks/{key}", status_code=202, responses=responses(404, 422))
async def receive(
    key: PathName,
    request: Request,
    admin: At,
    webhook_id: Annotated[Short, Header()],
    webhook_timestamp: Annotated[int, Header()],
    webhook_signature: Annotated[Short, Header()],
) -> Received:
    """Send the event `hook:KEY` with the body as payload, signed as described by standardwebhooks.com.

    A repeated delivery with the same webhook-id has no effect.
    """
    secret = AdminSettings.of(admin.settings).webhook_secret
    if secret is None:
        raise NotFound("webhooks are off", hint="set SHIFTBOSS_ADMIN_WEBHOOK_SECRET")
    body = await request.body()
    if abs(time.time() - webhook_timestamp) > TOLERANCE:
        raise Unauthorized("the delivery is too old, or the sender's clock is wrong")
    signed = f"{webhook_id}.{webhook_timestamp}.".encode() + body
    if not _signed(secret.get_secret_value(), signed, webhook_signature):
        raise Unauthorized("the signature is wrong")
    try:
        payload = orjson.loads(body) if body else None
    except ValueError as error:
        raise UsageError(f"the body is not JSON: {error}") from None
    who = Principal(f"hook:{key}", Role.OPERATOR, source="webhook")
    delivery = uuid5(NAMESPACE_URL, f"shiftboss:{key}:{webhook_id}")
    return Received(woken=await admin.commands.send_event(who, f"hook:{key}", payload, id=delivery))


def _signed(secret: str, signed: bytes, given: str) -> bool:
    """Whether one of the given signatures is valid. A sender that rotates its secret sends several."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ConfigError(
            "admin.webhook_secret is not base64", hint="use whsec_ and 24 to 64 random bytes in base64"
        ) from None
    ours = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return any(hmac.compare_digest(ours.encode(), one.encode()) for one in given.split(" "))
