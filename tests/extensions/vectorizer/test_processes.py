"""Real processes and a real server that die: no row is lost or embedded twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from shiftboss.db import Database
from shiftboss.db.embedded import EmbeddedServer
from shiftboss.db.migrate import migrate
from shiftboss.extensions.vectorizer.feeder import Feeder
from shiftboss.extensions.vectorizer.settings import VectorizerSettings
from shiftboss.extensions.vectorizer.worker import VectorizerWorker
from tests.extensions.vectorizer.conftest import Steered, blog, make, one, vector_of, work

Eventually = Callable[..., Awaitable[Any]]
ROOT = Path(__file__).parents[3]
ACCOUNTED = """
SELECT (SELECT ai.vectorizer_pending('blog_embedding'))
     + (SELECT count(*) FROM blog b JOIN blog_embedding_store t USING (id)
        WHERE t.chunk = b.body AND NOT EXISTS (SELECT FROM ai._queue_1 q WHERE q.k1 = b.id))
"""


def spawn(*arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=os.environ | variables | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
    )


async def check_all(db: Database, count: int) -> None:
    """Every source row has exactly its own vector."""
    rows = await db.fetch(
        "SELECT b.id, b.body, t.chunk_seq, t.chunk, t.embedding::text AS vector "
        "FROM blog b LEFT JOIN blog_embedding_store t USING (id)"
    )
    assert len(rows) == count
    assert all((row["chunk_seq"], row["chunk"]) == (0, row["body"]) for row in rows)
    sample = rows[count // 2]
    assert float(sample["vector"].strip("[").split(",")[0]) == float(str(vector_of(sample["body"])[0]))


async def test_workers_killed_in_mid_batch_lose_and_double_nothing(
    db: Database, eventually: Eventually
) -> None:
    await blog(db, 1500)
    id = await make(db, batch_size=50)
    written = "SELECT count(*) FROM blog_embedding_store"
    for killed in (1, 2):
        before = await one(db, written)
        process = spawn("tests.extensions.vectorizer.slow_app", db.url, "1")
        try:
            await eventually(lambda before=before: _more(db, written, before + 100), timeout=60)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert await one(db, ACCOUNTED) == 1500
        await db.execute("UPDATE blog SET body = body || %s WHERE id %% 50 = 0", [f" edit {killed}"])
    embedder = Steered()

    async def finished() -> bool:
        await work(db, embedder, lease=1)  # claims of the dead lapse a second after they were made
        return await db.vectorizers.pending(id) == 0

    await eventually(finished, timeout=30)
    await check_all(db, 1500)


async def _more(db: Database, count: str, than: int) -> bool:
    return await one(db, count) >= than


async def test_a_database_restart_in_mid_run_is_outlived(tmp_path: Path, eventually: Eventually) -> None:
    server = EmbeddedServer(tmp_path / "server", settings={"fsync": "off"}, linger=0)
    url = await asyncio.to_thread(server.acquire)
    try:
        await migrate(url)
        async with await Database.open(url) as db:
            await blog(db, 1000)
            id = await make(db, batch_size=20, concurrency=2)
            embedder = Steered()
            embedder.before = lambda _: asyncio.sleep(0.02)
            settings = VectorizerSettings(poll=0.1, lease=3)
            async with VectorizerWorker(db, embedder, settings=settings):
                await eventually(lambda: len(embedder.calls) > 5)
                postmaster = int((await _pid_file(server)).split()[0])
                os.kill(postmaster, signal.SIGKILL)

                async def done() -> bool:
                    with suppress(Exception):
                        return await db.vectorizers.pending(id) == 0
                    return False

                await eventually(done, timeout=60)
            await check_all(db, 1000)
    finally:
        server.release()
        await asyncio.to_thread(server.stop)


async def _pid_file(server: EmbeddedServer) -> str:
    [found] = (path for path in server.data_dir.rglob("postmaster.pid"))
    return found.read_text()


async def test_vectorizer_work_runs_on_the_fleet(db: Database, eventually: Eventually) -> None:
    await db.execute("CREATE TABLE public.blog (id int PRIMARY KEY, body text)")
    await db.execute("INSERT INTO public.blog SELECT n, 'text ' || n FROM generate_series(1, 50) n")
    id = await db.vectorizers.create("public.blog", columns=["body"])
    fleet = spawn(
        "shiftboss", "worker", "shiftboss.extensions.vectorizer.handlers:handlers", "--queue", "vectorizer",
        SHIFTBOSS_DATABASE_URL=db.url, SHIFTBOSS_WORKER_BEAT_SECONDS="0.2",
    )  # fmt: skip
    try:
        async with Feeder(db, poll=0.5):
            await eventually(lambda: _empty(db, id), timeout=60)
            await db.execute("UPDATE public.blog SET body = 'changed' WHERE id = 7")
            await eventually(lambda: _is(db, "changed"), timeout=30)
        tasks = "SELECT count(*) FROM tasks WHERE task_type = 'vectorizer.run' AND status = 'Complete'"
        await eventually(lambda: _more(db, tasks, 2))
    finally:
        fleet.send_signal(signal.SIGTERM)
        fleet.communicate(timeout=30)
    [process] = await db.fetch("SELECT * FROM ai.vectorizer_worker_process")
    assert (process["success_count"], process["error_count"]) == (51, 0)
    member = await db.fetch_one("SELECT incarnation FROM workers WHERE instance_type = 'process'")
    assert member == {"incarnation": process["id"]}
    [status] = await db.vectorizers.status(id)
    assert status["success_count"] == 51
    assert status["last_success_at"] is not None


async def test_a_coordinator_feeds_the_fleet(db: Database, eventually: Eventually) -> None:
    await blog(db)
    id = await make(db)
    coordinator = spawn(
        "shiftboss", "coordinator", "--port", "0", "--no-token", SHIFTBOSS_DATABASE_URL=db.url
    )
    made = "SELECT count(*) FROM tasks WHERE task_type = 'vectorizer.run' AND params @> %s::jsonb"
    try:
        await eventually(lambda: one(db, made, f'{{"vectorizer_id": {id}}}'), timeout=60)
    finally:
        coordinator.send_signal(signal.SIGTERM)
        coordinator.communicate(timeout=30)
    assert coordinator.returncode == 0


async def _empty(db: Database, id: int) -> bool:
    return await db.vectorizers.pending(id) == 0


async def _is(db: Database, text: str) -> bool:
    return bool(await db.fetch("SELECT FROM public.blog_embedding WHERE chunk = %s", [text]))
