"""Return errors as application/problem+json with a hint."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from shiftboss.log import get_logger
from shiftboss.model.access import Forbidden
from shiftboss.model.errors import (
    DatabaseError,
    DatabaseUnavailable,
    NotFound,
    NotInstalled,
    ShiftbossError,
    UsageError,
)

log = get_logger(__name__)

MEDIA_TYPE = "application/problem+json"

# The HTTP status for each SQLSTATE; see the ERRCODEs in the SQL functions.
_STATES = {
    "P0002": 404,
    "42704": 404,
    "55000": 409,
    "23505": 409,
    "42710": 409,
    "42P07": 409,
    "42501": 403,
    "42602": 422,
    "42703": 422,
    "0A000": 503,
}
# Objects that need pgvector do not exist on a server without it.
_NOT_THERE = ("42P01", "42883", "3F000")
_NOT_THERE_HINT = (
    "journal and vectorizers need pgvector: install it on the server, then run `shiftboss db migrate`"
)
_CLASSES = {"22": 422, "23": 422, "54": 422}


class Problem(BaseModel):
    """An RFC 9457 problem. `hint` says what to do next, and `errors` lists the invalid fields."""

    type: str = "about:blank"
    title: str = Field(examples=["Unprocessable Entity"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["there is no city 'atlantis'"])
    hint: str | None = Field(default=None, examples=["allowed: amsterdam, rotterdam"])
    errors: list[dict[str, Any]] | None = None


class Unauthorized(ShiftbossError):
    """The caller has no valid credentials."""


class TooManyFailures(ShiftbossError):
    """Too many wrong tokens from one address."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many wrong tokens from this address", hint=f"wait {seconds:.0f} s")
        self.seconds = seconds


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of these error statuses."""
    return {
        status: {"model": Problem, "description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {}}}
        for status in (401, 403, 429, *statuses)
    }


def problem(
    status: int,
    detail: str,
    hint: str | None = None,
    errors: list[dict[str, Any]] | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, hint=hint, errors=errors)
    return JSONResponse(
        body.model_dump(exclude_none=True), status_code=status, media_type=MEDIA_TYPE, headers=headers
    )


def install(app: FastAPI) -> None:
    app.add_exception_handler(ShiftbossError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ShiftbossError)
    status = status_of(error)
    if status >= 500:
        log.error("request failed", path=request.url.path, reason=error.message)
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthorized) else {}
    hint = error.hint
    if isinstance(error, DatabaseError) and _not_there(error):
        hint = _NOT_THERE_HINT
    return problem(status, error.message, hint, error.fields, headers | retry_after(error))


def retry_after(error: ShiftbossError) -> dict[str, str]:
    """Return the header that says when a caller with too many wrong tokens may try again."""
    return {"Retry-After": str(max(1, round(error.seconds)))} if isinstance(error, TooManyFailures) else {}


def status_of(error: ShiftbossError) -> int:
    """Return the HTTP status of an error."""
    for kind, status in (
        (Unauthorized, 401),
        (Forbidden, 403),
        (NotFound, 404),
        (TooManyFailures, 429),
        (DatabaseUnavailable, 503),
        (NotInstalled, 503),
        (UsageError, 422),
    ):
        if isinstance(error, kind):
            return status
    if isinstance(error, DatabaseError):
        if error.sqlstate is None:  # the driver rejects text with NUL before it sends it
            return 422 if "NUL" in error.message else 500
        if _not_there(error):
            return 503
        return _STATES.get(error.sqlstate, _CLASSES.get(error.sqlstate[:2], 500))
    return 500


def _not_there(error: DatabaseError) -> bool:
    return error.sqlstate in _NOT_THERE or error.message.startswith('type "vector')


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    from shiftboss.extensions.admin.access import check_before_body  # imports this module

    assert isinstance(error, RequestValidationError)
    try:
        await check_before_body(request)
    except ShiftbossError as refusal:
        return await _ours(request, refusal)
    errors = [{"field": ".".join(map(str, e["loc"])), "message": e["msg"]} for e in error.errors()]
    detail = "; ".join(f"{e['field']}: {e['message']}" for e in errors[:5])
    return problem(422, detail or "the request is not valid", errors=errors)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, str(error.detail), headers=dict(error.headers or {}))


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    return problem(500, "internal error", "see the log of the service")
