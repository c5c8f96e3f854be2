"""Adds the pages to the service, after the routes of the API."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI, Request
from fastapi.responses import Response

from shiftboss.extension import contributions
from shiftboss.extensions.admin.backend import Backend
from shiftboss.extensions.admin.page import (
    access,
    answers,
    approvals,
    assets,
    events,
    login,
    overview,
    queues,
    schedules,
    task,
    tasks,
    workers,
)
from shiftboss.extensions.admin.page.routes import endpoints
from shiftboss.extensions.admin.page.shell import Shell
from shiftboss.extensions.admin.page.site import Page, Site
from shiftboss.extensions.admin.problems import problem

BUILT_IN = (tasks, approvals, workers, queues, schedules, events, access)


def built_in() -> Site:
    """Return a site with the pages of this package and of all extensions."""
    site = Site()
    site.add(*overview.pages(), *task.pages())
    for module in BUILT_IN:
        site.add(*module.PAGES)
    for pages in contributions("pages"):
        site.add(*pages)
    return site


def mount(app: FastAPI, admin: Backend, pages: Iterable[Page] = ()) -> None:
    """Serve the built-in pages and the given ones."""
    site = built_in()
    site.add(*pages)
    shell = Shell(admin, site)
    app.state.shell = shell
    for router in (assets.router, login.router):
        app.include_router(router)
    for page in site:
        get, post = endpoints(shell, page)
        app.add_route(page.path, get, methods=["GET"], include_in_schema=False)
        app.add_route(page.path, post, methods=["POST"], include_in_schema=False)
    app.add_route("/{path:path}", _nowhere, methods=["GET"], include_in_schema=False)


async def _nowhere(request: Request) -> Response:
    """Answer an unknown path, with HTML for browsers and a problem document for other clients."""
    if "text/html" not in request.headers.get("accept", ""):
        return problem(404, f"{request.url.path} does not exist", "see /api/docs for the paths of the API")
    shell: Shell = request.app.state.shell
    return answers.page(request, shell.renderer.plain("nowhere.html", theme=answers.theme(request)), 404)
