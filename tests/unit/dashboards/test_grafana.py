"""The Grafana board asks only for metrics that the service has."""

import json
import re

from prometheus_client import generate_latest

from api.middleware.metrics import PREFIX, Meters
from orchestrator.jobs import RunStatus
from tests.architecture.tree import REPOSITORY

BOARD = REPOSITORY / "dashboards" / "grafana" / "adapm-bench.json"


def queries() -> list[str]:
    """Every expression of every panel."""
    return [target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel["targets"]]


def test_every_metric_of_the_board_exists(services):
    meters = Meters(services.monitor)
    meters.requests.labels("GET", "/", "200").observe(0.1)
    exported = set(re.findall(rf"^({PREFIX}\w+)", generate_latest(meters.registry).decode(), re.MULTILINE))
    queried_names = {name for query in queries() for name in re.findall(rf"{PREFIX}\w+", query)}
    assert len(queried_names) > 10
    assert queried_names <= exported, f"unknown: {sorted(queried_names - exported)}"


def test_every_state_that_the_board_names_exists():
    named = {
        word
        for query in queries()
        for group in re.findall(r'status=~?"([a-z_|]+)"', query)
        for word in group.split("|")
    }
    assert named <= {status.value for status in RunStatus}
