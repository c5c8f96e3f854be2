"""The example services run: images over HTTP, and an index over a folder of documents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from shiftboss.db import Database
from shiftboss.extensions.ai import AI
from tests.examples.test_frameworks import example

Eventually = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def _database(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHIFTBOSS_DATABASE_URL", database_url)
    monkeypatch.setenv("IMAGES", str(tmp_path / "images"))


async def test_the_image_service(db: Database) -> None:
    service = example("images/service.py")

    def work() -> None:
        with TestClient(service.api) as client:

            def ended(body: bytes) -> dict[str, Any]:
                id = client.post("/images?sizes=64&sizes=16", content=body).json()["task_id"]
                while (state := client.get(f"/images/{id}").json())["status"] in ("Queued", "In Progress"):
                    pass
                return dict(state)

            done = ended(service.picture())
            assert done["status"] == "Complete"
            small = client.get(f"/files/{done['files'][1]}")
            assert service.Image.open(service.io.BytesIO(small.content)).size == (16, 12)
            assert "this is not an image" in ended(b"no image")["error"]
            assert client.get("/files/none").status_code == 404

    await asyncio.wait_for(asyncio.to_thread(work), 90)


async def test_the_index_follows_its_folder(db: Database, tmp_path: Path) -> None:
    rag = example("rag/rag.py")
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "backup.md").write_text(
        "# Backup\n\nRestore a dump with pg_restore, then adopt the database.\n"
    )
    (folder / "cats.md").write_text("# Cats\n\nCats sleep for most of the day and hunt at night.\n")
    async with await AI.open(db=db) as ai:
        assert await rag.index(db, folder) == 2
        await rag.embed(db, ai)
        [(path, passage), *_] = await rag.ask(db, ai, "how do I restore a dump?")
        assert (path, "pg_restore" in passage) == (str(folder / "backup.md"), True)
        (folder / "backup.md").unlink()
        assert await rag.index(db, folder) == 1
        await rag.embed(db, ai)
        assert [path for path, _ in await rag.ask(db, ai, "how do I restore a dump?")] == [
            str(folder / "cats.md")
        ]
