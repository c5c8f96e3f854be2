"""Logging in and out with plain forms, so that no script can read the cookie."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import Response

from shiftboss.extensions.admin.access import COOKIE, same_origin
from shiftboss.extensions.admin.backend import At
from shiftboss.extensions.admin.page import answers
from shiftboss.extensions.admin.page.shell import Shell
from shiftboss.extensions.admin.problems import retry_after, status_of
from shiftboss.model.errors import ShiftbossError

router = APIRouter(include_in_schema=False)
LARGEST = 4096


def way_in(request: Request) -> str:
    """Return the address of the login page, which leads back to the requested page."""
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/login" if asked == "/" else f"/login?{urlencode({'next': asked})}"


def refusal(request: Request, error: ShiftbossError) -> Response:
    """Return the login form in place of a page, with the reason why the page is not shown."""
    return _page(request, "login.html", error, query=way_in(request).removeprefix("/login"))


def wanted(request: Request) -> str:
    """Return the path to open after the login: always a path of this service, never another host."""
    path = request.query_params.get("next", "/")
    # Browsers read a backslash as a slash, so `/\\host` would lead to another host.
    ours = path.startswith("/") and not path.startswith(("//", "/\\", "/login")) and path.isprintable()
    return path if ours else "/"


@router.get("/login")
async def form(request: Request) -> Response:
    return _page(request, "login.html")


@router.post("/login")
async def log_in(request: Request, admin: At) -> Response:
    try:
        same_origin(request)
        body = (await request.body())[:LARGEST].decode(errors="replace")
        token = parse_qs(body).get("token", [""])[0].strip()
        return _welcome(request, await admin.access.log_in(token, admin.access.peer_of(request)))
    except ShiftbossError as error:
        return _page(request, "login.html", error)


@router.get("/login/{code}")
async def link(code: str, request: Request) -> Response:
    """Show the page of a one-time link. Only its button redeems the link, so link previews do not."""
    return _page(request, "login_link.html", code=code)


@router.post("/login/{code}")
async def redeem(code: str, request: Request, admin: At) -> Response:
    """Redeem a one-time link."""
    try:
        same_origin(request)
        return _welcome(request, await admin.access.redeem(code, admin.access.peer_of(request)))
    except ShiftbossError as error:
        return _page(request, "login.html", error)


@router.post("/logout")
async def log_out(request: Request, admin: At) -> Response:
    response = answers.back("/login")
    with suppress(ShiftbossError):  # the session may have ended
        same_origin(request)
        await admin.access.log_out(await admin.access.identify(request))
    response.delete_cookie(COOKIE)
    return response


def _welcome(request: Request, secret: str) -> Response:
    response = answers.back(wanted(request))
    # lax, because a link in an email or a chat must send the cookie
    response.set_cookie(COOKIE, secret, httponly=True, samesite="lax", secure=request.url.scheme == "https")
    return response


def _page(request: Request, template: str, error: ShiftbossError | None = None, **context: Any) -> Response:
    shell: Shell = request.app.state.shell
    query = f"?{urlencode({'next': wanted(request)})}" if wanted(request) != "/" else ""
    context = {"error": error, "theme": answers.theme(request), "query": query} | context
    text = shell.renderer.plain(template, **context)
    if error is None:
        return answers.page(request, text)
    return answers.page(request, text, status_of(error), retry_after(error))
