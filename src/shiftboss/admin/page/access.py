"""Who may come in, and who did what. For admins only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.events import details
from shiftboss.admin.page.forms import field, form, select, text
from shiftboss.admin.page.markup import acts, badge, button, card, empty, html, table, when
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import UsageError

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen

SHOWN = 50
ROLES = {
    "viewer": "viewer: looks",
    "operator": "operator: looks and acts",
    "admin": "admin: gives access, too",
    "worker": "worker: the coordinator only",
}


async def build(screen: Screen) -> None:
    screen.who.require(Role.ADMIN)
    ask = acts(button("Login link", "ask-login"), button("Create token", "ask-token", tone="main"))
    screen.title("Access", side=ask)
    tokens = screen.desk.db.tokens
    await screen.live(screen.sampler.reading("tokens", tokens.list, 10.0), _tokens)
    bound = before if (before := screen.query.get("before", "")).isdecimal() else None

    async def audit() -> list[dict[str, Any]]:
        return await tokens.audit(SHOWN, int(bound) if bound else None)

    await screen.live(screen.sampler.reading(("audit", bound), audit, 5.0), _audit)
    screen.on("ask-token", _asking(screen, "Create a token", _token_form))
    screen.on("ask-login", _asking(screen, "A link that logs in once", _login_form))
    screen.on("create-token", _create(screen))
    screen.on("create-login", _login(screen))
    screen.on("revoke", _revoke(screen))


def _asking(screen: Screen, title: str, body: Any) -> Handler:
    async def asked(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.ADMIN)
        screen.sheet(title, body())
        return ""

    return asked


def _token_form() -> Markup:
    fields = html(
        "{}{}{}",
        field("name", "Whose it is", placeholder="ci", needed=True),
        select("role", "Role", ROLES, "viewer", none=None),
        field("days", "Good for days", "", "number", "for ever"),
    )
    return form("create-token", "", fields, "Create")


def _login_form() -> Markup:
    roles = {name: told for name, told in ROLES.items() if name != "worker"}
    fields = html(
        "{}{}",
        select("role", "Role", roles, "viewer", none=None),
        field("minutes", "Good for minutes", "10", "number"),
    )
    return form("create-login", "", fields, "Make the link")


def _create(screen: Screen) -> Handler:
    async def create(who: Principal, values: dict[str, str]) -> str:
        name, role = text(values, "name"), _role(values)
        if name is None:
            raise UsageError("a token needs a name", hint="the audit log tells by it who acted")
        days = _amount(values, "days")
        lifetime = timedelta(days=days) if days else None
        secret = await screen.desk.commands.create_token(who, name, role, lifetime)
        screen.sheet(f"The token of {name}", _secret(secret, "It is shown this once: keep it well."))
        return ""

    return create


def _login(screen: Screen) -> Handler:
    async def login(who: Principal, values: dict[str, str]) -> str:
        minutes = _amount(values, "minutes") or 10.0
        code = await screen.desk.commands.create_login(who, _role(values), timedelta(minutes=minutes))
        told = f"It logs one browser in, once, within {minutes:g} minutes."
        screen.sheet("The link", _secret(f"{screen.address}/login/{code}", told))
        return ""

    return login


def _role(values: dict[str, str]) -> Role:
    given = values.get("role", "")
    if given not in ROLES:
        raise UsageError(f"there is no role {given!r}", hint=f"one of: {', '.join(ROLES)}")
    return Role(given)


def _amount(values: dict[str, str], name: str) -> float | None:
    given = text(values, name)
    if given is None:
        return None
    try:
        amount = float(given)
    except ValueError:
        raise UsageError(f"{name} is a number, not {given!r}") from None
    if not 0 < amount <= 36_500:
        raise UsageError(f"{name} is more than 0 and at most 36,500, not {given}")
    return amount


def _secret(secret: str, told: str) -> Markup:
    return html(
        '<p>{}</p><pre tabindex="0">{}</pre><div class="acts">'
        '<button type="button" class="btn" data-do="copy">Copy</button>'
        '<button type="button" class="btn main" data-do="close">Done</button></div>',
        told,
        secret,
    )


def _revoke(screen: Screen) -> Handler:
    async def revoke(who: Principal, values: dict[str, str]) -> str:
        await screen.desk.commands.revoke_token(who, values["arg"])
        return "the token is revoked; sessions made with it have ended"

    return revoke


def _tokens(rows: list[dict[str, Any]], may: bool) -> Markup:
    if not rows:
        steps = ("Whoever is on this machine is let in without one.", "The first token ends that.")
        return card("Tokens", empty("There is no token", *steps))
    shown = [
        (
            row["name"],
            row["role"],
            badge(_state(row)),
            when(row["created_at"]),
            when(row["last_used_at"]) if row["last_used_at"] else "never",
            when(row["expires_at"]) if row["expires_at"] else "never",
            _taking(row) if _state(row) == "live" else None,
        )
        for row in rows
    ]
    heads = ("Name", "Role", "State", "Made", "Last used", "Ends", "#Action")
    return card("Tokens", table(heads, shown, caption="Tokens", keys=[row["id"] for row in rows]))


def _state(row: dict[str, Any]) -> str:
    if row["revoked_at"]:
        return "revoked"
    return "ended" if row["expires_at"] and row["expires_at"] <= datetime.now(UTC) else "live"


def _taking(row: dict[str, Any]) -> Markup:
    asked = f"Revoke the token of {row['name']}? Whoever uses it is out at once."
    return button("Revoke", "revoke", row["id"], confirm=asked, tone="bad")


def _audit(rows: list[dict[str, Any]], may: bool) -> Markup:
    if not rows:
        return card(
            "Audit log", empty("Nobody has acted yet", "Every action is kept here, refused ones too.")
        )
    shown = [
        (
            when(row["at"]),
            row["actor"],
            row["role"],
            html("<code>{}</code>", row["action"]),
            row["target"],
            badge(row["outcome"]),
            details(row["details"]),
        )
        for row in rows
    ]
    heads = ("When", "Who", "Role", "Action", "On", "Outcome", "Details")
    older = ""
    if len(rows) == SHOWN:
        older = html('<a class="btn" href="/access?before={}">Older</a>', rows[-1]["id"])
    body = table(heads, shown, caption="Audit log", keys=[row["id"] for row in rows])
    return card("Audit log", body) + html('<div class="pager">{}</div>', older)
