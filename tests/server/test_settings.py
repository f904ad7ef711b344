from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from search_spaces.errors import InvalidInput
from server.settings import Settings


def test_environment_wins_over_file_and_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('port = 9000\nlog_level = "DEBUG"\nallowed_hosts = ["login3"]\n')
    monkeypatch.setenv("AUTOTUNE_CONFIG", str(file))
    monkeypatch.setenv("AUTOTUNE_PORT", "9001")
    found = Settings()
    assert (found.port, found.log_level, found.allowed_hosts) == (9001, "DEBUG", ("login3",))
    assert found.host == "127.0.0.1"


def test_a_misspelt_setting_in_the_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("prot = 9000\n")
    monkeypatch.setenv("AUTOTUNE_CONFIG", str(file))
    with pytest.raises(ValidationError, match="prot"):
        Settings()


def test_a_child_process_gets_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        data_dir=tmp_path,
        database_url="postgresql://u@h/n",
        service_token_file=tmp_path / "token",
        port=1,
        allowed_hosts=("a", "b"),
    )
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings


def test_a_token_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    assert Settings().service_token() is None
    with pytest.raises(InvalidInput, match="cannot be read"):
        Settings(service_token_file=secret).service_token()
    for weak in ("", "a short one", "with a space " * 9):
        secret.write_text(weak)
        with pytest.raises(InvalidInput, match="guessed"):
            Settings(service_token_file=secret).service_token()
    secret.write_text("7f" * 32 + "\n")
    assert Settings(service_token_file=secret).service_token() == "7f" * 32


def test_where_the_database_is_and_its_password(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).url == f"sqlite:///{tmp_path}/autotune.db"
    for scheme in ("postgresql", "postgres", "postgresql+psycopg"):  # by the driver that is there
        found = Settings(database_url=f"{scheme}://user@host/name")
        assert found.url == "postgresql+psycopg://user@host/name"
    secret = tmp_path / "password"
    secret.write_text("a/b@c:d\n")
    url = "postgresql://user@host:5433/name?sslmode=require"
    settings = Settings(database_url=url, database_password_file=secret)
    assert settings.url == "postgresql+psycopg://user:a%2Fb%40c%3Ad@host:5433/name?sslmode=require"
    for nobody in ("postgresql://host/name", "postgresql://user:other@host/name"):
        with pytest.raises(InvalidInput, match="no user"):
            _ = Settings(database_url=nobody, database_password_file=secret).url


def test_profiles_lie_next_to_the_settings_file_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_CONFIG", str(tmp_path / "here/config.toml"))
    assert Settings().profiles_dir == tmp_path / "here/profiles"
    monkeypatch.setenv("AUTOTUNE_PROFILES_DIR", str(tmp_path / "shared"))
    assert Settings().profiles_dir == tmp_path / "shared"


def test_the_page_lists_every_setting() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `AUTOTUNE_(\w+)`", page, flags=re.MULTILINE)
    assert sorted(name.lower() for name in listed) == sorted(Settings.model_fields)
