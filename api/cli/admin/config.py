"""`adapm-bench config show`: every setting, its value, and where it comes from."""

import os

import typer
from pydantic import BaseModel

from api.cli.console import console, print_json
from api.cli.service import Json, environment_settings
from orchestrator.settings import PREFIX, Settings, place, without_password
from worker.schema import field_docs

DEFAULT = "default"
HIDDEN = "***"
BESIDE = {
    "own_optimizers": "Optimizers of installed packages that may be used, by name, with commas between.",
    "url": "The service that the command line talks to; default: the one on the data folder.",
    "key": "The key that is shown to the service; never printed.",
    "key_file": "A file with that key.",
    "config": "The TOML file with settings; default: adapm-bench.toml in the current folder, if it is there.",
}
"""Read from the environment alone, by commands and workers."""
WITH_PASSWORDS = ("database_url", "mlflow_uri")


class Setting(BaseModel):
    """One setting as it is in force."""

    name: str
    value: str | int | float | None
    source: str
    """Its variable, its file of a secret, its line in the TOML file, or `default`."""
    meaning: str


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    group = typer.Typer(help="The settings in force: docs/settings.md.", no_args_is_help=True)
    group.command()(show)
    app.add_typer(group, name="config")


def show(json: Json = False) -> None:
    """Show every setting with its value and where that comes from; passwords are left out."""
    from api.cli.tables.comparison import text_table

    found = settings_in_force()
    if json:
        print_json(found)
        return
    rows = [(one.name, "–" if one.value is None else str(one.value), one.source) for one in found]
    console().print(text_table(("setting", "value", "from"), rows))


def settings_in_force() -> list[Setting]:
    """Every setting; ends the command where they cannot be understood."""
    settings = environment_settings()
    return [*_of_the_service(settings), *_beside()]


def _of_the_service(settings: Settings) -> list[Setting]:
    meanings = field_docs(type(settings))
    return [
        Setting(
            name=name,
            value=_shown(name, getattr(settings, name)),
            source=found.text if (found := place(name)) else DEFAULT,
            meaning=" ".join(meanings.get(name, "").split()),
        )
        for name in type(settings).model_fields
    ]


def _beside() -> list[Setting]:
    variables = {name: f"{PREFIX}{name}".upper() for name in BESIDE}
    found = {name: os.environ.get(variable) or None for name, variable in variables.items()}
    found["key"] = found["key"] and HIDDEN
    return [
        Setting(name=name, value=value, source=variables[name] if value else DEFAULT, meaning=BESIDE[name])
        for name, value in found.items()
    ]


def _shown(name: str, value: object) -> str | int | float | None:
    if name in WITH_PASSWORDS and isinstance(value, str):
        return without_password(value)
    return value if value is None or isinstance(value, int | float) else str(value)
