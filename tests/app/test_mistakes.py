"""Common mistakes: each raises an error that says what to change."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from shiftboss import App
from shiftboss.app import Task
from shiftboss.cli import main
from shiftboss.db import Database
from shiftboss.kit import Fail, Kit
from shiftboss.model.arguments import BadArguments
from shiftboss.model.errors import ConfigError, MigrationError, UsageError
from shiftboss.model.task import NewTask
from shiftboss.worker.process import handlers_of, load

app = App("slip")


class Opaque:
    pass


@app.task()
async def keep(value: Any, note: str = "") -> None: ...


@pytest.mark.parametrize("value", [Opaque(), [Opaque()], {Opaque(): 1}, b"\xff\xfe"], ids=range(4))
def test_an_argument_that_is_no_json_is_named(value: Any) -> None:
    with pytest.raises(UsageError, match=r"argument value of slip\.keep cannot be stored as JSON") as caught:
        keep.call(value)
    assert "id that the handler looks up" in (caught.value.hint or "")


class Login(BaseModel):
    password: SecretStr


@app.task()
async def sign_in(user: int, code: SecretStr, login: Login | None = None) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"user": "ann"}, "user: Input should be a valid integer, unable to parse .* \\(given: 'ann'\\)"),
        ({"user": "x" * 99}, rf"\(given: '{'x' * 59}…\)"),
        ({"user": ["hidden"]}, r"\(given: list\)"),
        ({"code": 4711}, r"(?m)code: Input should be a valid string$"),
        ({"login": {"password": 4711}}, r"(?m)login\.password: Input should be a valid string$"),
    ],
)
def test_invalid_arguments_are_shown_without_secrets(arguments: dict[str, Any], problem: str) -> None:
    call: Callable[..., Any] = sign_in.call
    with pytest.raises(BadArguments, match=problem) as caught:
        call(**({"user": 1, "code": "0000"} | arguments))
    assert not {"4711", "hidden"} & set(str(caught.value).replace("'", " ").split())
    assert (caught.value.hint or "").startswith("slip.sign_in takes user: integer, code: password")
    with pytest.raises(BadArguments) as stored:
        sign_in.handler.bind({"user": 1, "code": "0000"} | arguments)
    assert "given" not in str(stored.value)


@app.task(max_attempts=1)
async def forward(user: Any) -> None:
    await sign_in.enqueue(user, SecretStr("0000"))


@app.task(max_attempts=1)
def forward_from_a_thread(user: Any) -> None:
    sign_in.call(user, SecretStr("0000"))


@pytest.mark.parametrize("task", [forward, forward_from_a_thread], ids=["async", "thread"])
async def test_a_handler_that_enqueues_an_invalid_argument_stores_no_value(
    database_url: str, task: Task[..., Any]
) -> None:
    async with Kit.open(app, database_url) as kit:
        handle = await task.enqueue("a secret")
        [report] = await kit.drain()
        assert isinstance(report.outcome, Fail)
        for error in (report.outcome.error, (await handle.look())["error_message"]):
            assert "user: Input should be a valid integer" in error
            assert "a secret" not in error
    wrong: Any = "none"
    with pytest.raises(BadArguments, match="given: 'none'"):
        sign_in.call(wrong, SecretStr("0000"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1, {"deep": float("-inf")}]], ids=range(3))
async def test_nan_and_infinity_are_refused(db: Database, value: Any) -> None:
    await app.use(db)
    with pytest.raises(UsageError, match=r"params\.value.* is not a finite number"):
        await keep.enqueue(value)
    many = [NewTask(task_type="x", params={"value": value}), NewTask(task_type="x", params={"fine": None})]
    with pytest.raises(UsageError, match="is not a finite number"):
        await db.tasks.enqueue(many)
    with pytest.raises(UsageError, match="is not a finite number"):
        await db.tasks.copy(many)
    with pytest.raises(UsageError, match=r"metadata\.value.* is not a finite number"):
        await keep.options(metadata={"value": value}).enqueue(None)
    await keep.enqueue([None, "NaN"])


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("mysql://root:secret@db/x", "starts with mysql://", "postgresql://user@host"),
        ("postgresql+asyncpg://me:secret@db/x", "starts with postgresql+asyncpg://", "remove +asyncpg"),
        ("me:secret@db/x", "has no scheme", "postgresql://user@host"),
        ("localhost/x", "has no scheme", "postgresql://user@host"),
    ],
)
async def test_a_url_of_another_kind_is_refused_without_its_password(
    url: str, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", url)
    for own in (None, url):
        with pytest.raises(ConfigError) as caught:
            await App("slip", url=own).database()
        assert message in caught.value.message
        assert hint in (caught.value.hint or "")
        assert "secret" not in f"{caught.value.message} {caught.value.hint}"


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slip_web.py").write_text("from shiftboss import App\napi = {}\ntasks = App('web')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("name", ["api", "app", "App"])
def test_a_target_that_is_no_app_names_the_one_that_is(name: str) -> None:
    with pytest.raises(UsageError, match=r"is not an App|has no 'app'") as caught:
        handlers_of(load(f"slip_web:{name}"), f"slip_web:{name}")
    assert caught.value.hint == "did you mean slip_web:tasks?"


@pytest.mark.parametrize(
    ("target", "message", "hint"),
    [
        ("slip_none:app", "there is no module 'slip_none'", "project's directory"),
        ("tests.slip_none:app", "there is no module 'tests.slip_none'", "check the spelling"),
        ("shop/tasks.py:app", "'shop/tasks.py:app' does not name an app", "like shop.tasks:app"),
        ("shop.tasks", "'shop.tasks' does not name an app", "like mymodule:app"),
    ],
)
def test_a_target_that_is_misspelt(target: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(target)
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_an_app_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slip_needs.py").write_text("import slip_orders\n")
    with pytest.raises(UsageError, match="slip_needs needs the module 'slip_orders', which cannot be found"):
        load("slip_needs:app")
    (tmp_path / "slip_broken.py").write_text("import os\nos.no_such_name\n")
    with pytest.raises(AttributeError, match="no_such_name"):
        load("slip_broken:app")


@pytest.mark.parametrize("wrong", [keep, "text", None])
async def test_only_calls_can_be_enqueued(db: Database, wrong: Any) -> None:
    await app.use(db)
    with pytest.raises(UsageError, match="cannot enqueue a") as caught:
        await app.enqueue(wrong)
    assert "greet.call('World')" in (caught.value.hint or "")


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("command", ["worker", "up"])
def test_the_commands_say_so(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "slip_web:api"]) == 2
    said = capsys.readouterr().err
    assert "slip_web:api is not an App: it is of type dict" in said
    assert "did you mean slip_web:tasks?" in said


async def test_an_empty_database_says_what_to_run(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MigrationError, match="no Shiftboss schema yet") as caught:
        await App("slip", url=empty_database_url).database()
    assert caught.value.hint == "run `shiftboss db migrate`"
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", empty_database_url)
    assert await asyncio.to_thread(main, ["tasks", "list"]) == 7
    assert "run `shiftboss db migrate`" in capsys.readouterr().err


@pytest.mark.parametrize("outer", [lambda app: app.cron("* * * * *"), lambda app: app.task()])
def test_two_decorators_are_one_too_many(outer: Callable[[App], Any]) -> None:
    app = App("shop")

    @app.cron("* * * * *")
    def clean() -> None: ...

    with pytest.raises(UsageError, match=r"shop\.clean is already a task") as caught:
        outer(app)(clean)
    assert "one decorator" in str(caught.value.hint)


async def test_a_clock_stops_at_a_datetime_only(database_url: str) -> None:
    async with Kit.open(App("shop"), database_url) as kit:
        for wrong in ("2026-01-01", datetime(2026, 1, 1)):  # noqa: DTZ001
            with pytest.raises(UsageError, match="not a datetime with a time zone"):
                await kit.freeze(wrong)  # type: ignore[arg-type]


def test_a_data_directory_that_cannot_be_used(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("SHIFTBOSS_DATA_DIR", str(tmp_path / "file"))
    assert main(["worker", "tests.cli.shop:app"]) == 2
    said = capsys.readouterr().err
    assert f"cannot use the directory {tmp_path / 'file' / 'spool'}" in said
    assert "SHIFTBOSS_DATA_DIR" in said
