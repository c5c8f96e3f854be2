"""HTTP responses of the pages, compressed and with strict security headers."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from urllib.parse import quote, unquote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Vary": "Accept, Accept-Encoding, Cookie",
}
TOLD, THEME = "shiftboss_told", "shiftboss_theme"
LONGEST_TOLD = 600
PACKED_FROM = 1000


def page(
    request: Request, text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an HTML document, or a part of one."""
    content, told = text.encode(), {**HEADERS, **(headers or {})}
    if len(content) >= PACKED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        content, told["Content-Encoding"] = gzip.compress(content, 5), "gzip"
    response = HTMLResponse(content, status, headers=told)
    if TOLD in request.cookies:
        response.delete_cookie(TOLD)
    return response


def back(path: str, told: str = "", bad: bool = False) -> Response:
    """Redirect to a page that shows the result of an action, for browsers without JavaScript."""
    response = RedirectResponse(path, 303, headers=HEADERS)
    if told:
        text = quote(("!" if bad else " ") + told[:LONGEST_TOLD])
        response.set_cookie(TOLD, text, max_age=60, httponly=True, samesite="lax")
    return response


def told_before(request: Request) -> dict[str, object] | None:
    """Return the result of the previous action, if it has not been shown yet."""
    text = unquote(request.cookies.get(TOLD, ""))
    return {"bad": text[0] == "!", "text": text[1:]} if text else None


def theme(request: Request) -> str | None:
    chosen = request.cookies.get(THEME)
    return chosen if chosen in ("light", "dark") else None
