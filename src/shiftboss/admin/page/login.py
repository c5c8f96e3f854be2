"""Coming in and going out: plain HTML forms, so that the cookie never meets a script."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from shiftboss.admin.access import COOKIE, address_of
from shiftboss.admin.desk import At
from shiftboss.admin.page.frame import plain
from shiftboss.admin.page.markup import html
from shiftboss.admin.page.pages import HEADERS
from shiftboss.admin.problems import status_of
from shiftboss.model.access import Forbidden
from shiftboss.model.errors import ShiftbossError

router = APIRouter(include_in_schema=False)
LARGEST = 4096


@router.get("/login")
async def form() -> HTMLResponse:
    return _page()


@router.post("/login")
async def log_in(request: Request, desk: At) -> Response:
    try:
        _from_here(request)
        body = (await request.body())[:LARGEST].decode(errors="replace")
        token = parse_qs(body).get("token", [""])[0].strip()
        return _welcome(request, await desk.access.log_in(token, address_of(request)))
    except ShiftbossError as error:
        return _page(error)


@router.get("/login/{code}")
async def redeem(code: str, request: Request, desk: At) -> Response:
    """The one-time link."""
    try:
        return _welcome(request, await desk.access.redeem(code, address_of(request)))
    except ShiftbossError as error:
        return _page(error)


@router.post("/logout")
async def log_out(request: Request, desk: At) -> Response:
    response = RedirectResponse("/login", 303)
    try:
        _from_here(request)
        secret = request.cookies.get(COOKIE)
        await desk.access.log_out(
            await desk.access.recognise(secret, address_of(request), request.headers.get("host"))
        )
    except ShiftbossError:
        pass  # the session has ended already
    response.delete_cookie(COOKIE)
    return response


def _welcome(request: Request, secret: str) -> Response:
    response = RedirectResponse("/", 303)
    # lax: a link from a mail or a chat must bring its cookie along to the page it leads to
    response.set_cookie(COOKIE, secret, httponly=True, samesite="lax", secure=request.url.scheme == "https")
    return response


def _from_here(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin not in (None, "null") and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden(f"calls from {origin} are not allowed")


def _page(error: ShiftbossError | None = None) -> HTMLResponse:
    told = ""
    if error is not None:
        hint = f". {error.hint}" if error.hint else ""
        told = html('<p class="error" role="alert">{}{}</p>', error.message, hint)
    form = html(
        '<div class="card"><form method="post" action="/login">{}<label>Token'
        '<input name="token" type="password" autocomplete="current-password" required autofocus></label>'
        '<button class="btn main">Log in</button></form></div>'
        '<p class="dim" style="margin-top:14px">Make a token with'
        " <code>shiftboss token create --role operator</code>,"
        " or open the link that <code>shiftboss up</code> prints.</p>",
        told,
    )
    return HTMLResponse(plain("Log in", form), status_of(error) if error else 200, headers=HEADERS)
