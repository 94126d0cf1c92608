"""Settings of the service: one table, with defaults for one machine.

flag of the command line > ADAPM_BENCH_PORT=8321 > /run/secrets/adapm_bench_port > port = 8321 in TOML

The first that has a value wins: the environment, a file of secrets each, one TOML file.
"""

import os
import tempfile
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import SettingsError as UnreadableError

from optim.catalog import lookup
from orchestrator.errors import SettingsError
from orchestrator.storage import Storage
from orchestrator.webhooks.policy import WebhookPolicy
from worker.remote.folder import find_refusal

PREFIX = "ADAPM_BENCH_"
CONFIG_VARIABLE = "ADAPM_BENCH_CONFIG"
ROOT_PATH_PATTERN = r"(/[A-Za-z0-9._~%@+:=-]+)+"
"""The pattern of a root path without two slashes in a row, which a browser reads as another host."""
REQUESTS_A_SECOND = 100.0
CONFIG_FILE = Path("adapm-bench.toml")
"""Read from the current folder where `ADAPM_BENCH_CONFIG` names no other."""
SECRETS_FOLDER = Path("/run/secrets")
"""The folder of Docker's and Kubernetes' secrets: one file a setting, named like its variable in lower case."""


def config_file() -> Path | None:
    """Return the TOML file in use, or None; raises `SettingsError` if the environment names one that is not
    there."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named is None:
        return CONFIG_FILE if CONFIG_FILE.is_file() else None
    if not Path(named).is_file():
        raise SettingsError(f"{CONFIG_VARIABLE}={named}: there is no such file; write it, or unset {CONFIG_VARIABLE}")
    return Path(named)


class SecretFiles(SecretsSettingsSource):
    """Reads a file for each setting; raises our `SettingsError` if one cannot be read."""

    def __call__(self) -> dict[str, Any]:
        """Return the settings that have a file."""
        try:
            return super().__call__()
        except UnreadableError as error:
            way_out = f"let this user read every file in {SECRETS_FOLDER}, or take it away"
            raise SettingsError(f"{error}: {error.__cause__}; {way_out}") from error


def setting_source(name: str) -> str | None:
    """Return where the setting of that name has its value from: `ADAPM_BENCH_PORT`,
    `/run/secrets/adapm_bench_database_url`, `port in adapm-bench.toml`; None if it is the default."""
    environment, secrets, toml = _sources(Settings)
    if name in environment():
        return f"{PREFIX}{name}".upper()
    if name in secrets():
        return str(SECRETS_FOLDER / f"{PREFIX}{name}".lower())
    return f"{name} in {config_file()}" if name in toml() else None


def _sources(settings: type[BaseSettings]) -> tuple[PydanticBaseSettingsSource, ...]:
    """Return the environment, the folder of secrets and the TOML file; raises `SettingsError` if that cannot be
    read."""
    secrets = SecretFiles(settings, SECRETS_FOLDER if SECRETS_FOLDER.is_dir() else None)
    path = config_file()
    try:
        toml = TomlConfigSettingsSource(settings, path)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"{path} cannot be read: {error}; it holds lines like port = 8321") from error
    return EnvSettingsSource(settings), secrets, toml


OTHER_VARIABLES = frozenset(
    {
        "ADAPM_BENCH_URL",
        "ADAPM_BENCH_KEY",
        "ADAPM_BENCH_KEY_FILE",
        "ADAPM_BENCH_COMMIT",
        "ADAPM_BENCH_CHROMIUM",
        lookup.VARIABLE,
        CONFIG_VARIABLE,
    }
)
"""Read elsewhere: by the command line, by workers, by the tests of pages, and by the catalog of optimizers."""


class Settings(BaseSettings):
    """The settings of an operator."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    data_folder: Path = Path(".adapm-bench")
    """Folder of the database, datasets, checkpoints, MLflow store and logs; flag `--data`."""
    database_url: str | None = None
    """SQLAlchemy URL; default: SQLite in the data folder."""
    mlflow_uri: str | None = None
    """MLflow tracking URI; default: SQLite in the data folder."""
    host: str = "127.0.0.1"
    """Address to listen on: loopback only, until the service has a key; flag `--host`."""
    port: int = Field(default=8321, ge=0, le=65535)
    """Port to listen on; 0 takes a free one; flag `--port`."""
    allowed_hosts: str = ""
    """Further host names of the service, such as a reverse proxy's, separated by commas."""
    root_path: str = Field(default="", pattern=f"^({ROOT_PATH_PATTERN})?$")
    """Path of the service behind a reverse proxy, as `/bench`; needed if the proxy sends no `X-Forwarded-Prefix`."""
    requests_a_second: float = Field(default=REQUESTS_A_SECOND, gt=0, le=1e6)
    """Requests of one key in a second, on average; three times as many at once."""
    waiting_runs: int = Field(default=20_000, ge=0, le=2**31 - 1)
    """Waiting runs of one key; further submissions are refused (409)."""
    external_runs: int = Field(default=100_000, ge=0, le=2**31 - 1)
    """External runs that are kept; further ones are refused (409)."""
    audit_days: float = Field(default=365.0, gt=0, le=36_500)
    """Days that the audit log is kept."""
    undo_days: float = Field(default=7.0, ge=0, le=3650)
    """Days in which a deleted experiment can be restored."""
    webhook_urls: str = ""
    """Prefixes of the URLs that webhooks may post to, separated by commas; default: none, webhooks are off."""
    webhook_networks: str = ""
    """Private networks that webhooks may reach, as `10.1.0.0/16`, separated by commas; default: none."""
    slots: int | None = Field(default=None, ge=1, le=4096)
    """CPUs that runs may use at once; default: all usable ones; flag `--slots`."""
    free_bytes: int = Field(default=2_000_000_000, ge=0, le=2**53)
    """Free bytes on the data folder's disk below which no waiting run starts."""
    umask: str = Field(default="077", pattern=r"^0?[0-7]{3}$")
    """umask for the data folder and for files that the service writes; `027` lets the group read."""
    keep_checkpoints: Literal["last", "none"] = "last"
    """Checkpoints that ended runs keep. `last`: the last one of failed and cancelled runs; `none`."""

    checkpoint_url: str | None = None
    """Shared storage for checkpoints and logs, `s3://BUCKET/PREFIX`; default: none. Its keys come from the environment
    or an AWS profile."""
    dataset_url: str | None = None
    """Shared storage for prepared datasets and own weights; default: none."""

    ray_address: str | None = None
    """An existing Ray cluster, as `host:port`; default: an embedded Ray; flag `--ray-address`."""

    @field_validator("checkpoint_url", "dataset_url")
    @classmethod
    def _remote(cls, url: str | None) -> str | None:
        if url is not None and (refusal := find_refusal(url)):
            raise PydanticCustomError("remote_folder", "{refusal}", {"refusal": refusal})
        return url and url.rstrip("/")

    @field_validator("webhook_urls", "webhook_networks")
    @classmethod
    def _webhooks(cls, text: str, info: ValidationInfo) -> str:
        WebhookPolicy.parse(**({"urls": "", "networks": ""} | {str(info.field_name).removeprefix("webhook_"): text}))
        return text

    def webhook_policy(self) -> WebhookPolicy:
        """Return the policy of webhooks' targets."""
        return WebhookPolicy.parse(self.webhook_urls, self.webhook_networks)

    def storage(self) -> Storage:
        """Return the data folder, and what machines without a common disk share."""
        return Storage(
            data_folder=self.data_folder.resolve(), checkpoint_url=self.checkpoint_url, dataset_url=self.dataset_url
        )

    def further_hosts(self) -> tuple[str, ...]:
        """Return the names in `allowed_hosts`."""
        return tuple(name.strip().lower() for name in self.allowed_hosts.split(",") if name.strip())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by rank: keyword arguments first."""
        return init_settings, *_sources(settings_cls)

    def resolved_database_url(self) -> str:
        """Return the database in use."""
        return self.database_url or f"sqlite:///{self.data_folder.resolve() / 'bench.sqlite3'}"

    def resolved_mlflow_uri(self) -> str:
        """Return the MLflow store in use."""
        return self.mlflow_uri or f"sqlite:///{self.data_folder.resolve() / 'mlflow.sqlite3'}"

    def umask_bits(self) -> int:
        """Return the umask of the service's processes."""
        return int(self.umask, 8)

    def folders_on_disk(self) -> tuple[Path, ...]:
        """Return the folders that the service and an embedded Ray write to; these may be several disks."""
        return self.data_folder.absolute(), Path(tempfile.gettempdir())


def unknown_variables(names: Iterable[str]) -> tuple[str, ...]:
    """Return a sentence for each of the environment's names that looks like a setting and is none: a misspelt one would
    otherwise be ignored in silence."""
    variables = {f"{PREFIX}{name}".upper() for name in Settings.model_fields} | OTHER_VARIABLES
    strangers = sorted(name for name in names if name.upper().startswith(PREFIX) and name.upper() not in variables)
    nearest = {name: get_close_matches(name.upper(), sorted(variables), n=1, cutoff=0.0)[0] for name in strangers}
    return tuple(
        f"{name} is not a setting; did you mean {meant}? Unset it, or see docs/settings.md"
        for name, meant in nearest.items()
    )
