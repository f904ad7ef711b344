"""One request as a value, and how its answer is read or refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from autotune.errors import ApiError
from autotune.validation import WireModel

T = TypeVar("T")
PREFIX = "/api/v1"


@dataclass(frozen=True, kw_only=True)
class Call(Generic[T]):
    """One request, and how its answer is read.

    Attributes:
        read: takes the body of a successful answer.
        repeatable: whether sending it twice does no more than sending it once, so that it may be
            sent again when its connection broke with no answer.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def repeatable(self) -> bool:
        return self.method in {"GET", "DELETE"} or "Idempotency-Key" in self.headers

    def sent_with(self, client: httpx2.Client | httpx2.AsyncClient) -> httpx2.Request:
        headers = dict(self.headers)
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        return client.build_request(
            self.method,
            PREFIX + self.path,
            params=self.params,
            headers=headers,
            content=self.body,
        )

    def answer(self, response: httpx2.Response) -> T:
        """Return what the request was for; raises ApiError where the service refused."""
        if not response.is_success:
            raise refusal(response)
        try:
            return self.read(response.content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "its body"
            problem = {
                "title": "Answer not understood",
                "detail": f"what answers at {response.url} is no autotune service of this "
                f"version: {where}: {first['msg']}",
            }
            raise ApiError(response.status_code, problem) from error


def reader(answer: type[T]) -> Callable[[bytes | str], T]:
    """Return what reads a body; fields that this version does not know are passed over, so that a
    newer service may say more."""
    return partial(TypeAdapter(answer).validate_json, extra="ignore")


def refusal(response: httpx2.Response) -> ApiError:
    """Return the error of a refused request, made up where the body is no problem document."""
    phrase = httpx2.codes.get_reason_phrase(response.status_code)
    problem: dict[str, Any] = {
        "title": phrase,
        "status": response.status_code,
        "detail": f"{response.request.method} {response.url} was answered with "
        f"{response.status_code} {phrase}",
    }
    with suppress(ValueError):  # a proxy's page, for one
        document = response.json()
        problem |= document if isinstance(document, dict) else {}
    return ApiError(response.status_code, problem)


def get(path: str, answer: type[WireModel], **params: str | None) -> Call[WireModel]:
    present = {name: value for name, value in params.items() if value is not None}
    return Call(method="GET", path=path, params=present, read=reader(answer))


def post(path: str, request: BaseModel, answer: type[WireModel]) -> Call[WireModel]:
    return Call(method="POST", path=path, body=encoded(request), read=reader(answer))


def listed(numbers: Sequence[int]) -> str:
    """Return numbers as a query parameter has several."""
    return ",".join(map(str, numbers))


def encoded(document: BaseModel) -> bytes:
    return document.model_dump_json(exclude_unset=True).encode()
