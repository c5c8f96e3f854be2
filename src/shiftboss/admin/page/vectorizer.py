"""One vectorizer: how it is set, how far it is, what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from shiftboss.admin.page.forms import form
from shiftboss.admin.page.markup import (
    acts,
    badge,
    button,
    card,
    code,
    empty,
    facts,
    join,
    link,
    number,
    when,
)
from shiftboss.admin.page.vectorizers import (
    actions,
    errors_of,
    errors_table,
    left_of,
    model_of,
    pace_of,
    settings_fields,
    settings_of,
    steer,
)
from shiftboss.model.access import Principal, Role
from shiftboss.model.errors import NotFound

if TYPE_CHECKING:
    from shiftboss.admin.page.screen import Handler, Screen
    from shiftboss.db import Database

TOGETHER = (("columns", "template"), ("provider", "model"), ("chunk_size", "chunk_overlap"))


async def build(screen: Screen, id: str) -> None:
    db = screen.desk.db
    if not (id.isascii() and id.isdigit()):
        raise NotFound(f"{id!r} is no id of a vectorizer")
    row = await db.vectorizers.settings(id)
    screen.title(row["name"], crumb=link("/vectorizers", "Vectorizers"))
    await screen.live(screen.sampler.reading(("vectorizer", id), lambda: _read(db, id), 5.0), _page)
    steer(screen)
    screen.on("ask-update", _ask(screen))
    screen.on("update", _update(screen))


async def _read(db: Database, id: str) -> dict[str, Any]:
    (status,) = await db.vectorizers.status(id)
    return {
        "status": status,
        "settings": await db.vectorizers.settings(id),
        "errors": await db.vectorizers.errors(id, 50),
    }


def _ask(screen: Screen) -> Handler:
    async def ask(who: Principal, values: dict[str, str]) -> str:
        who.require(Role.OPERATOR)
        row = await screen.desk.db.vectorizers.settings(values["arg"])
        screen.sheet(f"Change {row['name']}", form("update", row["id"], settings_fields(row), "Save"))
        return ""

    return ask


def _update(screen: Screen) -> Handler:
    async def update(who: Principal, values: dict[str, str]) -> str:
        id = int(values["arg"])
        row = await screen.desk.db.vectorizers.settings(id)
        changed = _changed(row, settings_of(values))
        if not changed:
            return "nothing was changed"
        works = await screen.desk.commands.update_vectorizer(who, id, changed)
        if works == id:
            return "it is changed"
        return "new vectors are made in the background; the old ones serve until then"

    return update


def _changed(row: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What differs; of what belongs together, all that is filled in."""
    names = {name for name in (*given, "template") if _other(row[name], given.get(name))}
    names |= {name for group in TOGETHER if names & set(group) for name in group}
    return {name: given[name] for name in names if name in given}


def _other(now: Any, given: Any) -> bool:
    return bool((str(now) if isinstance(given, str) else now) != given)


def _page(seen: dict[str, Any], may: bool) -> Markup:
    row, settings = seen["status"], seen["settings"]
    change = button("Edit", "ask-update", row["id"], may=may)
    parts = [card("How it stands", _standing(row), side=acts(change, actions(row, may)))]
    parts.append(card("How it is set", _settings(settings)))
    errors = errors_table(seen["errors"]) if seen["errors"] else empty("Every row could be embedded")
    return join([*parts, card("Rows that could not be embedded", errors)])


def _standing(row: dict[str, Any]) -> Markup:
    return facts(
        (
            ("State", badge(row["state"])),
            ("Waits because", row["defer_reason"]),
            ("Pending", number(row["pending"])),
            ("Of the change", None if row["update_pending"] is None else number(row["update_pending"])),
            ("Pace", pace_of(row)),
            ("Left", left_of(row)),
            ("Errors", errors_of(row)),
            ("Last success", when(row["last_success_at"])),
            ("Last error", when(row["last_error_at"])),
        )
    )


def _settings(row: dict[str, Any]) -> Markup:
    return facts(
        (
            ("Table", code(row["source"])),
            ("Columns", ", ".join(row["columns"] or ())),
            ("Template", code(row["template"]) if row["template"] else None),
            (
                "Chunks",
                f"{row['chunking']}, {number(row['chunk_size'])} characters, {row['chunk_overlap']} shared",
            ),
            ("Model", model_of(row)),
            ("Dimensions", number(row["dimensions"])),
            ("Index", row["index_method"]),
            ("Vectors in", code(row["target"])),
            ("Joined in", code(row["view"]) if row["view"] else None),
            ("At most once in", str(row["schedule"]) if row["schedule"] else "at once"),
            ("Rows at a time", number(row["batch_size"])),
            ("Calls at a time", number(row["concurrency"])),
        )
    )
