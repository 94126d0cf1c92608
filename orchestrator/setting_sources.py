"""Where settings come from: the environment, a file of secrets each, one TOML file; the first that has a value wins.

flag of the command line  >  ADAPM_BENCH_PORT=8321  >  /run/secrets/adapm_bench_port  >  port = 8321 in TOML
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import SettingsError

PREFIX = "ADAPM_BENCH_"
CONFIG_VARIABLE = "ADAPM_BENCH_CONFIG"
CONFIG_FILE = Path("adapm-bench.toml")
"""Read from the current folder where `ADAPM_BENCH_CONFIG` names no other."""
SECRETS_FOLDER = Path("/run/secrets")
"""Where Docker and Kubernetes put secrets: one file a setting, named like its variable in lower case."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a value was found."""

    text: str
    """For people: `ADAPM_BENCH_PORT`, `/run/secrets/adapm_bench_database_url`, `port in adapm-bench.toml`."""
    value: object


def config_file() -> Path | None:
    """The TOML file in use, or None; raises `SettingsError` where the environment names one that is not there."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named is None:
        return CONFIG_FILE if CONFIG_FILE.is_file() else None
    if not Path(named).is_file():
        raise SettingsError(f"{CONFIG_VARIABLE}={named}: there is no such file; write it, or unset {CONFIG_VARIABLE}")
    return Path(named)


def toml_fields() -> Mapping[str, Any]:
    """What the TOML file says; raises `SettingsError` where it cannot be read."""
    if (path := config_file()) is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}; it holds lines like port = 8321") from error


def secret_fields(names: tuple[str, ...]) -> dict[str, str]:
    """What the files of secrets say; raises `SettingsError` where one cannot be read."""
    found: dict[str, str] = {}
    for name in names:
        path = _secret(name)
        try:
            if path.is_file():
                found[name] = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} cannot be read: {error}; let this user read it, or take it away") from error
    return found


def place(name: str) -> Place | None:
    """Where the setting of that name has its value from; None where it is the default."""
    variables = {variable.upper(): variable for variable in os.environ}
    if (variable := variables.get(f"{PREFIX}{name}".upper())) is not None:
        return Place(text=variable, value=os.environ[variable])
    if name in (secrets := secret_fields((name,))):
        return Place(text=str(_secret(name)), value=secrets[name])
    if name in (fields := toml_fields()):
        return Place(text=f"{name} in {config_file()}", value=fields[name])
    return None


def _secret(name: str) -> Path:
    return SECRETS_FOLDER / f"{PREFIX}{name}".lower()
