"""Files to and from the browser: journals come in as people have them, and go out as they can come in."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePath
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from shiftboss.admin.access import Caller
from shiftboss.admin.desk import At
from shiftboss.journal.commands import Imported, export
from shiftboss.journal.reading import Problem
from shiftboss.model.access import Role
from shiftboss.model.errors import UsageError

router = APIRouter(include_in_schema=False)
LARGEST = 64_000_000
TOLD = 20  # bad lines


@router.post("/journal/import")
async def receive(name: str, request: Request, desk: At, who: Caller, user: str = "") -> dict[str, Any]:
    """The body is the file; its name says of which kind it is."""
    who.require(Role.OPERATOR)
    with tempfile.TemporaryDirectory(prefix="shiftboss-import-") as folder:
        file = Path(folder) / (PurePath(name).name or "file")
        await _keep(request, file)
        done = await desk.commands.import_journal(who, file, user.strip() or None)
    return {"told": _told(done), "problems": [_problem(one) for one in done.problems[:TOLD]]}


async def _keep(request: Request, file: Path) -> None:
    size = 0
    with file.open("wb") as kept:
        async for part in request.stream():
            size += len(part)
            if size > LARGEST:
                raise UsageError(
                    f"the file is larger than {LARGEST // 1_000_000} MB",
                    hint="use `shiftboss journal import`",
                )
            kept.write(part)


def _told(done: Imported) -> str:
    counts = ", ".join(f"{done.outcomes[name]} {name}" for name in ("new", "changed", "same"))
    return f"{counts}, {len(done.problems)} bad; {len(done.tasks)} tasks enqueued"


def _problem(one: Problem) -> str:
    hint = f" ({one.hint})" if one.hint else ""
    return f"{Path(one.path).name}:{one.line}: {one.message}{hint}"


@router.get("/journal/export")
async def send(desk: At, who: Caller, user: str = "") -> StreamingResponse:
    """Every entry with its results, one a line."""
    entries = export(desk.db, user or None)
    first = await anext(entries, None)  # a writer that nobody knows is told before the file begins

    async def lines() -> AsyncIterator[bytes]:
        if first is not None:
            yield orjson.dumps(first) + b"\n"
        async for entry in entries:
            yield orjson.dumps(entry) + b"\n"

    saved = {"Content-Disposition": 'attachment; filename="journal.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=saved)
