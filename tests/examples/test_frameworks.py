"""The examples for web frameworks run, as they are printed in the docs."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from starlette.testclient import TestClient

from shiftboss.db import Database
from shiftboss.db.stream import Streamed
from shiftboss.frameworks.django.connections import url_of
from shiftboss.model.task import NewTask
from tests.conftest import as_superuser

#: A program that uses the tasks of the Django example.
SETUP = "import django; django.setup(); from shop.tasks import confirm, tell\n"
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
        ("fastapi.md", "fastapi/stream.py"),
        ("flask.md", "flask/shop.py"),
        ("django.md", "django/shop/tasks.py"),
        ("django.md", "django/shop/urls.py"),
        ("django.md", "django/shop/jobs.py"),
        ("django.md", "django/shop/tests.py"),
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


async def test_fastapi_streams_to_a_browser(db: Database) -> None:
    chat = example("fastapi/stream.py")

    def work() -> None:
        with TestClient(chat.api) as client:
            assert "EventSource" in client.get("/").text
            id = client.post("/answers?question=Why").json()["task_id"]
            whole = client.get(f"/answers/{id}/stream").text.split("\n\n")
            assert whole[0].splitlines()[1:] == ["event: part", 'data: "You "']
            assert whole[-2] == "event: end\ndata:"
            first = whole[0].splitlines()[0].removeprefix("id: ")
            rest = client.get(f"/answers/{id}/stream", headers={"Last-Event-ID": first}).text
            assert rest.split("\n\n") == whole[1:]

    await asyncio.wait_for(asyncio.to_thread(work), 60)

    class Again:
        async def stream(self, after: int) -> Any:
            yield Streamed(9, 2, None, datetime.now(UTC), frozenset({3, 1, 2}))

    sent = [each async for each in chat.events(Again(), 0)]
    assert sent[0] == "id: 9\nevent: discard\ndata: [1, 2, 3]\n\n"


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


def test_django(empty_database_url: str) -> None:
    done = run_django("demo.py", url=empty_database_url)
    assert done.stdout.splitlines() == [
        "the order of tea is confirmed",
        "True",
        "SUCCESSFUL FAILED ValueError",
        "mails: 1",
    ], done.stderr


def test_djangos_test_database_has_the_schema(empty_database_url: str) -> None:
    done = run_django("manage.py", "test", "shop", "--noinput", url=as_superuser(empty_database_url))
    assert (done.returncode, "Ran 3 tests" in done.stderr) == (0, True), done.stderr


def test_a_missing_schema_is_named(empty_database_url: str) -> None:
    code = """
import django; django.setup()
from shop.tasks import tell
tell.enqueue("it")
"""
    done = run_django("-c", code, url=empty_database_url)
    assert "this database has no Shiftboss schema" in done.stderr
    assert "python manage.py migrate" in done.stderr


def test_manage_py_runs_commands_on_the_projects_database(database_url: str) -> None:
    run_django("-c", SETUP + "tell.enqueue('it')", url=database_url)
    assert "shop.tasks.tell" in run_django("manage.py", "shiftboss", "tasks", "list", url=database_url).stdout
    assert run_django("manage.py", "shiftboss", "nonsense", url=database_url).returncode == 2


@pytest.mark.parametrize("target", ["shiftboss.frameworks.django:app", "shop.jobs:app"])
async def test_a_worker_runs_django_tasks_under_their_names_and_as_before(
    target: str, db: Database, eventually: Eventually
) -> None:
    assert run_django("-c", SETUP + "tell.enqueue('it')", url=db.url).returncode == 0
    params = {"path": "shop.tasks.tell", "args": ["old"], "kwargs": {}, "backend": "default"}
    other = {**params, "path": "shop.urls.create_order", "args": []}
    await db.tasks.enqueue([NewTask(task_type="django.task", params=each) for each in (params, other)])
    with django_worker(db.url, target):

        async def ended() -> Any:
            rows = await db.fetch("SELECT task_type, status FROM tasks ORDER BY created_at, id")
            return [tuple(row.values()) for row in rows if row["status"] in ("Complete", "Failed")]

        async def all_ended() -> Any:
            return len(await ended()) == 3 and await ended()

        assert await eventually(all_ended, timeout=60) == [
            ("shop.tasks.tell", "Complete"),
            ("django.task", "Complete"),
            ("django.task", "Failed"),
        ]
        [worker] = await db.fetch("SELECT capabilities -> 'task_types' AS types FROM workers")
        assert {"django.task", "shop.tasks.confirm", "shop.tasks.tell"} <= set(worker["types"])


def test_the_type_of_a_django_task(database_url: str) -> None:
    code = """
import sys, types
from django_tasks import task
elsewhere = types.ModuleType("shop.elsewhere")
exec("def clean(): pass", vars(elsewhere))
sys.modules["shop.elsewhere"] = elsewhere
elsewhere.clean = task(elsewhere.clean)
results = [tell.enqueue("it"), confirm.using(priority=50).enqueue(1), elsewhere.clean.enqueue()]
from shiftboss.frameworks.django import app
for result in results:
    print(app.sync.handle(result.id).look()["task_type"], result.task.get_result(result.id).status)
app.sync.close()
"""
    done = run_django("-c", SETUP + code, url=database_url)
    assert done.stdout.splitlines() == [
        "shop.tasks.tell READY",
        "shop.tasks.confirm READY",
        "django.task READY",
    ], done.stderr


def test_a_worker_without_settings_says_what_to_run(database_url: str) -> None:
    command = ["-m", "shiftboss", "worker", "shop.jobs:app"]
    done = run_django(*command, url=database_url, DJANGO_SETTINGS_MODULE=None)
    assert done.returncode == 2
    assert "DJANGO_SETTINGS_MODULE is not set" in done.stderr
    assert "python manage.py shiftboss" in done.stderr


def test_a_supervisor_of_another_database_is_told(database_url: str, tmp_path: Path) -> None:
    command = ["supervise", "shop.jobs:app", "--queue", "mail=1", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "shiftboss", *command],
        cwd=EXAMPLES / "django",
        env=django_env(database_url) | {"SHIFTBOSS_DATABASE_LINGER_SECONDS": "0"},
        stderr=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stderr is not None
        wanted = "shop.jobs:app sets a database, and its supervisor uses the embedded one"
        assert any(wanted in line for line in supervisor.stderr)
        supervisor.terminate()


def test_results_come_from_the_database_of_the_backend(database_url: str, empty_database_url: str) -> None:
    code = """
result = tell.enqueue("it")
result.refresh()
print(result.status, result.args)
for id in ("nonsense", "01a1eed9-b3c2-7f7e-84eb-61aa61d19e66"):
    try:
        tell.get_result(id)
    except Exception as error:
        print(type(error).__name__)
"""
    done = run_django("-c", SETUP + code, url=database_url, SHIFTBOSS_DATABASE_URL=empty_database_url)
    assert done.stdout.splitlines() == [
        "READY ['it']",
        "TaskResultDoesNotExist",
        "TaskResultDoesNotExist",
    ], done.stderr


def test_a_task_runs_on_the_queue_it_was_enqueued_on(database_url: str) -> None:
    code = """
from django.core.management import call_command
from shiftboss.frameworks.django import app
from shop.models import Order
call_command("migrate", verbosity=0)
result = confirm.using(backend="plain", queue_name="default").enqueue(Order.objects.create(item="tea").pk)
with app.sync.worker():
    app.sync.handle(result.id).wait(timeout=30)
result.refresh()
print(result.status, result.task.queue_name, result.errors)
app.sync.close()
"""
    other = """
from django.conf import settings
settings.TASKS["plain"] = {"BACKEND": "shiftboss.frameworks.django.ShiftbossBackend"}
"""
    done = run_django("-c", other + SETUP + code, url=database_url)
    assert done.stdout.splitlines() == ["SUCCESSFUL default []"], done.stderr


@pytest.mark.parametrize("call", ["confirm.enqueue()", "confirm.enqueue(1, wrong=2)", "tell.enqueue()"])
def test_wrong_arguments_are_refused_when_a_django_task_is_enqueued(call: str, database_url: str) -> None:
    done = run_django("-c", SETUP + call, url=database_url)
    assert f"BadArguments: wrong arguments for shop.tasks.{call.partition('.')[0]}" in done.stderr


def test_the_class_of_a_django_error(database_url: str) -> None:
    code = """
from django.core.exceptions import ValidationError
from shiftboss.frameworks.django.backend import _error
from shiftboss.model.errors import UsageError
from shiftboss.worker.threads import describe
for error in (ValidationError("no"), KeyError("a"), UsageError("no", hint="do this")):
    print(_error(describe(error)).exception_class_path)
"""
    done = run_django("-c", SETUP + code, url=database_url)
    paths = [
        "django.core.exceptions.ValidationError",
        "builtins.KeyError",
        "shiftboss.model.errors.UsageError",
    ]
    assert done.stdout.splitlines() == paths, done.stderr


def test_a_database_that_is_not_postgresql_is_refused() -> None:
    code = """
import django
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["shiftboss.frameworks.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    TASKS={"default": {"BACKEND": "shiftboss.frameworks.django.ShiftbossBackend"}},
)
django.setup()
from django.core.management import call_command
from django.db import connection
from shiftboss import App
app = App("shop")
call = app.task("greet")(lambda: None).call()
for act in (lambda: call_command("check"), lambda: app.sync.enqueue(call, conn=connection)):
    try:
        act()
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = run_django("-c", code, url="", DJANGO_SETTINGS_MODULE=None)
    assert "SystemCheckError" in done.stdout, done.stderr
    assert "(shiftboss.E001) The task backend 'default' enqueues in the database 'default'" in done.stdout
    assert "UsageError this connection is to sqlite" in done.stdout


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"dbname": "shop"}, "postgresql:///shop"),
        (
            {"dbname": "s", "user": "u", "password": "p:/@ w", "host": "h"},
            "postgresql://u:p%3A%2F%40%20w@h/s",
        ),
        (
            {
                "dbname": "s",
                "user": "u",
                "host": "/run/pg",
                "port": 5,
                "options": "-c a=b c",
                "row_factory": 1,
            },
            "postgresql://u@%2Frun%2Fpg:5/s?options=-c%20a%3Db%20c",
        ),
    ],
)
def test_the_url_of_a_django_connection(given: dict[str, Any], url: str) -> None:
    connection = SimpleNamespace(get_connection_params=lambda: given)
    assert url_of(connection) == url
    kept = {name: str(value) for name, value in given.items() if name != "row_factory"}
    assert conninfo_to_dict(url) == kept


async def test_djangos_own_worker(db: Database, eventually: Eventually) -> None:
    enqueue = "import django; django.setup(); from shop.tasks import tell; print(tell.enqueue('it').id)"
    id = run_django("-c", enqueue, url=db.url).stdout.strip()
    with django_worker(db.url, "shiftboss.frameworks.django:app"):

        async def done() -> Any:
            row = await db.tasks.get(id)  # type: ignore[arg-type]
            return row is not None and row["result_data"]

        assert await eventually(done, timeout=60) == f"{id}: it"


async def test_tasks_leave_no_connection_of_django_open(db: Database, eventually: Eventually) -> None:
    assert run_django("manage.py", "migrate", url=db.url).returncode == 0
    await db.tasks.enqueue([NewTask(task_type="shop.count_orders") for _ in range(30)])
    with django_worker(db.url, "shop.jobs:app"):

        async def done() -> bool:
            return bool(await value(db, "SELECT count(*) = 30 FROM tasks WHERE status = 'Complete'"))

        assert await eventually(done, timeout=60)
        left = await value(
            db,
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query LIKE '%shop_order%' AND pid <> pg_backend_pid()",
        )
    assert left == 0


async def test_an_exception_is_final_but_a_lost_worker_is_not(db: Database, eventually: Eventually) -> None:
    enqueue = "import django; django.setup(); from shop.tasks import tell; tell.enqueue('nothing')"
    run_django("-c", enqueue, url=db.url)
    assert await value(db, "SELECT max_attempts FROM tasks") == 3
    assert await value(db, "SELECT backoff FROM tasks") == timedelta(seconds=2)
    with django_worker(db.url, "shiftboss.frameworks.django:app"):

        async def ended() -> bool:
            return bool(await value(db, "SELECT status = 'Failed' FROM tasks"))

        await eventually(ended, timeout=60)
    assert await value(db, "SELECT attempts FROM tasks") == 1


def run_django(*arguments: str, url: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    """Run Python in the Django example."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=EXAMPLES / "django",
        env={name: value for name, value in (django_env(url) | env).items() if value is not None},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def django_worker(url: str, target: str) -> Iterator[None]:
    command = [sys.executable, "-m", "shiftboss", "worker", target]
    worker = subprocess.Popen(
        command,
        cwd=EXAMPLES / "django",
        env=django_env(url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(30)


def django_env(url: str) -> dict[str, str]:
    """Only Django's settings name the database."""
    kept = {name: value for name, value in os.environ.items() if name != "SHIFTBOSS_DATABASE_URL"}
    return kept | {"DJANGO_SETTINGS_MODULE": "shop.settings", "DATABASE_URL": url}


async def value(db: Database, query: str) -> Any:
    row = await db.fetch_one(query)
    assert row is not None
    return next(iter(row.values()))
