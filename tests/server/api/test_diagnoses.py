"""Diagnoses over REST: a log in, its causes out."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from autotune.schemas.diagnoses import Diagnosis
from server.api import limits
from tests.evaluators.run_log.logs import bundled, megatron


def diagnosed(client: TestClient, text: str, **query: str) -> Diagnosis:
    answer = client.post("/api/v1/diagnoses", content=text.encode(), params=query)
    assert answer.status_code == 200, answer.text
    return Diagnosis.model_validate(answer.json())


def test_a_log_is_diagnosed(client: TestClient) -> None:
    found = diagnosed(client, megatron([45.0] * 20, changed={"bf16": False}), name="slow.log")
    assert (found.source, found.verdict, found.model) == ("slow.log", "slow", "llama-3-8b")
    assert found.causes[0].name == "fp32"


def test_the_query_adds_what_the_log_lacks(client: TestClient) -> None:
    text = bundled([6.0] * 20)
    assert diagnosed(client, text).missing == ["model", "machine", "nodes"]
    layout = "tp=2,mbs=1,gbs=512,zero=1,sp=on,checkpointing=none"
    stated = {"model": "llama-3-8b", "machine": "dgx-h100", "nodes": "8", "baseline": layout}
    assert diagnosed(client, text, **stated).verdict == "healthy"


@pytest.mark.parametrize(
    ("content", "query", "field"),
    [
        (b"\x7fELF\0", {"name": "run.bin"}, "log"),
        (b"hello", {}, "log"),
        (bundled([1.0] * 5).encode(), {"machine": "dgx-h99"}, "machine"),
        (bundled([1.0] * 5).encode(), {"nodes": "0"}, "nodes"),
        (bundled([1.0] * 5).encode(), {"baseline": "tensors=2"}, "baseline"),
        (bundled([1.0] * 5).encode(), {"adapter": "none-such"}, "adapter"),
    ],
)
def test_what_is_wrong_is_named(
    content: bytes, query: dict[str, str], field: str, client: TestClient
) -> None:
    answer = client.post("/api/v1/diagnoses", content=content, params=query)
    assert answer.status_code == 422, answer.text
    [problem] = answer.json()["errors"]
    assert problem["field"].endswith(field)
    assert "/tmp" not in answer.text  # the name is shown, not the service's own file


def test_a_log_may_be_larger_than_other_requests(client: TestClient) -> None:
    text = bundled([6.0] * 40_000)
    assert len(text) > limits.BODY.size
    assert diagnosed(client, text).run.iterations > 1000


def test_too_large_a_log_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    small = limits.BodyLimit(2_000_000)
    monkeypatch.setitem(limits.BODY_OF_PATH, "/api/v1/diagnoses", small)
    answer = client.post("/api/v1/diagnoses", content=b"x" * 2_000_001)
    assert answer.status_code == 413
    assert "2 MB at most" in answer.text
