"""The committed client that waits is what its source gives."""

from __future__ import annotations

from tests.autotune.client.generation import GENERATED, ROOT, generated


def test_the_client_that_waits_is_generated_from_the_one_that_is_awaited() -> None:
    committed = {
        path.relative_to(ROOT): path.read_text() for path in (ROOT / GENERATED).glob("*.py")
    }
    assert committed == generated(), "stale: run `make client`"
