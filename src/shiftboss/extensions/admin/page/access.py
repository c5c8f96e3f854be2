"""Tokens, login links and the audit log, for admins only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.site import ActResult, Context, Page, Visit
from shiftboss.extensions.admin.page.words import count
from shiftboss.model.access import Role
from shiftboss.model.errors import UsageError

SHOWN = 50
ROLES = {
    "viewer": "viewer: reads",
    "operator": "operator: reads and acts",
    "admin": "admin: also manages access",
    "worker": "worker: connects to the coordinator",
}


async def view(visit: Visit) -> Context:
    tokens = visit.admin.db.tokens
    before = visit.wanted("before") or ""
    bound = int(before) if before.isdecimal() and len(before) < 19 else None
    audit = await visit.admin.audit(SHOWN, bound)
    return {
        "tokens": [row | {"state": _state(row)} for row in await tokens.list()],
        "closed": await tokens.has_tokens(),
        "audit": audit,
        "older": audit[-1]["id"] if len(audit) == SHOWN else None,
    }


def _state(row: Any) -> str:
    if row["revoked_at"]:
        return "revoked"
    return "expired" if row["expires_at"] and row["expires_at"] <= datetime.now(UTC) else "live"


async def _ask_token(visit: Visit, arg: str) -> Context:
    return {"roles": ROLES}


async def _ask_login(visit: Visit, arg: str) -> Context:
    return {"roles": {name: told for name, told in ROLES.items() if name != "worker"}}


async def _create(visit: Visit, form: Form) -> ActResult:
    visit.who.require(Role.ADMIN)
    name, role, days = form.text("name"), _role(form), form.amount("days")
    if name is None:
        raise UsageError("a token needs a name", hint="the audit log shows this name as the actor")
    lifetime = timedelta(days=days) if days else None
    secret = await visit.admin.commands.create_token(visit.who, name, role, lifetime)
    about = "Copy it now. It is not shown again."
    return ActResult(sheet="secret", context={"name": f"Token of {name}", "secret": secret, "about": about})


async def _login(visit: Visit, form: Form) -> ActResult:
    visit.who.require(Role.ADMIN)
    minutes = form.amount("minutes") or 10.0
    code = await visit.admin.commands.create_login(visit.who, _role(form), timedelta(minutes=minutes))
    about = f"It logs in one browser, once, and expires in {count(int(minutes), 'minute')}."
    link = f"{visit.address}/login/{code}"
    return ActResult(sheet="secret", context={"name": "Login link", "secret": link, "about": about})


def _role(form: Form) -> Role:
    given = form.text("role") or ""
    if given not in ROLES:
        raise UsageError(f"role {given!r} does not exist", hint=f"use one of {', '.join(ROLES)}")
    return Role(given)


async def _revoke(visit: Visit, form: Form) -> str:
    await visit.admin.commands.revoke_token(visit.who, form.arg)
    return "The token is revoked and its sessions have ended"


PAGES = (
    Page(
        path="/access",
        title="Access",
        label="Access",
        icon="M15 7a3 3 0 1 1-2.1 5.1L8 17v2H6v2H3v-3l7-7A3 3 0 0 1 15 7z",
        order=110,
        role=Role.ADMIN,
        acting=Role.ADMIN,
        template="access.html",
        view=view,
        acts={"create-token": _create, "create-login": _login, "revoke": _revoke},
        sheets={"token": _ask_token, "login": _ask_login},
    ),
)
