"""docker-compose.yml and Dockerfile: valid, pinned, closed, and about commands and settings that exist."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.main import get_command

from api.cli.app import main
from orchestrator.settings import Settings, unknown_variables

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SCHEMA = ROOT / "tests" / "reference" / "compose-spec.json"
"""Of the Compose specification, github.com/compose-spec/compose-spec, Apache-2.0."""


def words(service: dict[str, Any]) -> str:
    """A service's command as one text."""
    command = service.get("command", "")
    return command if isinstance(command, str) else "\n".join(command)


def test_it_follows_the_compose_specification():
    schema = {**json.loads(SCHEMA.read_text()), "$schema": "https://json-schema.org/draft/2020-12/schema"}
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_storage_is_added_to_services_that_are_there_with_keys_in_a_file():
    """The second file gives settings, a secret and a way out, each of which Compose adds to what the first one says."""
    added = yaml.safe_load((ROOT / "docs" / "compose" / "storage.yml").read_text())
    schema = {**json.loads(SCHEMA.read_text()), "$schema": "https://json-schema.org/draft/2020-12/schema"}
    jsonschema.Draft202012Validator(schema).validate(added)
    assert set(added["services"]) == {"api", "dispatcher", "prepare", "worker-cpu", "worker-gpu"} <= set(SERVICES)
    for service in added["services"].values():
        assert unknown_variables(service["environment"]) == ()
        assert not [name for name in service["environment"] if name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")]
        assert service["environment"]["AWS_SHARED_CREDENTIALS_FILE"] == f"/run/secrets/{service['secrets'][0]}"
        assert set(service) == {"environment", "secrets", "networks"}
        assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert set(added["secrets"]) == {"storage_keys"}


def test_the_addresses_of_storage_are_taken(monkeypatch: pytest.MonkeyPatch):
    added = yaml.safe_load((ROOT / "docs" / "compose" / "storage.yml").read_text())
    for name, value in added["services"]["api"]["environment"].items():
        if name.startswith("ADAPM_BENCH_"):
            monkeypatch.setenv(name, re.sub(r"\$\{BENCH_STORAGE[^}]*\}", "s3://bench/team", value))
    remote = Settings().remote()
    assert (remote.checkpoint_url, remote.dataset_url) == ("s3://bench/team/checkpoints", "s3://bench/team/datasets")


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_pinned_bounded_and_watched(name: str):
    service = SERVICES[name]
    assert re.fullmatch(r"[a-z/-]+:(v?\d+\.\d+[\w.-]*|cpu|cuda)", service["image"])
    if service["restart"] == "no":  # it ends by itself
        assert name in ("migrate", "prepare")
    else:
        assert "test" in service["healthcheck"]
        assert service["deploy"]["resources"]["limits"]["memory"]
        assert service["restart"] == "unless-stopped"


def test_the_proxy_alone_is_reached_from_outside():
    open_ports = {name: [port for port in service.get("ports", ()) if not port.startswith("127.0.0.1:")]
                  for name, service in SERVICES.items()}  # fmt: skip
    assert {name: ports for name, ports in open_ports.items() if ports} == {"proxy": ["80:80", "443:443"]}
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert [name for name, service in SERVICES.items() if "outside" in service["networks"]] == ["proxy", "prepare"]


def test_secrets_are_files_that_are_declared_and_used():
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", ())}
    assert used == set(COMPOSE["secrets"])
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())
    values = [str(value) for service in SERVICES.values() for value in service.get("environment", {}).values()]
    assert not [value for value in values if re.search(r"://[^/]*:[^/]*@", value)]


def test_variables_of_the_bench_are_settings():
    names = [name for service in SERVICES.values() for name in service.get("environment", {})]
    assert unknown_variables(names) == ()


def test_commands_of_the_bench_exist_with_their_flags():
    """Each `adapm-bench VERB --flag …` is looked up in the command line itself."""
    found = 0
    commands = get_command(main)
    for service in SERVICES.values():
        for text in re.findall(r"adapm-bench ([^\n&|]+)", words(service)):
            verb, *rest = shlex.split(text)
            command = commands.commands[verb]  # type: ignore[attr-defined]  # typer's root is a group
            if hasattr(command, "commands"):
                command = command.commands[rest.pop(0)]
            flags = {flag for parameter in command.params for flag in parameter.opts}
            assert {word for word in rest if word.startswith("--")} <= flags
            found += 1
    assert found >= 3


def test_ray_always_starts_below_a_folder_that_nobody_else_enters():
    """It opens its own folder to everybody. KubeRay starts it by itself, in a container of one user."""
    texts = [words(service) for service in SERVICES.values()]
    texts += [(ROOT / "docs" / name).read_text() for name in ("deployment.md", "kubernetes/bench.yaml")]
    texts.append((ROOT / "docs" / "slurm" / "workers.sbatch").read_text())
    starts = [line for text in texts for line in re.findall(r"^.*\bray start --.*", text, flags=re.MULTILINE)]
    assert len(starts) >= 9
    assert [line for line in starts if not re.search(r"--temp-dir=\S*\(mktemp -d", line)] == []


def test_images_run_as_a_user_and_have_the_stages_that_compose_names():
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    assert {service["build"]["target"] for service in SERVICES.values() if "build" in service} <= set(stages)
    assert len(re.findall(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)) == len(stages), "every stage has a name"
    assert re.search(r"^USER bench$", DOCKERFILE, flags=re.MULTILINE)
    for name in re.findall(r"--from=(\S+)", DOCKERFILE) + re.findall(r"^FROM (\S+) AS", DOCKERFILE, flags=re.MULTILINE):
        assert name in stages or re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm", name)


def test_what_the_image_copies_is_not_left_out_of_its_context():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    packages = {"optim", "worker", "orchestrator", "dashboards", "api"}
    assert kept == packages | {"docs/example*.yaml", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
