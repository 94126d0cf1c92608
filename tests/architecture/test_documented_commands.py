"""Every command that the documents show exists, with its flags; every specification that they show is valid."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from api.cli.app import main
from orchestrator.kinds.comparison import ComparisonSpec
from tests.architecture.tree import REPOSITORY
from worker.spec.run import RunSpec

RECORDS = {REPOSITORY / "docs" / "LOG.md"}
"""The pages that describe their own day."""
DOCUMENTS = sorted(
    {REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *(REPOSITORY / "docs").glob("*.md")} - RECORDS
)
COMMANDS: Any = get_command(main)


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(document: Path) -> Iterator[list[str]]:
    """The words after `adapm-bench` of every command: in blocks of a shell, and between backticks."""
    texts = [line for block in blocks(document, "sh") for line in block.replace("\\\n", " ").splitlines()]
    texts += re.findall(r"`(adapm-bench [^`]+)`", document.read_text())
    for text in texts:
        for command_line in re.findall(r"adapm-bench ([a-z-][^#&|;>]*)", text):
            yield shlex.split(command_line)


def refusal(arguments: list[str]) -> str | None:
    """Return the reason why the command line would not understand those words; None if it would."""
    command, remaining = COMMANDS, list(arguments)
    while hasattr(command, "commands"):
        if not remaining or remaining[0].startswith("-"):
            return None if remaining else "no verb"
        verb = remaining.pop(0)
        alternatives = verb.split("|")  # `keys create|ls|revoke` stands for three
        if missing := [alternative for alternative in alternatives if alternative not in command.commands]:
            return f"no verb {missing[0]}"
        command = command.commands[alternatives[0]]
        if len(alternatives) > 1:
            return None
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    known_flags = flags | {"--help", "-h", "-"}  # a hyphen alone is standard input
    unknown = [word for word in remaining if word.startswith("-") and word.partition("=")[0] not in known_flags]
    return f"no flag {unknown[0]}" if unknown else None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_exists_with_its_flags(document: Path):
    refusals = {
        " ".join(arguments): text for arguments in commands(document) if (text := refusal(arguments)) is not None
    }
    assert refusals == {}


def test_a_misspelt_command_would_be_found():
    assert refusal(["sumbit", "x.yaml"]) == "no verb sumbit"
    assert refusal(["submit", "x.yaml", "--jason"]) == "no flag --jason"
    assert refusal(["data", "prepair"]) == "no verb prepair"
    assert len(list(commands(REPOSITORY / "README.md"))) >= 5


@pytest.mark.parametrize("number", range(2))
def test_the_specifications_of_the_first_page_are_valid(number: int):
    spec = yaml.safe_load(blocks(REPOSITORY / "docs" / "index.md", "yaml")[number])
    (ComparisonSpec if "candidates" in spec else RunSpec).model_validate(spec)
