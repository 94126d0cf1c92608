"""`adapm-bench doctor`: what this machine has, what is broken, and the way out.

Every check is a process of its own, and all start at once: a driver that hangs, a library that crashes and a server
that never answers are findings, not the end of the doctor.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from pydantic import BaseModel

from api.cli.admin.checks import CHECKS, without_password
from api.cli.console import FAILED, LOG_WIDTH, Json, console, plain, print_json, text_table
from api.cli.settings import Data, environment_settings, read_settings
from orchestrator.settings import PREFIX, Settings, setting_source
from worker.schema import field_docs

SettingsOption = Annotated[
    bool, typer.Option("--settings", help="Show every setting, its value and where it comes from, instead of checking.")
]
CHECK_SECONDS = 120.0
"""The time limit of a check: PyTorch from a cold network disk takes a minute."""
NAME_COLUMNS = 12

CLIENT_SETTINGS = {
    "own_optimizers": "Optimizers of installed packages that may be used, by name, with commas between.",
    "url": "The service that the command line talks to; default: the one on the data folder.",
    "key": "The key that is shown to the service; never printed.",
    "key_file": "A file with that key.",
    "config": "The TOML file with settings; default: adapm-bench.toml in the current folder, if it is there.",
}
"""Read from the environment alone, by commands and workers."""
WITH_PASSWORDS = ("database_url", "mlflow_uri")


class Check(BaseModel):
    """The answer of a check."""

    name: str
    ok: bool
    """False if something is broken: the service, or runs on this machine, would fail."""
    found: str
    way_out: str = ""
    """The remedy; empty if all is well."""


def doctor(settings: SettingsOption = False, data: Data = None, json: Json = False) -> None:
    """Check settings, Python, disk, port, database, clock, MLflow, GPU, PyTorch, Ray; exit code 1 if any is broken."""
    if data is not None:
        os.environ["ADAPM_BENCH_DATA_FOLDER"] = str(data)
    if settings:
        in_force = settings_in_force(environment_settings())
        rows = [
            (setting.name, "–" if setting.value is None else str(setting.value), setting.source) for setting in in_force
        ]
        print_json(in_force) if json else console().print(text_table(("setting", "value", "from"), rows))
        return
    checks: list[Check] = []
    for check in _checks():
        checks.append(check)
        if not json:
            _print_wrapped(f"{'✓' if check.ok else '✗'} {check.name:<{NAME_COLUMNS}} ", check.found)
            if check.way_out:
                _print_wrapped(f"  {'':<{NAME_COLUMNS}} → ", check.way_out)
    faults = sum(not check.ok for check in checks)
    if json:
        print_json(checks)
    else:
        print(f"\n{len(checks)} checks: {f'{faults} broken' if faults else 'nothing is broken'}")
    if faults:
        raise typer.Exit(FAILED)


def _checks() -> Iterator[Check]:
    """Yield the faults of the settings; without any, what depends on the settings."""
    settings = read_settings()
    if isinstance(settings, Settings):
        sources = [source for field in type(settings).model_fields if (source := setting_source(field)) is not None]
        yield Check(name="settings", ok=True, found=", ".join(sources) or "all by default")
        yield Check(name="Python", ok=True, found=f"{platform.python_version()}, {sys.executable}")
        yield from examine(CHECKS)
    else:
        way_out = "correct or unset it: docs/settings.md"
        yield from (Check(name="settings", ok=False, found=fault, way_out=way_out) for fault in settings)


def examine(
    names: Iterable[str], module: str = "api.cli.admin.checks", seconds: float = CHECK_SECONDS
) -> Iterator[Check]:
    """Yield every check by name, made by `python -m module NAME`, in that order; each may take so long."""

    def look(name: str) -> Check:
        command = [sys.executable, "-m", module, name]
        try:
            process = subprocess.run(  # without a pipe that what a library starts could keep open
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            finding, is_sound = f"no answer within {seconds:.0f} s", False
        else:
            finding, is_sound = process.stdout.strip(), process.returncode == 0
            if process.returncode < 0:
                finding = f"the check was ended by {signal.Signals(-process.returncode).name}"
        finding = finding or "the check ended and said nothing"
        way_out = CHECKS[name].way_out if name in CHECKS and not is_sound else ""
        return Check(name=name, ok=is_sound, found=finding, way_out=way_out)

    wanted = list(names)
    with ThreadPoolExecutor(len(wanted)) as pool:
        yield from pool.map(look, wanted)


def _print_wrapped(head: str, text: str) -> None:
    width = shutil.get_terminal_size((LOG_WIDTH, 24)).columns if sys.stdout.isatty() else LOG_WIDTH
    wrapped = textwrap.wrap(plain(text), max(20, width - len(head)), break_long_words=False, break_on_hyphens=False)
    print(head + f"\n{' ' * len(head)}".join(wrapped or [""]), flush=True)


class SettingInForce(BaseModel):
    """A setting in force."""

    name: str
    value: str | int | float | None
    source: str
    """The source of the value: a variable, the file of a secret, a line in the TOML file, or `default`."""
    meaning: str


def settings_in_force(settings: Settings) -> list[SettingInForce]:
    """Return the service's settings, without passwords, then those that commands and workers read from the
    environment."""
    meanings, values = field_docs(type(settings)), settings.model_dump(mode="json")
    values |= {name: without_password(values[name]) for name in WITH_PASSWORDS if values[name]}
    entries = [
        SettingInForce(
            name=name,
            value=values[name],
            source=setting_source(name) or "default",
            meaning=" ".join(meanings.get(name, "").split()),
        )
        for name in type(settings).model_fields
    ]
    for name, meaning in CLIENT_SETTINGS.items():
        variable = f"{PREFIX}{name}".upper()
        value = os.environ.get(variable) or None
        shown = "***" if value and name == "key" else value
        entries.append(SettingInForce(name=name, value=shown, source=variable if value else "default", meaning=meaning))
    return entries
