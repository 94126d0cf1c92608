"""docker-compose.yml and Dockerfile: valid, pinned, closed, and about commands and settings that exist."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import psycopg
import pytest
import yaml

from orchestrator.jobs import LeasePolicy, RunStatus
from orchestrator.keys import KeyRequest
from orchestrator.settings import unknown_variables
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.architecture.test_documented_commands import refusal
from tests.architecture.tree import REPOSITORY
from tests.factories.services import make_services
from tests.factories.stores import PostgresqlServer, claim, comparison_spec, result

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
DOCUMENT = (REPOSITORY / "docs" / "deployment.md").read_text()
ROLES = REPOSITORY / "docs" / "compose" / "roles.sql"
PINNED = re.compile(r"(?P<image>[a-z/-]+:v?\d+\.\d+[\w.-]*)@\$\{(?P<variable>[A-Z]+_DIGEST):\?[^}]+\}")
"""An image by its tag, for people, and its digest, which has to be given."""
SCHEMA = REPOSITORY / "tests" / "schemas" / "compose-spec.json"
"""The schema of the Compose specification, github.com/compose-spec/compose-spec, Apache-2.0."""


def words(service: dict[str, Any]) -> str:
    """A service's command as one text."""
    command = service.get("command", "")
    return command if isinstance(command, str) else "\n".join(command)


def test_it_follows_the_compose_specification():
    schema = {**json.loads(SCHEMA.read_text()), "$schema": "https://json-schema.org/draft/2020-12/schema"}
    jsonschema.Draft202012Validator(schema).validate(COMPOSE)


def test_storage_is_added_to_services_that_are_there_with_keys_in_a_file():
    """The second file gives settings, a secret and a way out, each of which Compose adds to what the first one says."""
    added = yaml.safe_load((REPOSITORY / "docs" / "compose" / "storage.yml").read_text())
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


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_pinned_bounded_and_watched(name: str):
    service = SERVICES[name]
    local_image = re.fullmatch(r"adapm-bench:(cpu|cuda)", service["image"])
    assert bool(local_image) == ("build" in service)
    assert local_image or PINNED.fullmatch(service["image"])
    if service["restart"] == "no":  # it ends by itself
        assert name in ("migrate", "prepare")
    else:
        assert "test" in service["healthcheck"]
        assert service["restart"] == "unless-stopped"
    limits = service["deploy"]["resources"]["limits"]
    assert limits["memory"]
    assert 0 < limits["pids"] <= 65_536


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_gains_anything_or_writes_to_its_root(name: str):
    """Processes keep what they begin with; files go to volumes, and to memory that ends with the container."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "proxy" else [])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    places = {mount.partition(":")[0]: mount for mount in service["tmpfs"]}
    assert "/tmp" in places
    assert all("size=" in mount for mount in places.values()), "memory that is written to is bounded"
    if service["image"].startswith("adapm-bench"):
        assert "exec" in places["/tmp"], "torch.compile loads what it compiles there"
        assert "/home/bench" in places


def test_digests_are_asked_for_and_the_documents_steps_find_those_of_the_same_images():
    """None is made up here: what a tag names today is looked up once, kept in .env, and has to be there."""
    wanted = {
        pinned_image["variable"]: pinned_image["image"]
        for service in SERVICES.values()
        if (pinned_image := PINNED.match(service["image"]))
    }
    (base,) = re.findall(r"^FROM (\S+:\S+)@\$\{PYTHON_DIGEST\} AS base$", DOCKERFILE, flags=re.MULTILINE)
    assert re.search(r"^ARG PYTHON_DIGEST$", DOCKERFILE, flags=re.MULTILINE), "without a default"
    for service in SERVICES.values():
        if "build" in service:
            assert re.fullmatch(r"\$\{PYTHON_DIGEST:\?[^}]+\}", service["build"]["args"]["PYTHON_DIGEST"])
    loop = re.search(r"^for image in (.*?); do$.*?> \.env$", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
    assert loop
    listed = dict(pair.split("=") for pair in loop[1].replace("\\\n", " ").split())
    assert {f"{name}_DIGEST": image for name, image in listed.items()} == wanted | {"PYTHON_DIGEST": base}
    assert ".env" in (REPOSITORY / ".gitignore").read_text().splitlines()
    assert not re.search(r"@sha256:", "".join((DOCKERFILE, (REPOSITORY / "docker-compose.yml").read_text())))


KNOWS = {
    "api": {"adapm_bench_database_url"},
    "migrate": {"adapm_bench_database_url"},
    "dispatcher": {"adapm_bench_database_url", "ray_token"},
    "ray-head": {"ray_token"},
    "worker-cpu": {"ray_token"},
    "worker-gpu": {"ray_token"},
    "mlflow": {"mlflow_database_url"},
    "postgres": {"postgres_password", "bench_password", "mlflow_password"},
    "prometheus": {"prometheus_key"},
    "grafana": {"grafana_password"},
}
"""The variables of each service; the others get none."""


def test_what_trains_or_fetches_knows_no_database_and_mlflow_only_its_own():
    assert {name: set(service.get("secrets", ())) for name, service in SERVICES.items()} == {
        name: KNOWS.get(name, set()) for name in SERVICES
    }
    for name, service in SERVICES.items():
        if "adapm_bench_database_url" not in KNOWS.get(name, ()):
            assert "database_url" not in words(service).replace("mlflow_database_url", "")
            assert not [
                variable for variable in service.get("environment", {}) if "DATABASE" in variable or "PG" in variable
            ]
    volumes = {
        name: {volume.partition(":")[0] for volume in service.get("volumes", ())} for name, service in SERVICES.items()
    }
    assert volumes["mlflow"] == {"artifacts"}
    assert {name for name in volumes if "database" in volumes[name]} == {"postgres"}


@pytest.fixture
def roles(postgresql: PostgresqlServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the roles of docs/compose/roles.sql on a real server: the URL of each role's database, and of the other's
    as that role. It is undone at the end."""
    for name in ("bench", "mlflow"):
        (tmp_path / f"{name}_password").write_text(f"of {name}'s own")
    # The server of the tests has a role `bench` already, its superuser: ours get names of their own here.
    script = ROLES.read_text().replace("/run/secrets", str(tmp_path))
    script = re.sub(r"\b(bench|mlflow)\b", r"trial_\1", script)
    socket_folder = str(postgresql.socket_folder)
    psql = [str(shutil.which("psql")), "-h", socket_folder, "-U", "bench", "-d", "postgres", "-X", "-q"]
    try:
        subprocess.run([*psql, "-f", "-"], input=script, text=True, check=True, capture_output=True)
        urls = {
            f"{role} {database}": f"postgresql://trial_{role}@/trial_{database}?host={socket_folder}"
            for role in ("bench", "mlflow")
            for database in ("bench", "mlflow")
        }
        yield urls
    finally:
        undo = "".join(f"DROP DATABASE IF EXISTS trial_{name};" for name in ("bench", "mlflow"))
        undo += "".join(f"DROP ROLE IF EXISTS trial_{name};" for name in ("bench", "mlflow"))
        for statement in undo.split(";"):
            subprocess.run([*psql, "-c", statement], check=True, capture_output=True)
        grant = "GRANT CONNECT, TEMPORARY ON DATABASE postgres TO PUBLIC; GRANT CONNECT ON DATABASE template1 TO PUBLIC"
        subprocess.run([*psql, "-c", grant], check=True, capture_output=True)


@pytest.mark.postgres
def test_the_bench_works_with_a_role_that_may_nothing_else(roles: dict[str, str], tmp_path: Path):
    """All that the service does, from the first migration on; not MLflow's database, nor the server's files."""
    database = Database(roles["bench bench"])
    try:
        database.migrate()
        services = make_services(database, tmp_path)
        services.keyring.create(KeyRequest(label="Ada"))
        experiment_id = services.experiments.submit(comparison_spec()).experiment.id
        (lease,) = claim(Queue(database, LeasePolicy()), cpus=1, limit=1)
        services.attempts.hello(lease.run_id, lease.attempt, lease.token)
        services.attempts.finish(lease.run_id, lease.attempt, lease.token, result())
        assert services.experiments.get(experiment_id).counts.by_status[RunStatus.SUCCEEDED] == 1
        assert maintenance.faults(database) == ()
    finally:
        database.close()
    for forbidden in (
        "CREATE ROLE another",
        "CREATE DATABASE another",
        "COPY (SELECT 1) TO PROGRAM 'id'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT * FROM pg_authid",
        "ALTER ROLE CURRENT_USER SUPERUSER",
    ):
        with (
            psycopg.connect(roles["bench bench"], autocommit=True) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(forbidden.encode())
    with psycopg.connect(roles["mlflow mlflow"], autocommit=True) as connection:
        connection.execute("CREATE TABLE experiments (id int)")
    for stranger in ("bench mlflow", "mlflow bench"):
        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(roles[stranger])


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
    lines = [line for service in SERVICES.values() for line in re.findall(r"adapm-bench ([^\n&|]+)", words(service))]
    assert len(lines) >= 3 and [line for line in lines if refusal(shlex.split(line)) is not None] == []


def test_ray_always_starts_below_a_folder_that_nobody_else_enters():
    """It opens its own folder to everybody. KubeRay starts it by itself, in a container of one user."""
    texts = [words(service) for service in SERVICES.values()]
    texts += [(REPOSITORY / "docs" / name).read_text() for name in ("deployment.md", "kubernetes/bench.yaml")]
    texts.append((REPOSITORY / "docs" / "slurm" / "workers.sbatch").read_text())
    starts = [line for text in texts for line in re.findall(r"^.*\bray start --.*", text, flags=re.MULTILINE)]
    assert len(starts) >= 9
    assert [line for line in starts if not re.search(r"--temp-dir=\S*\(mktemp -d", line)] == []


def test_images_run_as_a_user_and_have_the_stages_that_compose_names():
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    assert {service["build"]["target"] for service in SERVICES.values() if "build" in service} <= set(stages)
    assert len(re.findall(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)) == len(stages), "every stage has a name"
    assert re.search(r"^USER bench$", DOCKERFILE, flags=re.MULTILINE)
    for name in re.findall(r"--from=(\S+)", DOCKERFILE) + re.findall(r"^FROM (\S+) AS", DOCKERFILE, flags=re.MULTILINE):
        assert name in stages or re.fullmatch(r"python:\d+\.\d+\.\d+-slim-bookworm@\$\{PYTHON_DIGEST\}", name)
