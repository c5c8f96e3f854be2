"""A FastAPI service that answers at once and works later: uvicorn shop:api."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI

from shiftboss import App, Handle
from shiftboss.frameworks.fastapi import handle_of, lifespan

app = App("shop")


@app.task()
async def greet(name: str) -> str:
    return f"Hello, {name}"


api = FastAPI(lifespan=lifespan(app, worker=True))  # without worker=True: shiftboss worker shop:app


@api.post("/greetings", status_code=202)
async def start(name: str) -> dict[str, UUID]:
    return {"task_id": (await greet.enqueue(name)).id}


@api.get("/greetings/{task_id}")
async def look(handle: Annotated[Handle[str], Depends(handle_of(greet))]) -> dict[str, Any]:
    status = await handle.status()
    return {"status": status, "greeting": await handle.result() if status == "Complete" else None}
