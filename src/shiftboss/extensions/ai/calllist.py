"""Lists AI calls in pages, newest first, at a cost that does not grow with the number of calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shiftboss.db.database import Database, Row
from shiftboss.model.errors import UsageError

STRETCH = 20_000
INDEXED = ("provider", "tenant", "task_type", "key")
FILTERS = (*INDEXED, "outcome")
_COLUMNS = """id, call_id, started_at, provider, model, kind, task_type, task_id, tenant, key, template,
    coalesce(outcome, 'running') AS outcome, prompt_tokens + completion_tokens AS tokens, cost, latency_ms,
    error"""


async def calls(
    db: Database, wanted: Mapping[str, str], before: str | None = None, limit: int = 50
) -> tuple[list[Row], str | None]:
    """Return matching calls and the cursor of the next page. An outcome filter covers the newest 20,000."""
    params: dict[str, Any] = {name: wanted.get(name) for name in FILTERS} | {"limit": limit + 1}
    inner = ["true", *(f"{name} = %({name})s" for name in INDEXED if wanted.get(name))]
    if before is not None:
        inner.append("(started_at, id) < (%(at)s, %(id)s)")
        params["at"], params["id"] = _cursor(before)
    outer = "coalesce(outcome, 'running') = %(outcome)s" if wanted.get("outcome") else "true"
    listed = f"SELECT * FROM shiftboss.ai_calls WHERE {' AND '.join(inner)}"  # noqa: S608 -- constants only
    listed += f" ORDER BY started_at DESC, id DESC LIMIT {STRETCH}"
    rows = await db.fetch(
        f"SELECT {_COLUMNS} FROM ({listed}) c WHERE {outer}"  # noqa: S608
        " ORDER BY started_at DESC, id DESC LIMIT %(limit)s",
        params,
    )
    more = rows[limit - 1] if len(rows) > limit else None
    return rows[:limit], f"{more['started_at'].isoformat()}~{more['id']}" if more else None


def _cursor(text: str) -> tuple[datetime, int]:
    at, _, id = text.partition("~")
    try:
        return datetime.fromisoformat(at), int(id)
    except ValueError:
        raise UsageError(f"invalid cursor {text!r}", hint="start from the newest calls") from None
