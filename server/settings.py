"""Settings of the service, from the environment, a TOML file, or their defaults."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_data_path
from pydantic import Field, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from autotune.client.address import HOST, PORT, config_path


class Settings(BaseSettings):
    """Each is also a variable of the environment (`AUTOTUNE_…`), which wins over the file."""

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
    profiles_dir: Path = Field(
        default_factory=lambda: config_path().parent / "profiles",
        description="cluster profiles of one's own, one TOML file each",
    )
    host: str = Field(HOST, description="address that the service binds to")
    port: int = Field(PORT, ge=0, le=65535)
    socket: str = Field("", description="Unix socket that is listened on instead of a port")
    allowed_hosts: tuple[str, ...] = Field(
        (), description="further names by which browsers may address the service"
    )
    lease_s: float = Field(30.0, gt=0, description="how long a silent runner keeps its campaigns")
    poll_interval_s: float = Field(0.25, gt=0, description="pause between a runner's rounds")
    most_campaigns: int = Field(
        500, ge=1, le=5000, description="campaigns that a runner brings forward at the same time"
    )
    cluster_retry_s: float = Field(
        10.0, gt=0, description="before a cluster that did not answer is asked again"
    )
    stream_life_s: float = Field(600.0, gt=0, description="longest life of an event stream")
    stream_poll_s: float = Field(0.5, gt=0, description="how often a stream looks for events")
    most_streams: int = Field(
        1000, ge=1, description="event streams that may be open at the same time"
    )
    request_limit_s: float = Field(
        30.0, gt=0, description="in which a client has to send a request, and to take an answer"
    )
    metrics_token_file: Path | None = Field(
        None, description="file with a token that opens /metrics alone, for Prometheus"
    )
    log_level: str = Field("INFO", description="of the runner: DEBUG, INFO, WARNING or ERROR")

    @field_validator("data_dir", "profiles_dir", "metrics_token_file")
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
        toml = TomlConfigSettingsSource(settings_cls, toml_file=config_path())
        return init_settings, env_settings, toml

    @property
    def url(self) -> str:
        """Return the database's URL, the default filled in and PostgreSQL's driver named."""
        if not self.database_url:
            return f"sqlite:///{self.data_dir / 'autotune.db'}"
        scheme, separator, rest = self.database_url.partition("://")
        driver = "postgresql+psycopg" if scheme in {"postgresql", "postgres"} else scheme
        return driver + separator + rest

    @property
    def trials_dir(self) -> Path:
        return self.data_dir / "trials"

    def trial_dir(self, token: str) -> Path:
        """Return the folder where one trial alone writes its log and its result."""
        return self.trials_dir / token

    def environment(self) -> dict[str, str]:
        """Return the variables that give a child process these same settings."""
        values = self.model_dump(mode="json", exclude_none=True)
        names = values.pop("allowed_hosts")
        plain = {f"AUTOTUNE_{key.upper()}": str(value) for key, value in values.items()}
        hosts = "[" + ",".join(f'"{name}"' for name in names) + "]"
        return plain | {"AUTOTUNE_ALLOWED_HOSTS": hosts}
