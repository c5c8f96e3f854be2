"""Serve the style sheet, the script and the icon under addresses that change with their content."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shiftboss.model.errors import NotFound

FOLDER = Path(__file__).parent
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
IMMUTABLE = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


class Asset(NamedTuple):
    kind: str
    content: bytes
    packed: bytes
    digest: str


@cache
def _assets() -> dict[str, Asset]:
    files = (file for file in FOLDER.iterdir() if file.suffix in KINDS)
    return {file.name: _asset(file) for file in files}


def _asset(file: Path) -> Asset:
    content = file.read_bytes()
    digest = hashlib.blake2b(content, digest_size=6).hexdigest()
    return Asset(KINDS[file.suffix], content, gzip.compress(content, 9), digest)


def asset(name: str) -> str:
    """Return the address of an asset."""
    return f"/assets/{_assets()[name].digest}/{name}"


@router.get("/assets/{digest}/{name}")
async def send(digest: str, name: str, request: Request) -> Response:
    found = _assets().get(name)
    if found is None:
        raise NotFound(f"asset {name!r} does not exist")
    headers = {"Cache-Control": IMMUTABLE, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(found.content, media_type=found.kind, headers=headers)
    return Response(found.packed, media_type=found.kind, headers=headers | {"Content-Encoding": "gzip"})


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    return await send("", "icon.svg", request)
