"""An image service: it stores an upload, answers at once, and makes thumbnails in the background.

pip install "shiftboss[embedded]" fastapi uvicorn pillow
uvicorn service:api
curl --data-binary @cat.jpg 'localhost:8000/images?sizes=64&sizes=256'
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse
from PIL import Image, UnidentifiedImageError

from shiftboss import App, Context, GiveUp, Handle
from shiftboss.frameworks.fastapi import handle_of, lifespan

FOLDER = Path(os.environ.get("IMAGES", "images"))
app = App("images")


@app.task(timeout=60, max_attempts=3)
def thumbnails(ctx: Context, name: str, sizes: list[int]) -> list[str]:
    """Blocking work: a plain function runs in a thread."""
    try:
        image = Image.open(FOLDER / name)
        image.load()
    except UnidentifiedImageError:
        raise GiveUp("this is not an image") from None
    made = []
    for number, size in enumerate(sizes):
        ctx.progress(100 * number // len(sizes), f"{size} pixels")
        small = image.copy()
        small.thumbnail((size, size))
        made.append(f"{size}-{name}.png")
        small.save(FOLDER / made[-1])  # the same file again after a retry: running twice does no harm
    return made


api = FastAPI(lifespan=lifespan(app, worker=True))  # without worker=True: shiftboss worker service:app


@api.post("/images", status_code=202)
async def upload(request: Request, sizes: Annotated[list[int], Query()]) -> dict[str, Any]:
    FOLDER.mkdir(exist_ok=True)
    name = uuid4().hex
    (FOLDER / name).write_bytes(await request.body())
    return {"task_id": (await thumbnails.enqueue(name, sizes)).id}


@api.get("/images/{task_id}")
async def look(handle: Annotated[Handle[list[str]], Depends(handle_of(thumbnails))]) -> dict[str, Any]:
    row = await handle.look()
    return {
        "status": row["status"],
        "progress": row["progress_message"],
        "files": row["result_data"],
        "error": row["error_message"],
    }


@api.get("/files/{name}")
async def download(name: str) -> FileResponse:
    path = FOLDER / Path(name).name
    if not path.exists():
        raise HTTPException(404, "there is no such file")
    return FileResponse(path)


def picture(color: str = "teal") -> bytes:
    """A picture to try it with."""
    out = io.BytesIO()
    Image.new("RGB", (640, 480), color).save(out, "PNG")
    return out.getvalue()
