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

from autotune.schemas.wire import FieldProblem, Problem
from autotune.validation import field_problems
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
    """Return the id of the current request (`server.api.request_record`); empty outside of one."""
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
        sentences.append(f"{error.field}={json.dumps(plain(error.value))}: {error.reason}{valid}")
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(sentences), errors=errors)


def install(app: FastAPI) -> None:
    """Make `app` respond to every error with a problem."""
    app.add_exception_handler(InvalidInput, _invalid)
    app.add_exception_handler(InvalidInputs, _invalid)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(NotFound, _resource)
    app.add_exception_handler(Conflict, _resource)
    app.add_exception_handler(NotAllowed, _forbidden)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(OperationalError, _storage)
    app.add_exception_handler(DatabaseError, _damaged)
    app.add_exception_handler(PoolTimeout, _busy)
    app.add_exception_handler(DatabaseReplaced, _replaced)
    app.add_exception_handler(OSError, _storage)
    app.add_exception_handler(Exception, _unexpected)


def _invalid(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, InvalidInput | InvalidInputs)
    return of_invalid_input(error)


def _validation(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, RequestValidationError)
    return refusal(field_problems(error.errors()))


def _resource(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Return 404 for NotFound, 409 for Conflict."""
    assert isinstance(error, NotFound | Conflict)
    status = HTTPStatus.NOT_FOUND if isinstance(error, NotFound) else HTTPStatus.CONFLICT
    named = FieldProblem(
        field=error.field, value=plain(error.value), reason=error.reason, valid=error.valid
    )
    return problem(status, error.reason, errors=[named])


def _forbidden(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return problem(HTTPStatus.FORBIDDEN, str(error))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.BAD_REQUEST:
        # FastAPI raises it for a body that is not text, or too deeply nested.
        return refusal([FieldProblem(field="body", reason="it cannot be read", valid="JSON")])
    detail = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is nothing at {request.url.path}"
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"{request.url.path} does not take {request.method}"
    return problem(error.status_code, detail, headers=error.headers)


def _storage(request: Request, error: Exception) -> Response:
    """Return 507 for a full disk, 503 for an unresponsive database, otherwise 500."""
    if is_full_disk(error):
        log.error("disk_full", error=cause(error))
        detail = "the disk that holds the service's data is full; nothing was stored"
        return problem(HTTPStatus.INSUFFICIENT_STORAGE, detail)
    if isinstance(error, OSError):
        return _unexpected(request, error)
    log.error("database_unavailable", error=cause(error))
    detail = "the database does not answer now; nothing was stored"
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "2"})


def _damaged(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Return 503 for a database whose file cannot be read."""
    if not is_damaged(error):
        raise error
    log.error("database_damaged", error=cause(error))
    return damaged(cause(error))


def damaged(error: str) -> Response:
    """Return 503 for a damaged database file, with the database's error."""
    detail = (
        f"the database's file is damaged ({error}): stop the service, move the file away, and put "
        "a backup in its place with `autotune restore`"
    )
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail)


def _busy(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Return 503 if no connection to the database became free."""
    log.error("connections_exhausted", error=cause(error))
    detail = "all connections to the database are in use; nothing was stored"
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "2"})


def _replaced(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Return 503 for a replaced database, until the service is restarted."""
    log.error("database_replaced", error=str(error))
    return problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _unexpected(request: Request, error: Exception) -> Response:  # noqa: ARG001
    """Return 500; the server that runs the application logs the traceback."""
    detail = f"the service failed unexpectedly; its log has the cause: {_request_id()}"
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
