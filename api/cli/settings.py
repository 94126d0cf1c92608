"""The settings in force for a verb, with its flags over them, and their faults as sentences."""

import os
import re
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from api.cli.console import BAD_INPUT, fail
from optim import catalog
from optim.errors import OptimError
from orchestrator.errors import SettingsError
from orchestrator.settings import Settings, setting_source, unknown_variables

URL_VARIABLE = "ADAPM_BENCH_URL"

Data = Annotated[Path | None, typer.Option(help="Data folder; default: .adapm-bench in the current folder.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")]
RayAddress = Annotated[str | None, typer.Option(help="An existing Ray cluster, host:port; default: an embedded Ray.")]
WatchStdin = Annotated[bool, typer.Option("--watch-stdin", help="End when standard input is closed.")]
Slots = Annotated[int | None, typer.Option(min=1, help="CPUs that runs may use at once; default: all usable ones.")]


def environment_settings(**flags: object) -> Settings:
    """Return the settings in force, with the given flags over them; faults end the command, with a line for each."""
    settings = read_settings()
    if not isinstance(settings, Settings):
        fail("\n".join(settings), BAD_INPUT)
    return settings.model_copy(update={name: flag for name, flag in flags.items() if flag is not None})


def read_settings() -> Settings | tuple[str, ...]:
    """Return the settings in force, or a sentence for each of their faults."""
    if strangers := unknown_variables(os.environ):
        return strangers
    try:
        catalog.entries()
        return Settings()
    except (OptimError, SettingsError) as error:
        return (str(error),)
    except ValidationError as error:
        return tuple(
            setting_fault(str(fault["loc"][-1]), fault["input"], fault["type"], fault["msg"])
            for fault in error.errors(include_url=False)
        )


def setting_fault(name: str, value: object, kind: str, message: str) -> str:
    """Return a fault of the settings as a sentence: its place, the value, the allowed values."""
    location = setting_source(name) or name
    if kind == "extra_forbidden":
        return f"{location}: no setting has that name; docs/settings.md lists them"
    if kind == "remote_folder":  # what is refused may hold a secret
        value = re.sub(r"//.*@", "//***@", str(value))
        value = re.sub(r"(//[^@/]*:|\?).*", r"\1***", value)
    return f"{location}={value}: {message.replace('Input should', 'must')}"
