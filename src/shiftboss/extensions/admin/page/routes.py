"""Serve the pages: GET shows a page or its event stream, POST carries out an action."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from markupsafe import Markup

from shiftboss.extensions.admin.access import same_origin
from shiftboss.extensions.admin.page import answers
from shiftboss.extensions.admin.page.alerts import alerts_now
from shiftboss.extensions.admin.page.forms import Form
from shiftboss.extensions.admin.page.login import refusal, way_in
from shiftboss.extensions.admin.page.render import Piece
from shiftboss.extensions.admin.page.shell import Shell
from shiftboss.extensions.admin.page.site import ActResult, Context, Page, Visit
from shiftboss.extensions.admin.page.watching import stream
from shiftboss.extensions.admin.page.words import sentences
from shiftboss.extensions.admin.problems import TooManyFailures, Unauthorized, retry_after, status_of
from shiftboss.model.errors import NotFound, ShiftbossError, UsageError

Endpoint = Callable[[Request], Awaitable[Response]]
OWN = ("ask", "arg", "have")
"""Query parameters that belong to the layout and not to the page."""
LARGEST_TEXT = 1_000_000


def endpoints(shell: Shell, page: Page) -> tuple[Endpoint, Endpoint]:
    """Return the handlers of GET and POST for a page."""

    async def get(request: Request) -> Response:
        return await _guarded(shell, page, request, _show)

    async def post(request: Request) -> Response:
        return await _guarded(shell, page, request, _act)

    return get, post


async def _guarded(
    shell: Shell,
    page: Page,
    request: Request,
    answer: Callable[[Shell, Page, Visit, Request], Awaitable[Response]],
) -> Response:
    """Return the response of `answer`, a redirect to the login, or an error page."""
    try:
        who = await shell.admin.access.identify(request)
    except Unauthorized:
        return _to_login(request)
    except ShiftbossError as error:
        return _refusal(shell, request, error)
    visit = Visit(shell.admin, who, request.path_params, _query(request), _address(request))
    try:
        who.require(page.role)
        return await answer(shell, page, visit, request)
    except ShiftbossError as error:
        if _wants(request, "application/json"):
            return _told(ActResult(sentences(error), bad=True), status_of(error))
        return _trouble(shell, page, visit, request, error)


def _to_login(request: Request) -> Response:
    if _wants(request, "text/event-stream"):
        return Response(b"event: gone\ndata: \n\n", media_type="text/event-stream", headers=answers.HEADERS)
    if _wants(request, "application/json"):
        return JSONResponse({"go": "/login"}, 401, headers=answers.HEADERS)
    return answers.back(way_in(request))


def _refusal(shell: Shell, request: Request, error: ShiftbossError) -> Response:
    """Answer a caller who is not identified, or not as a viewer."""
    if _wants(request, "application/json"):
        return _told(ActResult(sentences(error), bad=True), status_of(error), headers=retry_after(error))
    if isinstance(error, TooManyFailures):
        return refusal(request, error)
    text = shell.renderer.plain("trouble.html", error=error, theme=answers.theme(request))
    return answers.page(request, text, status_of(error))


def _trouble(shell: Shell, page: Page, visit: Visit, request: Request, error: ShiftbossError) -> Response:
    inside = Piece("still_trouble", Markup(shell.renderer.plain("trouble_piece.html", error=error)))  # noqa: S704
    text = shell.renderer.frame(page, visit, [inside], title=page.title, theme=answers.theme(request))
    return answers.page(request, text, status_of(error))


async def _show(shell: Shell, page: Page, visit: Visit, request: Request) -> Response:
    if _wants(request, "text/event-stream"):
        return stream(shell, page, visit, request)
    asked = request.query_params.get("ask")
    sheet = await _asked(shell, page, visit, asked, request.query_params.get("arg", "")) if asked else None
    if sheet is not None and "x-sheet" in request.headers:
        return answers.page(request, sheet)
    return await _whole(shell, page, visit, request, sheet)


async def _whole(
    shell: Shell, page: Page, visit: Visit, request: Request, sheet: Markup | None = None
) -> Response:
    context = await page.view(visit)
    text = shell.renderer.whole(
        page,
        visit,
        context,
        sheet=sheet,
        told=answers.told_before(request),
        theme=answers.theme(request),
        alerts=(await alerts_now(shell)).html,
    )
    return answers.page(request, text)


async def _asked(shell: Shell, page: Page, visit: Visit, name: str, arg: str) -> Markup:
    """Return the content of a dialog."""
    if name not in page.sheets:
        raise NotFound(f"this page has no dialog {name!r}")
    visit.who.require(page.acting)
    context: Context = {"arg": arg, **await page.sheets[name](visit, arg)}
    return shell.renderer.sheet(page, visit, name, context)


async def _act(shell: Shell, page: Page, visit: Visit, request: Request) -> Response:
    same_origin(request)
    visit.who.require(page.acting)  # before the form is validated, so that a refusal reveals nothing
    form = await _form(request)
    try:
        answer = await _carry_out(page, visit, form)
    except ShiftbossError as error:
        if _wants(request, "application/json"):
            raise
        return answers.back(_here(request), sentences(error), bad=True)
    finally:
        shell.channels.touch()
    if _wants(request, "application/json"):
        return _told(answer, sheet=_sheet(shell, page, visit, answer))
    if answer.sheet:
        return await _whole(shell, page, visit, request, _sheet(shell, page, visit, answer))
    return answers.back(_here(request), answer.told, answer.bad)


async def _form(request: Request) -> Form:
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return Form((await request.form()).multi_items())
    body = await request.body()
    if len(body) > LARGEST_TEXT:
        raise UsageError(f"the form is larger than {LARGEST_TEXT:,} bytes")
    text = body.decode(errors="replace").replace("\x00", "")
    return Form(parse_qsl(text, keep_blank_values=True))


async def _carry_out(page: Page, visit: Visit, form: Form) -> ActResult:
    act = page.acts.get(form.act)
    if act is None:
        raise NotFound(f"this page has no action {form.act!r}")
    done = await act(visit, form)
    return ActResult(done) if isinstance(done, str) else done


def _sheet(shell: Shell, page: Page, visit: Visit, answer: ActResult) -> Markup | None:
    if not answer.sheet:
        return None
    return shell.renderer.sheet(page, visit, answer.sheet, {"arg": "", **answer.context})


def _told(
    answer: ActResult, status: int = 200, sheet: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    body: dict[str, Any] = {"told": answer.told, "bad": answer.bad, "sheet": sheet}
    return JSONResponse(body, status, headers={**answers.HEADERS, **(headers or {})})


def _wants(request: Request, kind: str) -> bool:
    return request.headers.get("accept", "").startswith(kind)


def _query(request: Request) -> dict[str, str]:
    return {name: value for name, value in request.query_params.items() if name not in OWN and value}


def _here(request: Request) -> str:
    """Return the page's own address, without the dialog that was open on it."""
    query = urlencode(_query(request))
    return request.url.path + (f"?{query}" if query else "")


def _address(request: Request) -> str:
    return f"{request.url.scheme}://{request.headers.get('host')}"
