"""Shared by all tests: repeatable examples, and the real embedded service for those that only submit to it."""

import os

# Before torch is imported, which reads it. With more threads than cores, three test processes at a time took twice as
# long for everything; models of this size are no faster with more than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import scipy  # noqa: F401 - first: counting memory in this process hides it from transformers, and pages of other threads need it
import structlog
from hypothesis import settings

from api.processes.supervisor import Supervisor
from orchestrator.settings import Settings
from tests.factories.dataset import prepare_made_dataset
from tests.factories.stores import PostgresqlServer, postgresql_server, require_postgresql
from worker.footprint.process import FootprintAnswer, FootprintQuestion, answer
from worker.words import pluralize

SHARING = "tests/integration/service/"
"""All tests below share one running service, `service_url`."""

# Ray's workers stand behind all else (niceness 15): beside tests on every core they would have a thirtieth of one.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - Ray's own spelling

# A service configures its own logs. The default would draw tracebacks here with all variables: seconds for one line.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback

# What passed once passes again, on a busy machine too; `--hypothesis-profile default` looks for new examples.
settings.register_profile("repeatable", derandomize=True, deadline=None)
# For a long look: `pytest --hypothesis-profile thorough tests/contract/queue/test_machine.py tests/unit`.
settings.register_profile("thorough", max_examples=1_000, deadline=None)
settings.load_profile("repeatable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Send all files that share a service to one worker under `--dist loadfile`, which starts it once."""
    from xdist.scheduler import LoadFileScheduling  # where tests run one at a time, xdist need not be there

    class SharedServiceScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist publishes no types
        def _split_scope(self, nodeid: str) -> str:
            return SHARING if nodeid.startswith(SHARING) else str(super()._split_scope(nodeid))

    return SharedServiceScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of the shared service: one worker has them all, and the others would wait for it, for one or
    two of twelve minutes by a model of four workers on two cores with each file's CPU seconds."""
    items.sort(key=lambda item: not item.nodeid.startswith(SHARING))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest's own summary
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Name, in the last lines, the tests that did not run for want of a program, and how to get it: the reason of such
    a skip begins with `install`. In CI they are failures."""
    try:
        return (yield)
    finally:
        reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        skipped = reporter.stats.get("skipped", ()) if reporter else ()  # xdist's workers have none
        reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
        for reason, count in reasons.items():
            if reason.startswith("install "):
                reporter.write_line(f"{pluralize(count, 'test')} did not run: {reason}", red=True)
                if os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Freeze the objects of imports: no garbage collection has to look at its million objects, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


FREEZE_OBJECTS = 50_000
"""The number of objects that are looked at in hundredths of a second."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Freeze the objects that a file of tests leaves alive, libraries above all.

    Full collections, which look at it again, took a fifth of the time.
    """
    try:
        return (yield)
    finally:
        if nextitem is not None and nextitem.path != item.path and len(gc.get_objects()) > FREEZE_OBJECTS:
            gc.collect()
            gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _footprints_counted_here() -> Iterator[None]:
    """Count footprints of pages and predictions in this process instead of one that loads torch for five seconds, and
    each of them once: a dozen tests open the form or the planner, whose model takes half a second or more.

    `tests/unit/worker/footprint/test_process.py` shows that the process gives the same answers.
    """
    answers: dict[str, FootprintAnswer] = {}

    def count(questions: Sequence[FootprintQuestion]) -> list[FootprintAnswer]:
        for question in questions:
            if question.model_dump_json() not in answers:
                answers[question.model_dump_json()] = answer(question)
        return [answers[question.model_dump_json()] for question in questions]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.specs.footprints.count_footprints", count)
        yield


@pytest.fixture(autouse=True)
def _counting_ends_with_its_test() -> Iterator[None]:
    """Stop counting at the end of each test: `warnings.catch_warnings`, which models use as FastAPI does, is not
    thread-safe."""
    yield
    for thread in threading.enumerate():
        if thread.name == "footprints":
            thread.join()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A private PostgreSQL server for the whole session."""
    with postgresql_server(require_postgresql()) as server:
        yield server


@pytest.fixture(scope="session")
def service_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of `service_url`, of a path that is longer than that of a socket may be."""
    return tmp_path_factory.mktemp("service") / ("long" * 30)


@pytest.fixture(scope="session")
def service_url(service_folder: Path) -> Iterator[str]:
    """A running service: api and dispatcher processes, embedded Ray, SQLite, MLflow."""
    with Supervisor(Settings(data_folder=service_folder, port=0, slots=2)) as service:
        yield service.url


@pytest.fixture(scope="session")
def dataset_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the made dataset, prepared once. Tests do not write into it."""
    folder = tmp_path_factory.mktemp("datasets")
    prepare_made_dataset(folder)
    return folder
