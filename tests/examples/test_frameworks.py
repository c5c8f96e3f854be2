"""The examples for web frameworks run, as they are printed in the docs."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from starlette.testclient import TestClient

from shiftboss.db import Database

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def _database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)


def example(path: str) -> ModuleType:
    """A fresh import of one file of the examples."""
    name = "example_" + path.replace("/", "_").removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "path"),
    [
        ("fastapi.md", "fastapi/shop.py"),
        ("flask.md", "flask/shop.py"),
        ("django.md", "django/shop/tasks.py"),
        ("django.md", "django/shop/urls.py"),
        ("sqlalchemy.md", "sqlalchemy/orders.py"),
    ],
)
def test_the_docs_show_what_runs(page: str, path: str) -> None:
    text = (EXAMPLES.parent / "docs" / "how-to" / page).read_text()
    assert (EXAMPLES / path).read_text().strip() in text


async def test_fastapi(db: Database, eventually: Eventually) -> None:
    shop = example("fastapi/shop.py")

    def work() -> None:
        with TestClient(shop.api) as client:
            id = client.post("/greetings?name=Ann").json()["task_id"]
            while (answer := client.get(f"/greetings/{id}").json())["status"] in ("Queued", "In Progress"):
                pass
            assert answer == {"status": "Complete", "greeting": "Hello, Ann"}
            unknown = client.get("/greetings/00000000-0000-0000-0000-000000000000")
            assert (unknown.status_code, "there is no task" in unknown.text) == (404, True)

    await asyncio.wait_for(asyncio.to_thread(work), 60)


async def test_flask(db: Database) -> None:
    shop = example("flask/shop.py")

    def work() -> None:
        client = shop.web.test_client()
        id = client.post("/orders", json={"id": 7}).json["task"]
        assert client.post("/orders", json={"id": 8, "fail": True}).status_code == 500
        assert client.get(f"/tasks/{id}").json == {"status": "Queued"}
        unknown = client.get("/tasks/00000000-0000-0000-0000-000000000000")
        assert (unknown.status_code, "there is no task" in unknown.text) == (404, True)
        with shop.app.sync.worker():
            assert shop.app.sync.handle(id).result(timeout=30) == "order 7 is confirmed"
        shop.app.sync.close()
        shop.engine.dispose()

    await asyncio.to_thread(work)
    assert [row["params"] for row in await db.fetch("SELECT params FROM tasks")] == [{"order": 7}]


def test_flask_enqueues_after_a_fork(db: Database) -> None:
    code = """
import os, sys
import shop
shop.tasks.enqueue(shop.confirm.call(1))
child = os.fork()
shop.tasks.enqueue(shop.confirm.call(2))
shop.app.sync.close()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLES / "flask", timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


async def test_sqlalchemy(db: Database) -> None:
    orders = example("sqlalchemy/orders.py")
    engine = orders.create_engine(orders.URL)
    orders.Base.metadata.create_all(engine)
    engine.dispose()
    first, second = await asyncio.to_thread(orders.create, "tea"), await orders.create_async("cake")
    async with orders.app, orders.app.worker():
        assert await orders.app.handle(first).result(timeout=30) == "order 1 is confirmed"
        assert await orders.app.handle(second).result(timeout=30) == "order 2 is confirmed"
    await asyncio.to_thread(orders.app.sync.close)


def test_django(db: Database) -> None:
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": str(EXAMPLES / "django")}
    command = [sys.executable, str(EXAMPLES / "django/demo.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == [
        "order 7 is confirmed",
        "True",
        "SUCCESSFUL FAILED ValueError",
        "mails: 1",
    ], done.stderr


async def test_djangos_own_worker(db: Database, eventually: Eventually) -> None:
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": str(EXAMPLES / "django")}
    enqueue = "import django; django.setup(); from shop.tasks import tell; print(tell.enqueue('it').id)"
    id = subprocess.check_output([sys.executable, "-c", enqueue], env=env, text=True, timeout=60).strip()
    command = [sys.executable, "-m", "shiftboss", "worker", "shiftboss.frameworks.django:app"]
    worker = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        async def done() -> Any:
            row = await db.tasks.get(id)  # type: ignore[arg-type]
            return row is not None and row["result_data"]

        assert await eventually(done, timeout=60) == f"{id}: it"
    finally:
        worker.terminate()
        worker.wait(30)
