"""The pages of docs/reference, written from the code: verbs, routes, specifications, optimizers, settings.

    python -m api.reference_pages docs/reference

A test compares them with what this writes, so that they cannot be out of date.
"""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import EnumType
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

from api.app import create_app
from api.auth.scopes import find_route
from api.cli.admin.doctor import CLIENT_SETTINGS
from api.cli.app import main as command_line
from optim import catalog
from optim.catalog import Option
from orchestrator.services.composition import compose_services
from orchestrator.settings import PREFIX, Settings
from orchestrator.specs.schema import SPECS
from orchestrator.store.database import Database
from worker.schema import field_docs

WRITTEN = "Written from the code by `python -m api.reference_pages docs/reference`."
SHARED_OPTION_USES = 10
"""An option of so many verbs is explained at the top of the page: `--json`, `--url` and `--data` are in most."""
SHARED_ARGUMENT_USES = 4
"""An argument of so many verbs is explained at the top of the page: ID and FILE."""
SHARED_FIELDS = 3
"""A specification with so many fields of one already written refers to it: a scaling experiment's to a comparison's."""
SHARED_OPTION_OPTIMIZERS = 3
"""An option of so many optimizers is explained at the top of their page: decay rates, or what is a family's."""
SOURCES = """The first of these counts: a flag of `adapm-bench up` or `demo`, the environment variable, a file of
secrets (`/run/secrets/adapm_bench_database_url`), the TOML file (`adapm-bench.toml` in the current folder, with lines
like `port = 8321`), the default. Unknown variables that begin with `ADAPM_BENCH_` are refused.
`adapm-bench doctor --settings` prints every value and its source."""
PYTHON = {
    "Optimizers": (
        "optim.adapm.AdaPM",
        "optim.adapm.AdaPMMini",
        "optim.build",
        "optim.matrix_groups",
        "optim.plan.Rule",
        "optim.plan.Role",
    ),
    "Client": ("api.client.client.Client", "api.client.start_run"),
}
"""The names that a user imports, by section."""


def pages() -> dict[str, str]:
    """Return file name → Markdown. The settings stand above the folder, where links from elsewhere have them."""
    writers = {
        "cli": verbs,
        "rest": routes,
        "specifications": specifications,
        "optimizers": optimizers,
        "../settings": settings,
        "python": python,
    }
    return {f"{name}.md": "\n".join(write()) + "\n" for name, write in writers.items()}


def verbs() -> Iterator[str]:
    """Yield every verb with its arguments and options; options that many verbs have are explained once."""
    commands = list(_commands(("adapm-bench",), get_command(command_line)))
    uses = Counter((_flag(p), p.help) for _, command in commands for p in command.params if p.opts[0].startswith("-"))
    shared = {flag: help for (flag, help), number in uses.items() if number >= SHARED_OPTION_USES}
    takers: dict[tuple[str, str], list[str]] = {}
    for path, command in commands:
        for p in command.params:
            if not p.opts[0].startswith("-") and p.help:
                takers.setdefault((p.metavar or p.name.upper(), p.help), []).append(" ".join(path[1:]))
    explained = {argument: names for argument, names in takers.items() if len(names) >= SHARED_ARGUMENT_USES}
    yield from ("# The command line", "", WRITTEN, "", "Many commands have these, as `--help` says:", "")
    rows = [
        (f"`{name}` of {', '.join(f'`{verb}`' for verb in verbs)}", help) for (name, help), verbs in explained.items()
    ]
    yield from _table(("", "meaning"), [*rows, *shared.items()])
    for path, command in commands:
        arguments = [p for p in command.params if not p.opts[0].startswith("-")]
        options = [p for p in command.params if p.opts[0].startswith("-") and not p.hidden]
        usage = [p.metavar or p.name.upper() for p in arguments]
        shown = [name if p.required else f"[{name}]" for name, p in zip(usage, arguments, strict=True)]
        yield from (f"## `{' '.join((*path, *shown))}`", "", " ".join((command.help or "").split()), "")
        rows = [
            (f"`{name}`", p.help)
            for name, p in zip(usage, arguments, strict=True)
            if p.help and (name, p.help) not in explained
        ]
        own_options = [p for p in options if p.help and shared.get(_flag(p)) != p.help]
        rows += [(_flag(p), p.help + _default(p.default)) for p in own_options]
        yield from _table(("", "meaning"), rows)


def _commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, subcommand in command.commands.items():
            yield from _commands((*path, name), subcommand)
    elif not command.hidden:
        yield path, command


def _flag(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    members = list(annotation) if isinstance(annotation, EnumType) else get_args(annotation)
    choices = "|".join(member for member in members if isinstance(member, str))
    value = "" if option.is_flag else " " + (option.metavar or choices or option.name.upper())
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))


def _default(value: Any) -> str:
    return "" if value in (None, False, (), "") or callable(value) else f" Default: `{value}`."


def routes() -> Iterator[str]:
    """Yield every operation of the REST service with the least scope that opens it."""
    with tempfile.TemporaryDirectory() as folder:  # nothing is written there: the document needs no rows
        database = Database(f"sqlite:///{folder}/bench.sqlite3")
        document = create_app(compose_services(database, Settings(data_folder=Path(folder)))).openapi()
        database.close()
    yield from ("# The REST service", "", WRITTEN + " A running service has the whole, with examples, at `/docs`.", "")
    by_tag: dict[str, list[tuple[str, str, str]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            guarded = find_route(method.upper(), path)
            first, *_ = re.split(r"(?<=[.;:])\s", " ".join(operation["description"].split()))
            row = (
                f"`{method.upper()} {path}`",
                first.rstrip(".;:") + ".",
                guarded.access.value if guarded else "admin",
            )
            by_tag.setdefault(operation["tags"][0], []).append(row)
    for tag, rows in by_tag.items():
        yield from (f"## {tag.capitalize()}", "", *_table(("operation", "what it does", "scope"), rows))


def specifications() -> Iterator[str]:
    """Yield every field of every kind of specification; fields that are written already are named only."""
    yield from ("# Specifications", "", WRITTEN + " What they are for: [specs.md](../specs.md).", "")
    written: dict[str, Mapping[str, Any]] = {}
    for kind, model in SPECS.items():
        schema = model.model_json_schema()
        for name, part in {kind.capitalize(): schema, **schema["$defs"]}.items():
            if name in written or "properties" not in part:
                continue
            fields = part["properties"]
            shared_fields = {
                other_name: [f for f in fields if fields[f] == other_fields.get(f)]
                for other_name, other_fields in written.items()
            }
            other_name = max(shared_fields, key=lambda other_name: len(shared_fields[other_name]), default="")
            shared = shared_fields[other_name] if other_name and len(shared_fields[other_name]) >= SHARED_FIELDS else []
            written[name] = fields
            required = part.get("required", ())
            rows = [
                (f"`{field}`", _kind(definition), "required" if field in required
                 else "" if "$ref" in definition else _value(definition.get("default", "")),  # of a record: its section
                 definition.get("description", ""))
                for field, definition in fields.items() if field not in shared and "const" not in definition
            ]  # fmt: skip
            description = " ".join(part.get("description", "").split("\n\n")[0].split())
            constants = "".join(
                f" `{field}: {definition['const']}`." for field, definition in fields.items() if "const" in definition
            )
            yield from (f"## {name}", "", description + constants, "")
            yield from _table(("field", "value", "default", "meaning"), rows)
            if shared:
                yield from (
                    f"As in [{other_name}](#{other_name.lower()}): {', '.join(f'`{field}`' for field in shared)}.",
                    "",
                )


def _kind(field: Mapping[str, Any]) -> str:
    """Return a JSON schema in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in field:
            return " or ".join(_kind(choice) for choice in field[key])
    if "const" in field or "enum" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return "list of " + _kind(field["items"]) if "items" in field else "list"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [(sign, field[key]) for key, sign in signs.items() if key in field]
    bounds = [f"{sign} {limit:g}" for sign, limit in limits if abs(limit) < 1e6]  # others are there against typos
    return " ".join([str(field.get("type", "any")), ", ".join(bounds)]).strip()


def _value(value: Any) -> str:
    return "" if value == "" else f"`{value}`".replace("None", "null").replace("True", "true").replace("False", "false")


def optimizers() -> Iterator[str]:
    """Yield every optimizer of the catalog with its options; options that many have are explained once."""
    yield from ("# Optimizers", "", WRITTEN + " State and code of each: [optimizers.md](../optimizers.md).", "")
    uses = Counter(_option_row(option) for entry in catalog.entries() for option in entry.options)
    shared = [row for row, number in uses.items() if number >= SHARED_OPTION_OPTIMIZERS]
    yield from ("Many optimizers have these options:", "")
    yield from _table(("option", "value", "meaning"), shared)
    explained: dict[tuple[Option, ...], str] = {}
    for entry in catalog.entries():
        yield from (f"## `{entry.name}`", "", f"{entry.title}: {entry.summary}", "")
        rate = f"Usual rate: {entry.learning_rate:g}."
        yield from (f"{entry.paper}. Licence: {entry.licence}. {rate}", "")
        own_options = [option for option in entry.options if _option_row(option) not in shared]
        if own_options and entry.options in explained:
            yield from (f"Options: those of [`{explained[entry.options]}`](#{explained[entry.options]}).", "")
            continue
        explained[entry.options] = entry.name
        rows = [(f"`{o.name}`", o.allowed_values(), _value(o.default), o.meaning) for o in own_options]
        yield from _table(("option", "value", "default", "meaning"), rows)
        if shared_options := [f"`{o.name}` ({_value(o.default)})" for o in entry.options if o not in own_options]:
            yield from (f"{'Also' if own_options else 'Options:'} {', '.join(shared_options)}.", "")


def _option_row(option: Option) -> tuple[str, str, str]:
    return f"`{option.name}`", option.allowed_values(), option.meaning


def settings() -> Iterator[str]:
    """Yield every setting of the service: its variable, meaning and default."""
    yield from ("# Settings", "", WRITTEN, "", SOURCES, "")
    meanings = field_docs(Settings)
    rows = [
        (
            f"`{PREFIX}{name.upper()}`",
            meanings.get(name, ""),
            "" if field.default in (None, "") else f"`{field.default}`",
        )
        for name, field in Settings.model_fields.items()
    ]
    rows += [(f"`{PREFIX}{name.upper()}`", meaning, "") for name, meaning in CLIENT_SETTINGS.items()]
    yield from _table(("variable", "meaning", "default"), rows)


def python() -> Iterator[str]:
    """Yield directives that the site replaces by signatures and docstrings."""
    yield from ("# Python", "", WRITTEN + " The site shows signatures and docstrings here.", "")
    for title, names in PYTHON.items():
        yield from (f"## {title}", "")
        for name in names:
            yield from (f"::: {name}", "")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        for row in (head, ("---",) * len(head), *rows):
            yield "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row) + " |"
        yield ""


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
