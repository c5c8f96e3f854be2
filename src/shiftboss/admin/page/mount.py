"""Puts the dashboard on the service, behind the API's routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import Client, background_tasks, core, ui

from shiftboss.admin.page import (
    access,
    events,
    frame,
    journal,
    login,
    overview,
    providers,
    queues,
    runs,
    schedules,
    task,
    tasks,
    transfer,
    vectorizer,
    vectorizers,
    workers,
)
from shiftboss.admin.page.markup import empty
from shiftboss.admin.page.pages import Pages, nowhere
from shiftboss.admin.page.sampler import Sampler
from shiftboss.admin.page.screen import Screen
from shiftboss.admin.problems import Unauthorized
from shiftboss.model.errors import ShiftbossError

if TYPE_CHECKING:
    from shiftboss.admin.desk import Desk

Build = Callable[..., Awaitable[None]]
ALERTS_EVERY = 5.0
ANY = frozenset({"event", "run"})

# Address, page of the navigation it belongs to, builder.
SCREENS: tuple[tuple[str, str, Build], ...] = (
    ("/", "Overview", overview.build),
    ("/tasks", "Tasks", tasks.build),
    ("/tasks/{id}", "Tasks", task.build),
    ("/workers", "Workers", workers.build),
    ("/workers/{id:path}", "Workers", workers.build_worker),
    ("/slots/{component:path}", "Workers", workers.build_slot),
    ("/runs", "Runs", runs.build),
    ("/runs/{id}", "Runs", runs.build_run),
    ("/queues", "Queues", queues.build),
    ("/journal", "Journal", journal.build),
    ("/journal/{id:path}", "Journal", journal.build_entry),
    ("/vectorizers", "Vectorizers", vectorizers.build),
    ("/vectorizers/{id}", "Vectorizers", vectorizer.build),
    ("/schedules", "Schedules", schedules.build),
    ("/providers", "Providers", providers.build),
    ("/events", "Events", events.build),
    ("/access", "Access", access.build),
)


def mount(app: FastAPI, desk: Desk) -> None:
    """Serve the pages under `/`. NiceGUI has one app per process: the last service mounted has the pages."""
    sampler = Sampler(desk.hub)
    core.app.user_middleware.clear()
    core.app.middleware_stack = None
    core.app.config.quasar_config["loadingBar"]["skipHijack"] = (
        True  # no bar for what goes on behind the page
    )
    core.app.add_exception_handler(404, nowhere)
    app.include_router(login.router)
    app.include_router(transfer.router)
    for path, name, build in SCREENS:
        _add(desk, sampler, path, name, build)
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with inner(app) as state, sampler:
            yield state

    app.router.lifespan_context = lifespan
    ui.run_with(
        app,
        title="Shiftboss",
        dark=None,
        favicon=frame.ASSETS / "icon.svg",
        language="en-US",
        binding_refresh_interval=None,
        reconnect_timeout=30.0,
        message_history_length=20,
        tailwind=False,
        show_welcome_message=False,
    )
    app.router.routes[-1] = Pages(core.app)  # NiceGUI's own mount would take all that is left


def _add(desk: Desk, sampler: Sampler, path: str, name: str, build: Build) -> None:
    async def page(request: Request, client: Client) -> Response | None:
        screen = Screen(desk, sampler, request, client)
        try:
            await screen.recognise()
        except Unauthorized:
            return RedirectResponse("/login", 303)
        ui.add_head_html(frame.head())
        client.content.props("id=main tabindex=-1")
        with client.layout:  # beside the main part, before it for those who go by keyboard
            screen.surround(name)
        alerts = sampler.reading("alerts", desk.db.insights.overview.alerts, ALERTS_EVERY, ANY)
        await screen.live(alerts, frame.alerts)
        await _content(screen, request, build)
        guard = background_tasks.create(screen.guard(), name="session guard")
        client.on_delete(guard.cancel)
        return None

    ui.page(path, response_timeout=10.0)(page)


async def _content(screen: Screen, request: Request, build: Build) -> None:
    try:
        await build(screen, **request.path_params)
    except ShiftbossError as error:
        screen.title("This did not work")
        screen.show(empty(error.message, error.hint or ""))
