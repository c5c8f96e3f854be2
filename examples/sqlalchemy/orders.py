"""SQLAlchemy sessions, async and not: a task is a row of the session's transaction."""

from __future__ import annotations

import os
from uuid import UUID

from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from shiftboss import App

app = App("orders")
URL = os.environ["SHIFTBOSS_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@app.task()
async def confirm(order: int) -> str:
    return f"order {order} is confirmed"


def create(item: str) -> UUID:
    with Session(create_engine(URL)) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        session.flush()  # gives the order its id
        return app.sync.enqueue(confirm.call(order.id), conn=session).id


async def create_async(item: str) -> UUID:
    async with AsyncSession(create_async_engine(URL)) as session, session.begin():
        order = Order(item=item)
        session.add(order)
        await session.flush()
        return (await app.enqueue(confirm.call(order.id), conn=session)).id
