"""Where the client looks for the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import Client
from autotune.client.location import default_url
from search_spaces.errors import InvalidInput
from server.settings import Settings


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of its own, nothing in the environment, and no service that runs."""
    for name in ("URL", "HOST", "PORT"):
        monkeypatch.delenv(f"AUTOTUNE_{name}", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "config.toml"
    monkeypatch.setenv("AUTOTUNE_CONFIG", str(path))
    return path


def test_what_moves_the_service_moves_the_client(
    configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_url() == "http://127.0.0.1:8765"
    configuration.write_text('port = 9001\nhost = "0.0.0.0"\n')
    assert default_url() == "http://127.0.0.1:9001"
    assert (Settings().host, Settings().port) == ("0.0.0.0", 9001)
    monkeypatch.setenv("AUTOTUNE_PORT", "9002")
    assert default_url() == "http://127.0.0.1:9002"
    assert Settings().port == 9002
    monkeypatch.setenv("AUTOTUNE_HOST", "::1")
    assert default_url() == "http://[::1]:9002"
    monkeypatch.setenv("AUTOTUNE_URL", "https://tune.example")
    with Client() as client:
        assert client.base_url == "https://tune.example"


@pytest.mark.parametrize("text", ["port: 9001", f"{'a.' * 2_000}a = 1"], ids=["no TOML", "nested"])
def test_a_configuration_that_is_none_is_named(configuration: Path, text: str) -> None:
    configuration.write_text(text)
    for read in (default_url, Settings):
        with pytest.raises(InvalidInput, match="the configuration cannot be read"):
            read()
