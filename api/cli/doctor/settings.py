"""`adapm-bench doctor --settings`: every setting, its value, and where it comes from; passwords are hidden."""

import os
from collections.abc import Iterable

from pydantic import BaseModel
from rich.table import Table
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from api.cli.console import text_table
from orchestrator.settings import PREFIX, Settings, setting_source
from worker.schema import field_docs

DEFAULT = "default"
HIDDEN = "***"
CLIENT_SETTINGS = {
    "own_optimizers": "Optimizers of installed packages that may be used, by name, with commas between.",
    "url": "The service that the command line talks to; default: the one on the data folder.",
    "key": "The key that is shown to the service; never printed.",
    "key_file": "A file with that key.",
    "config": "The TOML file with settings; default: adapm-bench.toml in the current folder, if it is there.",
}
"""Read from the environment alone, by commands and workers."""
WITH_PASSWORDS = ("database_url", "mlflow_uri")


class SettingInForce(BaseModel):
    """One setting as it is in force."""

    name: str
    value: str | int | float | None
    source: str
    """Its variable, its file of a secret, its line in the TOML file, or `default`."""
    meaning: str


def settings_in_force(settings: Settings) -> list[SettingInForce]:
    """The service's settings, then those that commands and workers read from the environment alone."""
    return [*_service_settings(settings), *_client_settings()]


def settings_table(found: Iterable[SettingInForce]) -> Table:
    """One line a setting."""
    rows = [(one.name, "–" if one.value is None else str(one.value), one.source) for one in found]
    return text_table(("setting", "value", "from"), rows)


def without_password(url: str) -> str:
    """`url` with stars for its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _service_settings(settings: Settings) -> list[SettingInForce]:
    meanings, values = field_docs(type(settings)), settings.model_dump(mode="json")
    values |= {name: without_password(values[name]) for name in WITH_PASSWORDS if values[name]}
    return [
        SettingInForce(
            name=name,
            value=values[name],
            source=setting_source(name) or DEFAULT,
            meaning=" ".join(meanings.get(name, "").split()),
        )
        for name in type(settings).model_fields
    ]


def _client_settings() -> list[SettingInForce]:
    variables = {name: f"{PREFIX}{name}".upper() for name in CLIENT_SETTINGS}
    found = {name: os.environ.get(variable) or None for name, variable in variables.items()}
    found["key"] = found["key"] and HIDDEN
    return [
        SettingInForce(
            name=name, value=value, source=variables[name] if value else DEFAULT, meaning=CLIENT_SETTINGS[name]
        )
        for name, value in found.items()
    ]
