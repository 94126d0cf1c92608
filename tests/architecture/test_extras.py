"""A host has what its part of the bench needs and no more: the client, the api, a worker, the dispatcher; and packages
of this checkout, all of which are distributed."""

import importlib
import os
import socket
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import httpx2
import pytest
from packaging.requirements import Requirement
from setuptools import find_packages

from tests.architecture.tree import PACKAGES, REPOSITORY, product_files
from tests.factories.environments import link_distributions, run, variables
from tests.factories.waiting import until

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WEB = {"fastapi", "starlette", "uvicorn", "httptools", "matplotlib"}
HEAVY = {"torch", "transformers", "datasets", "tokenizers", "ray", "mlflow"}
STORE = {"sqlalchemy", "alembic", "scipy", "optuna"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python without any package."""
    home = tmp_path_factory.mktemp("python") / "environment"
    venv.create(home, symlinks=True)
    return home / "bin" / "python"


def requirements(*extras: str) -> Iterator[str]:
    """Yield the requirements of `pip install adapm-bench[extras]`."""
    yield from (*PROJECT["dependencies"], *(line for extra in extras for line in _of_extra(extra)))


def _of_extra(extra: str) -> Iterator[str]:
    for line in PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            for nested_extra in requirement.extras:
                yield from _of_extra(nested_extra)
        else:
            yield line


def install(folder: Path, *extras: str) -> Path:
    """The bench with these extras, to import from."""
    installed = link_distributions(folder / "installed", *requirements(*extras))
    for package in PACKAGES:
        (installed / package).symlink_to(REPOSITORY / package)
    information = installed / "adapm_bench-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.4\nName: adapm-bench\nVersion: 0.1.0\n")
    return installed


@contextmanager
def api_process(python: Path, path: Path, folder: Path) -> Iterator[str]:
    """`adapm-bench api` over a fresh SQLite file; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(python), *f"-m api.cli api --port {port} --data {folder} --watch-stdin".split()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=variables(folder, path), cwd=folder
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx2.get(f"{url}/healthz", verify=False).status_code == 200
        except httpx2.TransportError:
            return False

    try:
        until(answers, "the api answers", or_ended=process)
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_an_api_without_torch_serves_a_client_without_anything(python: Path, tmp_path: Path):
    api = install(tmp_path / "api", "api")
    client = install(tmp_path / "client")
    assert not (HEAVY & set(os.listdir(api)))
    assert not ((HEAVY | WEB | STORE) & set(os.listdir(client)))
    with (
        api_process(python, api, tmp_path) as url,
        httpx2.Client(base_url=url, trust_env=False, verify=False, timeout=60) as http,
    ):
        call = (python, "-m", "api.cli")
        example = REPOSITORY / "docs" / "example.yaml"
        run(*call, "submit", example, "--url", url, cwd=tmp_path, path=client)
        listed = http.get("/v1/experiments").json()
        (experiment,) = [entry["id"] for entry in listed["items"]]
        assert experiment in run(*call, "ls", "--url", url, cwd=tmp_path, path=client)
        pages = ("/", f"/experiments/{experiment}", "/queue", "/memory", "/studies", "/new", "/docs", "/metrics")
        answers = {page: http.get(page, follow_redirects=True).status_code for page in pages}
        assert answers == dict.fromkeys(pages, 200)

        def why_not() -> bool:
            return "pip install &#39;.[worker]&#39;" in http.get("/memory").text

        until(why_not, "the memory page says what is missing")


def test_a_worker_trains_without_a_web_stack_and_loads_transformers_with_its_first_model(python: Path, tmp_path: Path):
    """Two thirds of a worker's imports are transformers: a regression trains without them. Torchao costs each process a
    third of a second, and warns on every training's output."""
    worker = install(tmp_path / "worker", "worker", "low-bit")
    assert not ((WEB | STORE | {"mlflow"}) & set(os.listdir(worker)))
    specification = (REPOSITORY / "docs" / "example-regression.yaml").read_text(encoding="utf-8")
    (tmp_path / "run.yaml").write_text(specification.replace("steps: 4000", "steps: 200"))
    program = """
import sys, worker.attempt
print("transformers" in sys.modules, "torchao" in sys.modules)
from worker.models import outline_model
print(sum(parameter.numel() for parameter in outline_model("gpt2-tiny").parameters()))
print("transformers" in sys.modules, "torchao" in sys.modules)
import datasets, ray, tokenizers, worker.rank_attempt
import orchestrator.dispatch.attempt_actor, orchestrator.dispatch.distributed_runner
from api.cli import main
main(["run", "run.yaml"])
"""
    before, parameters, after, *printed = run(python, "-c", program, cwd=tmp_path, path=worker).splitlines()
    assert parameters == "858880"
    assert "torchao" in os.listdir(worker)
    assert (before, after) == ("False False", "True False")
    assert any("Optimizer state" in line for line in printed), printed


def test_a_dispatcher_needs_no_torch_and_no_web_stack(python: Path, tmp_path: Path):
    dispatcher = install(tmp_path / "dispatcher", "orchestrator")
    processes = "api.processes.dispatcher, api.processes.sweep_driver, orchestrator.sweeps.search, mlflow"
    program = f"import sys, {processes}; print('torch' in sys.modules, 'uvicorn' in sys.modules)"
    assert run(python, "-c", program, cwd=tmp_path, path=dispatcher).split() == ["False", "False"]
    assert "torch" not in os.listdir(dispatcher)


@pytest.mark.parametrize(("verb", "package"), [("up", "sqlalchemy"), ("models gpt2-tiny --blocks", "torch")])
def test_a_verb_that_needs_more_says_how_to_get_it(verb: str, package: str, python: Path, tmp_path: Path):
    client = install(tmp_path / "client")
    process = subprocess.run(
        [python, "-m", "api.cli", *verb.split()],
        env=variables(tmp_path, client),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    way_out = f"this needs {package}, which is not installed; in the project's folder run: pip install '.[all]'\n"
    assert (process.returncode, process.stderr) == (2, way_out)


def test_all_is_every_part():
    assert {Requirement(line).name for line in requirements("all")} == {
        Requirement(line).name for line in requirements("api", "worker", "orchestrator")
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_this_checkouts(package: str):
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == REPOSITORY / package / "__init__.py"


def test_every_package_is_in_the_distribution():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packaged = set(find_packages(str(REPOSITORY), include=project["tool"]["setuptools"]["packages"]["find"]["include"]))
    folders = {".".join(PurePosixPath(path).parent.parts) for path in product_files() if path.split("/")[0] in PACKAGES}
    assert folders - packaged == set()
    assert packaged - folders == set()
