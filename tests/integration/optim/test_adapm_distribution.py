"""`pip install ./optim`: the package `adapm`, built from a clean checkout, used where only torch is installed."""

import re
import sys
import tomllib
import venv
import zipfile
from pathlib import Path
from shutil import copy, copytree

import pytest
from packaging.requirements import Requirement

import optim
from tests.architecture.tree import REPOSITORY, product_files
from tests.factories.environments import link_distributions, run

README = (REPOSITORY / "optim" / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "optim" / "pyproject.toml").read_text(encoding="utf-8"))
BENCH = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
SNIPPETS = {
    title: source
    for title, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    for source in re.findall(r"```python\n(.*?)```", body, re.DOTALL)[:1]
}
"""Heading → its first snippet."""
(TRAINER_BUILDS_IT,) = re.findall(r"```python\n([^`]*?optimizer_cls_and_kwargs.*?)```", README, re.DOTALL)


def make_wheel(source: Path, folder: Path) -> Path:
    folder.mkdir()
    arguments = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "-w", folder)
    run(sys.executable, "-P", "-m", "pip", "wheel", *arguments, source, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapm")


@pytest.fixture(scope="module")
def checkout(folder: Path) -> Path:
    """`optim/` as git has it, without what is ignored."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "optim", cwd=REPOSITORY)
    clean = folder / "checkout"
    for file in listed.splitlines():
        (clean / file).parent.mkdir(parents=True, exist_ok=True)
        copy(REPOSITORY / file, clean / file)
    return clean / "optim"


@pytest.fixture(scope="module")
def wheel(checkout: Path, folder: Path) -> Path:
    return make_wheel(checkout, folder / "wheel")


@pytest.fixture(scope="module")
def python(wheel: Path, folder: Path) -> Path:
    """An environment with torch, what torch needs, and the wheel: pip itself finds nothing missing."""
    home = folder / "environment"
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "torch.pth").write_text(str(link_distributions(folder / "torch", "torch")))
    arguments = ("--python", home / "bin" / "python", "install", "--no-index", "--disable-pip-version-check", wheel)
    run(sys.executable, "-P", "-m", "pip", *arguments, cwd=folder)
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def frameworks(folder: Path) -> Path:
    """Return the folder of the frameworks."""
    return link_distributions(folder / "frameworks", "transformers", "accelerate", "pytorch-lightning")


def test_the_wheel_has_every_module_its_types_and_its_licence_and_nothing_else(wheel: Path):
    modules = {path.replace("optim/", "adapm/", 1) for path in product_files() if path.startswith("optim/")}
    information = f"adapm-{optim.__version__}.dist-info"
    files = {f"{information}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "top_level.txt", "licenses/LICENSE")}
    assert set(contents(wheel)) == modules | files | {"adapm/py.typed"}
    assert contents(wheel)[f"{information}/licenses/LICENSE"] == (REPOSITORY / "LICENSE").read_bytes()


def test_the_source_distribution_makes_the_same_wheel(checkout: Path, wheel: Path, folder: Path):
    copied = copytree(checkout, folder / "source" / "optim")
    program = "from setuptools import build_meta; print(build_meta.build_sdist('made'))"
    name = run(sys.executable, "-P", "-c", program, cwd=copied).splitlines()[-1]
    assert contents(make_wheel(copied / "made" / name, folder / "from-source")) == contents(wheel)


def test_the_benchs_wheel_has_optim_whatever_was_built_inside_of_it(checkout: Path, folder: Path):
    """A user who ran `pip install ./optim` has optim/build; a wheel of the bench takes none of it."""
    bench = folder / "bench"
    for file in (*product_files(), "pyproject.toml", "README.md", "LICENSE", "optim/py.typed"):
        if not file.startswith("benchmarks/"):
            (bench / file).parent.mkdir(parents=True, exist_ok=True)
            copy(REPOSITORY / file, bench / file)
    copytree(checkout, bench / "optim" / "build" / "lib" / "adapm")
    files = contents(make_wheel(bench, folder / "bench-wheel"))
    python_files = {name for name in files if name.endswith(".py")}
    assert python_files == {path for path in product_files() if not path.startswith("benchmarks/")}
    assert "optim/py.typed" in files


def test_the_package_takes_the_torch_that_is_tested_and_the_same_packages_as_the_bench():
    extras = BENCH["project"]["optional-dependencies"]
    (torch,) = (Requirement(line) for line in PROJECT["project"]["dependencies"])
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    (oldest,) = re.findall(r"\btorch==(\S+)", makefile)
    assert torch.name == "torch" and oldest in torch.specifier
    assert ".".join(oldest.split(".")[:2]) == min(bound.version for bound in torch.specifier if bound.operator == ">=")
    assert PROJECT["project"]["optional-dependencies"] == {name: extras[name] for name in ("baselines", "low-bit")}


BEFORE = "from somebodys_training import *\nbefore = evaluate(model)\n"
AFTER = "\nassert evaluate(model) < before - 0.1, (before, evaluate(model))\n"
"""Around a snippet on somebody's model, whose loss has to fall."""
ALONE = ("In a plain loop", "In torchtitan's manner")
FRAMEWORKS = ("In Hugging Face's Trainer", "With Accelerate", "With Lightning")
FORKED = """
import os, sys, traceback
from importlib import import_module
from runpy import run_path

for name in sys.argv[1].split(","):
    import_module(name)
for program in sys.argv[2:]:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        written = os.open(program + ".said", os.O_WRONLY | os.O_CREAT)
        os.dup2(written, 1), os.dup2(written, 2)
        try:
            run_path(program, run_name="__main__")
            ended = 0
        except BaseException:
            traceback.print_exc()
            ended = 1
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(ended)
    print(program, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep="\\t")
"""
"""Runs programs, each in a process of its own that is forked from this one once it has loaded what all of them need."""


def forked(
    python: Path, folder: Path, needs: str, programs: dict[str, str], path: Path | None = None
) -> dict[str, tuple[int, str]]:
    """Title of each program → its exit code, and what it said."""
    folder.mkdir()
    copy(REPOSITORY / "tests" / "fakes" / "somebodys_training.py", folder)
    (folder / "forked.py").write_text(FORKED)
    names = {title: f"program{number}.py" for number, title in enumerate(programs)}
    for title, name in names.items():
        (folder / name).write_text(programs[title])
    printed = run(python, "forked.py", needs, *names.values(), cwd=folder, path=path)
    codes = dict(line.split("\t") for line in printed.splitlines())
    return {title: (int(codes[name]), (folder / f"{name}.said").read_text()) for title, name in names.items()}


@pytest.fixture(scope="module")
def with_torch(python: Path, folder: Path) -> dict[str, tuple[int, str]]:
    """Return the results of the snippets for torch alone, and of all questions to `adapm` beside them."""
    programs = {title: BEFORE + SNIPPETS[title] + AFTER + NO_NUMPY for title in ALONE}
    return forked(
        python, folder / "alone", "torch._dynamo", {**programs, "build all": BUILD_ALL, "former": FORMER_PATH}
    )


@pytest.fixture(scope="module")
def with_frameworks(python: Path, frameworks: Path, folder: Path) -> dict[str, tuple[int, str]]:
    """Return the results of the snippets for frameworks, which are loaded once."""
    programs = {title: BEFORE + SNIPPETS[title] + AFTER for title in FRAMEWORKS}
    programs |= {"built": BEFORE + TRAINER_BUILDS_IT + AFTER, "Memory": SNIPPETS["Memory"]}
    needs = "transformers.trainer,accelerate,pytorch_lightning"
    return forked(python, folder / "in-frameworks", needs, programs, frameworks)


NO_NUMPY = "\nimport sys; assert 'numpy' not in sys.modules"


@pytest.mark.parametrize("title", ALONE)
def test_it_trains_with_torch_alone(title: str, with_torch: dict[str, tuple[int, str]]):
    code, output = with_torch[title]
    assert code == 0, output


@pytest.mark.parametrize("title", [*FRAMEWORKS, "built"])
def test_it_trains_in_a_framework(title: str, with_frameworks: dict[str, tuple[int, str]]):
    """Also where the Trainer builds it."""
    code, output = with_frameworks[title]
    assert code == 0, output


def test_the_memory_is_the_readmes(with_frameworks: dict[str, tuple[int, str]]):
    code, printed = with_frameworks["Memory"]
    assert code == 0, printed
    (row,) = re.findall(r"^\| GPT-2 124M \| (.*) \|$", README, re.MULTILINE)
    assert [line.split()[1] for line in printed.splitlines()] == row.replace(",", "").split(" | ")


BUILD_ALL = """
from adapm import build, entry, names
from adapm.errors import MissingPackageError
from somebodys_training import model

for name in names():
    try:
        build(name, model, lr=entry(name).learning_rate)
    except MissingPackageError as error:
        assert not entry(name).is_available
        print(error)
    else:
        assert entry(name).is_available
"""


def test_without_the_extras_their_baselines_say_what_is_missing(with_torch: dict[str, tuple[int, str]]):
    library = "needs pytorch_optimizer, which is not installed; run: pip install 'adapm[baselines]'"
    torchao = "needs torchao, which is not installed; run: pip install 'adapm[low-bit]'"
    code, output = with_torch["build all"]
    assert (code, output.splitlines()) == (
        0,
        [
            f"adamw-8bit {torchao}",
            f"adamw-4bit {torchao}",
            *(
                f"{name} {library}"
                for name in ("adafactor", "came", "sm3", "soap", "lion", "signsgd", "schedule-free-adamw")
            ),
        ],
    )


def test_its_catalog_and_its_names_load_no_torch(python: Path, tmp_path: Path):
    run(python, "-c", "import sys; from adapm import entry, names; assert 'torch' not in sys.modules", cwd=tmp_path)


FORMER_PATH = """
from torch import nn
from adapm import build
from adapm.build import build as former
import adapm.build
assert build is former and type(build).__name__ == "function"
for found in (build, adapm.build, adapm.build.build):
    print(type(found("adamw", nn.Linear(2, 2), lr=0.1)).__name__)
"""


def test_build_is_a_function_and_its_former_path_may_be_called_too(with_torch: dict[str, tuple[int, str]]):
    code, output = with_torch["former"]
    assert (code, output.split()) == (0, ["AdamW"] * 3)


BOTH = """
import os
os.environ["ADAPM_BENCH_OWN_OPTIMIZERS"] = "signum"  # its entry is made of optim's classes

import torch, optim, adapm
from somebodys_training import *
from copy import deepcopy

twin = deepcopy(model)
rows = list(batches)

def step(model, optimizer, batch):
    model(**batch)["loss"].backward()
    optimizer.step()
    optimizer.zero_grad()

for name in ("adapm", "adapm-mini", "muon", "galore", "lion", "adamw-8bit"):
    written = optim.build(name, model, lr=1e-3)
    for batch in rows[:3]:
        step(model, written, batch)
    torch.save(written.state_dict(), "checkpoint")
    twin.load_state_dict(model.state_dict())
    read = adapm.build(name, twin, lr=1e-3)
    read.load_state_dict(torch.load("checkpoint", weights_only=name != "adamw-8bit"))
    for batch in rows[3:6]:
        step(model, written, batch)
        step(twin, read, batch)
    assert all(map(torch.equal, model.parameters(), twin.parameters())), name
    print(name)

for package in (optim, adapm):
    print(type(package.build("signum", model, lr=1e-3)).__name__, package.AdaPM.__module__)
"""


def test_beside_the_bench_each_goes_on_from_the_others_checkpoint(wheel: Path, tmp_path: Path):
    installed = copytree(REPOSITORY / "tests" / "fakes" / "own_package", tmp_path / "installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    (installed / "optim").symlink_to(REPOSITORY / "optim")
    copy(REPOSITORY / "tests" / "fakes" / "somebodys_training.py", tmp_path)
    (tmp_path / "both.py").write_text(BOTH)
    assert run(sys.executable, "both.py", cwd=tmp_path, path=installed).splitlines() == [
        *("adapm", "adapm-mini", "muon", "galore", "lion", "adamw-8bit"),
        "Signum optim.adapm.adapm",
        "Signum adapm.adapm.adapm",
    ]
