"""Every operation of the OpenAPI document under generated requests: no failure of ours, no answer that is not in it.

A bounded look with a fixed seed; `make fuzz` looks for long, with the edges of every schema.
"""

import os
from collections.abc import Iterator

import pytest

from tests.factories.openapi import operations
from tests.fuzz.fuzzing import SEED, Report, fuzzed
from tests.fuzz.house import House, furnished

pytestmark = pytest.mark.timeout(1800)
"""One answer may take ten minutes on a machine that is very busy."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with furnished(tmp_path_factory.mktemp("fuzzed")) as house:
        yield house


def routes(house: House) -> set[str]:
    return {route for route, _ in operations(house.app.openapi())}


def assert_sound(report: Report) -> None:
    assert not report.faults and not report.broken, "\n".join(report.lines())


def test_every_operation_answers_as_the_document_says(house: House):
    report = fuzzed(house, phases=("examples", "fuzzing"), examples=1)
    assert_sound(report)
    assert set(report.cases) == routes(house)


def test_chains_of_calls_lead_through_the_service(house: House):
    report = fuzzed(house, phases=("stateful",), examples=15)
    assert_sound(report)
    assert report.transitions, "no call led to another"


@pytest.mark.fuzz
@pytest.mark.timeout(6 * 3600)
def test_at_large(house: House):
    examples = int(os.environ.get("FUZZ_EXAMPLES", "100"))
    report = fuzzed(house, examples=examples, seed=int(os.environ.get("FUZZ_SEED", SEED)), tell=print)
    print("\n".join(report.lines()))
    assert_sound(report)
    assert set(report.cases) == routes(house)
