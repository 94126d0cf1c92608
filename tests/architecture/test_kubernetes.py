"""docs/kubernetes and docs/slurm: valid by schemas, closed, and about commands, settings and versions that exist."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from orchestrator.settings import unknown_variables
from tests.architecture.test_deployment import DOCUMENT, KNOWS, ROLES, SERVICES
from tests.architecture.test_documented_commands import refusal
from tests.architecture.tree import REPOSITORY

NEWEST, OLDEST = "1.37", "1.25"
"""Versions of Kubernetes whose schemas the checker has."""
PINNED = re.compile(r"(registry\.example/adapm-bench:(cpu|cuda)|[a-z]+:\d[\w.-]+)@(?P<digest>\$\{[A-Z]+_DIGEST\})")
"""An image by its tag, for people, and its digest, which has to be put in."""
SCRIPT = REPOSITORY / "docs" / "slurm" / "workers.sbatch"
CLUSTER_SCHEMA = json.loads((REPOSITORY / "tests" / "schemas" / "raycluster-crd.json").read_text())


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and kind and name, manifest) of every document."""
    for path in sorted((REPOSITORY / "docs" / "kubernetes").glob("*.yaml")):
        for manifest in yaml.safe_load_all(path.read_text()):
            yield f"{path.stem} {manifest['kind']} {manifest['metadata']['name']}", manifest


MANIFESTS = dict(manifests())


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, the pod's specification) of everything that makes pods."""
    for name, manifest in MANIFESTS.items():
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Pod":
            yield name, spec
        elif manifest["kind"] == "RayCluster":
            yield f"{name} head", spec["headGroupSpec"]["template"]["spec"]
            for group in spec["workerGroupSpecs"]:
                yield f"{name} {group['groupName']}", group["template"]["spec"]
        elif "template" in spec:
            claims = [{"name": claim["metadata"]["name"]} for claim in spec.get("volumeClaimTemplates", ())]
            pod = spec["template"]["spec"]
            yield name, pod | {"volumes": [*pod["volumes"], *claims]}


PODS = dict(pods())


def containers() -> Iterator[dict[str, Any]]:
    """Every container, those before the others included."""
    for spec in PODS.values():
        yield from (*spec.get("initContainers", ()), *spec["containers"])


def command_lines() -> Iterator[str]:
    """Every command: of containers and of probes, each part of a shell's line by itself."""
    for container in containers():
        probes = (container.get(probe, {}) for probe in ("readinessProbe", "livenessProbe"))
        for command in (container.get("command", ()), *(probe.get("exec", {}).get("command", ()) for probe in probes)):
            yield from (part for word in command for part in re.split(r"&&|\n(?!\s+-)", word.replace("\\\n", " ")))


def of_program(program: str) -> list[list[str]]:
    """The words after `program` of every command that begins with it."""
    lines = [line.strip().removeprefix("exec ") for line in command_lines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(f"{program} ")]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", [name for name in MANIFESTS if " RayCluster " not in name])
def test_a_manifest_follows_the_schema_of_kubernetes(name: str, version: str):
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


def test_the_ray_cluster_follows_kuberays_schema_and_its_pods_that_of_kubernetes():
    cluster = MANIFESTS["ray-cluster RayCluster ray"]
    jsonschema.Draft202012Validator(CLUSTER_SCHEMA).validate(cluster)
    groups = {"head": cluster["spec"]["headGroupSpec"]} | {
        group["groupName"]: group for group in cluster["spec"]["workerGroupSpecs"]
    }
    for name, group in groups.items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": group["template"]["spec"]}
        kubernetes_validate.validate(pod, NEWEST, strict=True)
        flags = {f"--{flag}" for flag in group["rayStartParams"]}
        assert flags <= options(["start"])
    pinned = re.search(r"^ray==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert pinned and cluster["spec"]["rayVersion"] == pinned[1]


@pytest.mark.parametrize("name", PODS)
def test_every_pod_is_bounded_unprivileged_and_knows_nothing_of_the_cluster(name: str):
    spec = PODS[name]
    assert spec["automountServiceAccountToken"] is False  # /run/secrets is ours, too
    assert spec["securityContext"]["runAsNonRoot"] is True
    mounted = {volume["name"] for volume in spec["volumes"]}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        assert container["resources"]["limits"]["memory"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container["volumeMounts"]} <= mounted
        written = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "scratch"}
        assert "/tmp" in written
        if "adapm-bench" in container["image"]:
            assert "/home/bench" in written
        assert PINNED.fullmatch(container["image"])
    assert all(volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"] if "emptyDir" in volume)


def test_digests_are_asked_for_and_found_by_the_documents_steps():
    """None is made up: the steps look each up, and put it where the manifests want it."""
    wanted = {match["digest"] for container in containers() if (match := PINNED.fullmatch(container["image"]))}
    applied = re.search(r"envsubst '([^']+)' < \"\$each\" \| kubectl apply", DOCUMENT)
    assert applied
    assert (
        {f"${{{name[1:]}}}" for name in applied[1].split()}
        == wanted
        == {
            "${CPU_DIGEST}",
            "${CUDA_DIGEST}",
            "${POSTGRES_DIGEST}",
        }
    )
    for name in wanted:
        assert f"{name[2:-1]}=$(digest " in DOCUMENT
    assert SERVICES["postgres"]["image"].partition("@")[0] in {
        container["image"].partition("@")[0] for container in containers()
    }
    assert "@sha256:" not in "".join(path.read_text() for path in (REPOSITORY / "docs" / "kubernetes").glob("*.yaml"))


def secrets_of(spec: dict[str, Any]) -> set[str]:
    """The secrets that are mounted into a pod."""
    names = set()
    for volume in spec["volumes"]:
        names |= {volume["secret"]["secretName"]} if "secret" in volume else set()
        names |= {source["secret"]["name"] for source in volume.get("projected", {}).get("sources", ())}
    return names


def test_each_pod_is_told_what_it_needs():
    """What trains knows no database; MLflow, and PostgreSQL's own password, are nobody else's."""
    assert {name.rpartition(" ")[2]: secrets_of(spec) for name, spec in PODS.items()} == {
        "api": {"bench-database"},
        "dispatcher": {"bench-database", "ray"},
        "mlflow": {"mlflow-database"},
        "tools": {"bench-database"},
        "postgres": {"postgres"},
        "head": {"ray"},
        "cpu": {"ray"},
        "gpu": {"ray"},
    }
    secret_commands = dict(re.findall(r"kubectl create secret generic ([a-z-]+)((?:[^\n]*\\\n)*[^\n]*)", DOCUMENT))
    keys_by_secret = {name: set(re.findall(r"--from-literal=(\w+)=", text)) for name, text in secret_commands.items()}
    assert keys_by_secret == {
        "postgres": KNOWS["postgres"],
        "bench-database": KNOWS["api"],
        "mlflow-database": KNOWS["mlflow"],
        "ray": KNOWS["worker-cpu"],
        "storage": {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
    }
    for container in containers():
        assert {name for source in container.get("envFrom", ()) for name in reference(source)} <= {"bench", "storage"}
    settings = MANIFESTS["bench ConfigMap bench"]["data"]
    assert not [name for name in settings if "DATABASE" in name or "PASSWORD" in name]


def reference(source: dict[str, Any]) -> Iterator[str]:
    """The names of what an environment comes from."""
    yield from (entry["name"] for entry in source.values())


def test_the_roles_are_those_of_compose():
    assert MANIFESTS["postgresql ConfigMap roles"]["data"]["roles.sql"] == ROLES.read_text()
    names = {variable["name"] for variable in PODS["postgresql StatefulSet postgres"]["containers"][0]["env"]}
    assert names == {"POSTGRES_PASSWORD_FILE", "PGDATA"}, "the superuser is the image's own, postgres"


def labels_of_pods() -> Iterator[tuple[str, dict[str, str]]]:
    """(name, labels) of all pods, with those that KubeRay gives its own."""
    for name, manifest in MANIFESTS.items():
        if manifest["kind"] == "Pod":
            yield name.rpartition(" ")[2], manifest["metadata"]["labels"]
        elif manifest["kind"] == "RayCluster":
            yield "ray", {"ray.io/cluster": manifest["metadata"]["name"]}
        elif "template" in manifest.get("spec", {}):
            yield name.rpartition(" ")[2], manifest["spec"]["template"]["metadata"]["labels"]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())


def test_policies_say_whom_they_let_in_and_that_is_who_has_to():
    """Who reaches whom, at which ports; from other namespaces by name, and nobody from nowhere in particular."""
    pods = dict(labels_of_pods())
    policies = [manifest["spec"] for manifest in MANIFESTS.values() if manifest["kind"] == "NetworkPolicy"]
    assert all(policy["policyTypes"] == ["Ingress"] for policy in policies)
    assert {"podSelector": {}, "policyTypes": ["Ingress"]} in policies, "who is not spoken of is reached by nobody"
    callers: dict[str, set[tuple[str, int | None]]] = {name: set() for name in pods}
    for policy in policies:
        for rule in policy.get("ingress", ()):
            assert rule["from"], "without it, everybody"
            ports = [port["port"] for port in rule.get("ports", ())] or [None]
            for peer in rule["from"]:
                assert set(peer) <= {"podSelector", "namespaceSelector"} and peer["podSelector"]["matchLabels"]
                namespace = peer.get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name")
                assert ("namespaceSelector" in peer) == (namespace is not None)
                pod_names = [name for name, labels in pods.items() if selects(peer["podSelector"], labels)]
                for target, labels in pods.items():
                    if selects(policy["podSelector"], labels):
                        callers[target] |= {
                            (caller, port) for caller in ([namespace] if namespace else pod_names) for port in ports
                        }
    assert callers == {
        "api": {(caller, 8321) for caller in ("ingress-nginx", "monitoring", "ray", "dispatcher", "tools")},
        "dispatcher": {("ray", None), ("dispatcher", None)},
        "ray": {("ray", None), ("dispatcher", None)},
        "mlflow": {("dispatcher", 5000)},
        "postgres": {(caller, 5432) for caller in ("api", "dispatcher", "mlflow", "tools")},
        "tools": set(),
    }


def test_commands_of_the_bench_and_of_ray_exist_with_their_flags():
    services, ray = of_program("adapm-bench"), of_program("ray")
    assert [command for command in services if refusal(command) is not None] == []
    assert {command[0] for command in services} == {"api", "dispatcher", "db"}
    for verb, *arguments in ray:
        assert {word.partition("=")[0] for word in arguments if word.startswith("--")} <= options([verb])
    assert {command[0] for command in ray} == {"start", "health-check"}


def options(command: list[str]) -> set[str]:
    """The flags of a verb of Ray's command line, which takes a second to load."""
    from ray.scripts.scripts import cli as ray_commands

    return {flag for parameter in ray_commands.commands[command[0]].params for flag in parameter.opts}


def test_what_is_named_is_there():
    """Config maps, claims, services; the same places as in docker-compose.yml."""
    names_by_kind: dict[str, set[str]] = defaultdict(set)
    for manifest in MANIFESTS.values():
        names_by_kind[manifest["kind"]].add(manifest["metadata"]["name"])
    for spec in PODS.values():
        for volume in spec["volumes"]:
            claim, maps = volume.get("persistentVolumeClaim", {}), volume.get("configMap", {})
            assert {claim.get("claimName", "data")} <= names_by_kind["PersistentVolumeClaim"]
            assert {maps.get("name", "bench")} <= names_by_kind["ConfigMap"]
        text = "\n".join(command_lines())
    places = set(re.findall(r"https?://([a-z-]+):\d+", text)) | set(re.findall(r"[= ]([a-z-]+)-head-svc:6379", text))
    assert places <= names_by_kind["Service"] | names_by_kind["RayCluster"]
    settings = MANIFESTS["bench ConfigMap bench"]["data"]
    compose = SERVICES["dispatcher"]["environment"]
    assert unknown_variables(settings) == ()
    assert {name for name in settings if settings[name] != compose[name]} == {"ADAPM_BENCH_ALLOWED_HOSTS"}


def test_the_batch_job_has_a_node_join_with_the_token(tmp_path: Path):
    """The script itself, with programs in place of `srun`, which binds to one CPU, and `ray` that tell what they were
    given."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    tell = 'echo "$RAY_AUTH_MODE $RAY_AUTH_TOKEN_PATH $*"; env > "$SHARED/environment"'
    srun = f'shift; exec taskset -c {min(os.sched_getaffinity(0))} "$@"'
    for name, text in {"srun": srun, "ray": tell, "python": f'exec {sys.executable} "$@"'}.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    environment = os.environ | {"RAY_HEAD": "head:6379", "SHARED": str(tmp_path)}
    secret = {"ADAPM_BENCH_DATABASE_URL": "postgresql://bench:secret@db/bench", "ADAPM_BENCH_KEY": "adapm_secret"}
    environment |= secret | {"PGPASSWORD": "secret", "MLFLOW_BACKEND_STORE_URI": "postgresql://mlflow:secret@db/mlflow"}
    process = subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, check=True)
    mode, token, verb, *flags = process.stdout.split()
    assert (mode, token, verb) == ("token", f"{tmp_path}/secrets/ray_token", "start")
    assert {"--address=head:6379", "--num-cpus=1"} <= set(flags)
    assert {flag.partition("=")[0] for flag in flags} <= options(["start"])
    assert "secret" not in (tmp_path / "environment").read_text().replace(token, ""), "what trains knows no database"
    del environment["RAY_HEAD"]
    refused = subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "where the Ray head is" in refused.stderr
