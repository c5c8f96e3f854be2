"""What the Python blocks of a page take for granted: the rest of the program that the page does not show."""

from __future__ import annotations

#: By page: code that is run before its blocks, and code that is run after them, in one namespace and event loop.
BEFORE = {
    "docs/how-to/dashboard.md": """
from shiftboss.db import Database
from shiftboss.model.settings import Settings

db, settings = await Database.open(), Settings.load()
""",
    "docs/how-to/enqueue-in-a-transaction.md": """
import os
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from shiftboss import App

app = App("shop")
engine = create_async_engine(os.environ["SHIFTBOSS_DATABASE_URL"].replace("://", "+psycopg://", 1))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@app.task()
async def confirm(order: int) -> None:
    pass


async with engine.begin() as conn:
    await conn.run_sync(Base.metadata.create_all)
order = Order()
""",
    "docs/how-to/follow-a-task.md": """
from shiftboss import App

app = App("shop")


@app.task(name="wrap")
async def wrap() -> str:
    return "wrapped"


async with app, app.worker():
    made = await wrap.enqueue()
    await made.result(timeout=30)
task_id = str(made.id)
""",
    "docs/how-to/supervise.md": """
from shiftboss.db import Database

async with await Database.open() as db:
    await db.health.register_worker("worker:processing:0", 4000)
""",
    "docs/how-to/vectorizers.md": """
import subprocess, sys
from types import SimpleNamespace
from shiftboss.db import Database
from shiftboss.extensions.ai import AI

db = await Database.open()
await db.execute("CREATE TABLE blog (id int PRIMARY KEY, body text, lang text)")
await db.execute("INSERT INTO blog VALUES (1, 'Choose Forgot password.', 'en'), (2, 'Ein Text.', 'de')")
await db.execute("SELECT ai.create_vectorizer('blog', columns => ARRAY['body'])")
subprocess.run([sys.executable, "-m", "shiftboss", "vectorizer", "worker", "--once"], check=True)
ctx = SimpleNamespace(db=db, ai=await AI.open(db=db))
""",
}
AFTER = {
    "docs/how-to/dashboard.md": """
assert "/orders" in [getattr(route, "path", None) for route in app.routes]
await db.close()
""",
    "docs/how-to/enqueue-in-a-transaction.md": """
from shiftboss.db import Database

async with await Database.open() as db:
    assert (await db.fetch_one("SELECT count(*) AS n FROM tasks"))["n"] == 1
await app.close()
await engine.dispose()
""",
    "docs/how-to/follow-a-task.md": """
await app.close()
""",
    "docs/how-to/vectorizers.md": """
assert hits[0]["source"]["id"] == 1
await ctx.ai.close()
await db.close()
""",
}

#: The program around the blocks of durable-work.md that are lines of a handler, of a client and of a module.
DURABLE = """
from datetime import timedelta
from types import SimpleNamespace
from pydantic_ai.models.test import TestModel
from shiftboss import App, Context

app = App("press")


@app.task()
async def publish(ctx: Context, title: str) -> bool:
    await ctx.emit(title)
{question}
    return verdict.ok


{agents}

shown = {{}}
page = SimpleNamespace(show=shown.__setitem__, remove=lambda numbers: [shown.pop(number) for number in numbers])
async with app, app.worker():
    handle = await publish.enqueue("Owls")
    await app.send_event("approval", {{"ok": True}})
{stream}
    assert await handle.result(timeout=30) is True
    assert list(shown.values()) == ["Owls"]
    assert await (await plan.enqueue("Where?")).result(timeout=30) == "Oslo"
"""
