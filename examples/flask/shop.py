"""A Flask service with SQLAlchemy: an order and its task are stored together, or neither is."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, request
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from shiftboss import App
from shiftboss.frameworks.flask import Shiftboss

app = App("shop")


@app.task()
def confirm(order: int) -> str:
    return f"order {order} is confirmed"


web = Flask(__name__)
tasks = Shiftboss(app, web)
engine = create_engine(os.environ["SHIFTBOSS_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://"))


@web.post("/orders")
def create_order() -> Any:
    with Session(engine) as session, session.begin():
        session.execute(text("CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY)"))
        session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": request.json["id"]})
        handle = tasks.enqueue(confirm.call(request.json["id"]), conn=session)
        if request.json.get("fail"):
            raise RuntimeError("changed our mind: neither order nor task exists")
    return {"task": str(handle.id)}, 202


@web.get("/tasks/<uuid:id>")
def look(id: Any) -> Any:
    return {"status": tasks.handle(id).status()}
