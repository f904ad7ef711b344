"""Errors as RFC 9457 problems: each names the field, its value, the reason, and what is valid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from autotune.schemas.validation import field_problems
from autotune.schemas.wire import FieldProblem, Problem
from search_spaces.errors import InvalidInput, InvalidInputs
from server.store.errors import (
    Conflict,
    DatabaseReplaced,
    NotAllowed,
    NotFound,
    cause,
    is_damaged,
    is_full_disk,
)

MEDIA_TYPE = "application/problem+json"
LONGEST_VALUE = 200
log = structlog.get_logger(__name__)


def problem(
    status: int,
    detail: str,
    *,
    errors: Iterable[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return one problem document as a response."""
    listed = [error.model_copy(update={"value": plain(error.value)}) for error in errors]
    body = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        errors=listed,
        request_id=_request_id(),
    ).model_dump()
    return Response(json.dumps(body), status, dict(headers or {}), MEDIA_TYPE)


def _request_id() -> str:
    found: str = structlog.contextvars.get_contextvars().get("request", "")
    return found


def plain(value: Any) -> Any:
    """Return the value for JSON: itself, or a short text."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text, value = (shown := str(value)), shown
    return value if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"


def of_invalid_input(error: InvalidInput | InvalidInputs) -> Response:
    """Return 422 with the refused fields of an error."""
    refused = error.problems if isinstance(error, InvalidInputs) else (error,)
    errors = [
        FieldProblem(field=e.field, value=plain(e.value), reason=e.reason, valid=e.valid)
        for e in refused
    ]
    return refusal(errors)


def refusal(errors: Sequence[FieldProblem]) -> Response:
    """Return 422 with all refused fields."""
    sentences = []
    for error in errors:
        valid = f" (valid: {error.valid})" if error.valid else ""
        sentences.append(f"{error.field}={_shown(error.value)}: {error.reason}{valid}")
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(sentences), errors=errors)


def _shown(value: object) -> str:
    shown = plain(value)
    return repr(shown) if isinstance(shown, str) and '"' in shown else json.dumps(shown)


ANSWERED = (
    InvalidInput,
    InvalidInputs,
    RequestValidationError,
    NotFound,
    Conflict,
    NotAllowed,
    HTTPException,
    DatabaseReplaced,
    DatabaseError,
    PoolTimeout,
    OSError,
    Exception,
)
"""Kinds of errors with a response of their own; OperationalError is a DatabaseError."""


def install(app: FastAPI) -> None:
    for kind in ANSWERED:
        app.add_exception_handler(kind, _answer)


def _answer(request: Request, error: Exception) -> Response:
    """Return 500 for an unexpected error; the server that runs the application logs its
    traceback."""
    match error:
        case InvalidInput() | InvalidInputs():
            return of_invalid_input(error)
        case RequestValidationError():
            return refusal(field_problems(error.errors()))
        case NotFound() | Conflict():
            status = HTTPStatus.NOT_FOUND if isinstance(error, NotFound) else HTTPStatus.CONFLICT
            value = plain(error.value)
            named = FieldProblem(
                field=error.field, value=value, reason=error.reason, valid=error.valid
            )
            return problem(status, error.reason, errors=[named])
        case NotAllowed():
            return problem(HTTPStatus.FORBIDDEN, str(error))
        case HTTPException():
            return _http(request, error)
    return _of_storage(error) or problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        f"the service failed unexpectedly; its log has the cause: {_request_id()}",
    )


def _http(request: Request, error: HTTPException) -> Response:
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # FastAPI raises it for a body that is not text, or too deeply nested.
        return refusal([FieldProblem(field="body", reason="it cannot be read", valid="JSON")])
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.url.path}"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not take {request.method}"
    return problem(error.status_code, detail, headers=error.headers)


def _of_storage(error: Exception) -> Response | None:
    """Return 507 for a full disk, 503 for a database that does not respond, is damaged or was
    replaced; None for other errors."""
    status, retry = HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "2"}
    match error:
        case DatabaseReplaced():
            log.error("database_replaced", error=str(error))
            return problem(status, str(error))
        case PoolTimeout():
            log.error("connections_exhausted", error=cause(error))
            detail = "all connections to the database are in use; nothing was stored"
            return problem(status, detail, headers=retry)
        case OperationalError() | OSError() if is_full_disk(error):
            log.error("disk_full", error=cause(error))
            detail = "the disk that holds the service's data is full; nothing was stored"
            return problem(HTTPStatus.INSUFFICIENT_STORAGE, detail)
        case OperationalError():
            log.error("database_unavailable", error=cause(error))
            detail = "the database does not answer now; nothing was stored"
            return problem(status, detail, headers=retry)
        case DatabaseError() if is_damaged(error):
            log.error("database_damaged", error=cause(error))
            return damaged(cause(error))
        case DatabaseError():
            raise error
    return None


def damaged(error: str) -> Response:
    """Return 503 for a damaged database file, with the database's error."""
    detail = (
        f"the database's file is damaged ({error}): stop the service, move the file away, and put "
        "a copy of an earlier day in its place"
    )
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail)
