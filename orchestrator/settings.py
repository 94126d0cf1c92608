"""Settings of the service: one table, from `ADAPM_BENCH_*` environment variables, with defaults for one machine."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Everything that an operator may set. Command-line flags override the environment."""

    model_config = SettingsConfigDict(
        env_prefix="ADAPM_BENCH_", frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    data_folder: Path = Path(".adapm-bench")
    """Database, datasets, checkpoints, MLflow store and logs of the embedded service."""
    database_url: str | None = None
    """SQLAlchemy URL; default: SQLite in the data folder."""
    mlflow_uri: str | None = None
    """MLflow tracking URI; default: SQLite in the data folder."""
    host: str = "127.0.0.1"
    port: int = Field(default=8321, ge=0, le=65535)
    """0 takes any free port."""
    slots: int | None = Field(default=None, ge=1, le=4096)
    """CPUs that runs may occupy at once; default: all of them."""

    ray_address: str | None = None
    """An existing Ray cluster, as `host:port`; default: an embedded Ray that ends with the dispatcher."""

    def resolved_database_url(self) -> str:
        """The database in use."""
        return self.database_url or f"sqlite:///{self.data_folder.resolve() / 'bench.sqlite3'}"

    def resolved_mlflow_uri(self) -> str:
        """The MLflow store in use."""
        return self.mlflow_uri or f"sqlite:///{self.data_folder.resolve() / 'mlflow.sqlite3'}"

    def runs_folder(self) -> Path:
        """Where runs keep their checkpoints."""
        return self.data_folder.resolve() / "runs"

    def datasets_folder(self) -> Path:
        """Where token shards lie."""
        return self.data_folder.resolve() / "datasets"
