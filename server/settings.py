"""Settings of the service, from the environment, a TOML file, or their defaults."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path
from typing import Literal, Self, get_args
from urllib.parse import quote, urlsplit

from platformdirs import user_data_path
from pydantic import Field, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from autotune.client.known_services import HOST, PORT, config_path, configuration
from autotune.schemas.choices import EvaluatorName
from search_spaces.errors import InvalidInput

SHORTEST_TOKEN = 32
"""Minimum length of a configured token."""
TOKEN_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.~+/=")


class Settings(BaseSettings):
    """The settings. Environment variables (`AUTOTUNE_…`) override the file."""

    model_config = SettingsConfigDict(
        env_prefix="AUTOTUNE_", extra="forbid", frozen=True, env_ignore_empty=True
    )

    data_dir: Path = Field(
        default_factory=lambda: user_data_path("autotune"),
        description="database, trial directories and locks",
    )
    database_url: str = Field(
        "", description="SQLAlchemy URL; autotune.db in the data folder where empty"
    )
    database_password_file: Path | None = Field(
        None, description="file with the password of the user whom database_url names"
    )
    service_token_file: Path | None = Field(
        None, description="file with the service's token; by default, each start makes a new token"
    )
    profiles_dir: Path = Field(
        default_factory=lambda: config_path().parent / "profiles",
        description="your own cluster profiles, one TOML file each",
    )
    adapters_dir: Path = Field(
        default_factory=lambda: config_path().parent / "adapters",
        description="your own adapters, one TOML file each",
    )
    host: str = Field(HOST, description="address that the service binds to")
    port: int = Field(PORT, ge=0, le=65535)
    socket: str = Field("", description="Unix socket to listen on instead of a port")
    tls_cert: Path | None = Field(None, description="certificate chain, PEM")
    tls_key: Path | None = Field(None, description="key of the certificate, if in another file")
    insecure_http: bool = Field(
        False, description="whether tokens may pass the network unencrypted"
    )
    allowed_hosts: tuple[str, ...] = Field((), description="further host names of the service")
    group: bool = Field(
        False, description="whether the service is shared: each user has a token and rights"
    )
    proxy_user_header: str = Field(
        "",
        pattern=r"^[A-Za-z0-9-]*$",
        description="header in which a proxy that has let a user in names them",
    )
    proxy_addresses: tuple[str, ...] = Field(
        ("127.0.0.1", "::1"),
        description="of proxies; their connections count as encrypted, and only they and a Unix "
        "socket may set that header",
    )
    proxy_new_users: Literal["", "read", "submit"] = Field(
        "", description="scope of a user whom the proxy names for the first time; empty: refused"
    )
    ray_addresses: tuple[str, ...] = Field(
        (), description="Ray clusters that a shared service connects to, besides its profiles'"
    )
    allow_adapter_files: bool = Field(
        False,
        description="whether users of a shared service who are no admins may send adapters' files, "
        "whose commands run as the service's user, and files of knobs",
    )
    evaluators: tuple[EvaluatorName, ...] = Field(
        get_args(EvaluatorName), min_length=1, description="whose campaigns a runner takes"
    )
    runner_user: str = Field(
        "", max_length=64, description="the only user whose campaigns a runner takes; empty: all"
    )
    metrics_token_file: Path | None = Field(
        None, description="file with a token for /metrics only, for Prometheus"
    )
    notice_urls: str = Field(
        "",
        description="Apprise URLs for campaigns that end or pause; or env:NAME, file:PATH",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="of service and runner"
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="text, or one JSON object per line"
    )

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, level: object) -> object:
        return level.upper() if isinstance(level, str) else level

    @model_validator(mode="after")
    def _whole_tls(self) -> Self:
        if self.tls_key and not self.tls_cert:
            raise ValueError("a key needs its certificate: set tls_cert, too")
        if self.tls_cert and self.socket:
            raise ValueError("TLS is for a port, and a socket takes its place: set one of them")
        return self

    @model_validator(mode="after")
    def _users_behind_a_proxy(self) -> Self:
        if self.proxy_user_header and not self.group:
            raise ValueError("a proxy can only name users of a group: set group, too")
        return self

    @field_validator(
        "data_dir",
        "profiles_dir",
        "adapters_dir",
        "database_password_file",
        "service_token_file",
        "metrics_token_file",
        "tls_cert",
        "tls_key",
    )
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path and path.expanduser().absolute()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (signature of the library)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        toml = InitSettingsSource(settings_cls, dict(configuration(config_path())))
        return init_settings, env_settings, toml

    @property
    def url(self) -> str:
        """Return the database's URL: the default filled in, PostgreSQL's driver named, and the
        password of its file set.

        Raises:
            InvalidInput: the password file is set without a user in the URL, or cannot be read.
        """
        if not self.database_url:
            return f"sqlite:///{self.data_dir / 'autotune.db'}"
        scheme, separator, rest = self.database_url.partition("://")
        if self.database_password_file is not None:
            rest = self._with_password(rest, self.database_password_file)
        driver = "postgresql+psycopg" if scheme in {"postgresql", "postgres"} else scheme
        return driver + separator + rest

    def _with_password(self, rest: str, file: Path) -> str:
        parts = urlsplit(f"//{rest}")
        if not parts.username or parts.password is not None:
            reason = "a password is set by its file, and the URL has one or no user"
            valid = "postgresql://USER@HOST/NAME"
            raise InvalidInput("database_url", None, reason, valid=valid)
        secret = quote(_secret("database_password_file", file), safe="")
        return f"{parts.username}:{secret}@{rest.partition('@')[2]}"

    def service_token(self) -> str | None:
        """Return the configured token of the service; None to generate one.

        Raises:
            InvalidInput: its file cannot be read, or the token is too short.
        """
        if self.service_token_file is None:
            return None
        token = _secret("service_token_file", self.service_token_file)
        if len(token) < SHORTEST_TOKEN or not TOKEN_CHARACTERS.issuperset(token):
            reason = "it holds no token that could not be guessed"
            valid = f"{SHORTEST_TOKEN} random letters and digits or more: `openssl rand -hex 32`"
            field, path = "service_token_file", str(self.service_token_file)
            raise InvalidInput(field, path, reason, valid=valid)
        return token

    def referenced(self, field: str) -> str:
        """Return the value of a setting that may be a reference (`env:` or `file:`).

        Raises:
            InvalidInput: the variable is not set, or the file cannot be read.
        """
        value: str = getattr(self, field)
        kind, _, place = value.partition(":")
        if kind == "file":
            return _secret(field, Path(place).expanduser())
        if kind != "env":
            return value
        if not (found := os.environ.get(place, "").strip()):
            raise InvalidInput(field, value, "there is no such variable", valid="one that is set")
        return found

    @property
    def trials_dir(self) -> Path:
        return self.data_dir / "trials"

    def trial_dir(self, token: str) -> Path:
        return self.trials_dir / token

    def environment(self) -> dict[str, str]:
        """Return the environment variables that pass these settings to a child process."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {
            f"AUTOTUNE_{key.upper()}": json.dumps(value) if isinstance(value, list) else str(value)
            for key, value in values.items()
        }


def _secret(field: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidInput(field, str(file), reason, valid="a file of this user") from None
