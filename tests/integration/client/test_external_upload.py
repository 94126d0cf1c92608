"""Lines of an external run are kept or refused with a reason, and every answer about it works afterwards."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from api.app import create_app
from tests.factories.serving import open_services

ODD_TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["", " ", "\x00", "\x1b[2J", "\u202eabc", "a\nb", "=1+1", "<script>", "../..", "x" * 200, "\ud800"]
    ),
)
ODD_NUMBER = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["nan", "inf", "-inf", "NaN", "1e400", 1e308, -0.0, 5e-324]),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | ODD_NUMBER | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=8,
)
# What can be kept, and odd all the same.
KEPT_TEXT = st.sampled_from(
    ["=1+1", "<script>", "../..", "x" * 60, "é" * 30, "日本", "{{ 1 }}", "%s", "a'b\"c", "\u0301"]
)
KEPT_NUMBER = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
KEPT = st.recursive(
    st.none() | st.booleans() | KEPT_NUMBER | KEPT_TEXT | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEPT_TEXT, inner, max_size=3),
    max_leaves=6,
)
RUN = st.fixed_dictionaries(
    {"experiment": KEPT_TEXT, "candidate": KEPT_TEXT},
    optional={
        "lr": st.sampled_from([0.1, 5e-324, 1e300]),
        "seed": st.integers(0, 3),
        "workload": KEPT_TEXT | st.none(),
        "config": st.dictionaries(KEPT_TEXT, KEPT, max_size=3),
        "tags": st.lists(KEPT_TEXT, max_size=2),
        "started_at": st.floats(-1e300, 1e300),
    },
)
LINE = st.none() | st.fixed_dictionaries(
    {"at": KEPT_NUMBER},
    optional={
        "step": st.integers(0, 9) | st.just(2**53),
        "metrics": st.dictionaries(
            st.just("val_loss") | KEPT_TEXT, KEPT_NUMBER | st.sampled_from(["nan", "inf", "-inf"]), max_size=2
        ),
        "state": st.sampled_from(["running", "finished", "failed"]),
    },
)
BATCH = (
    st.fixed_dictionaries(
        {"run": RUN, "part": st.uuids().map(lambda uuid: uuid.hex)},
        optional={"first_line": st.integers(0, 1), "lines": st.lists(LINE, max_size=3)},
    )
    | st.fixed_dictionaries({"run": RUN | ANYTHING, "part": ODD_TEXT, "first_line": ODD_NUMBER, "lines": ANYTHING})
    | ANYTHING
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("upload")
    with (
        open_services(folder) as (services, _),
        TestClient(create_app(services, requests_a_second=1e6), base_url="http://127.0.0.1") as client,
    ):
        yield client


@given(batch=BATCH)
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def send_and_look(service: TestClient, experiment_ids: list[str], batch: Any) -> None:
    run_id = f"run-{len(experiment_ids)}"
    # As a careless client writes it: NaN, Infinity and halves of surrogate pairs included.
    answer = service.post(
        f"/v1/external-runs/{run_id}/lines", content=json.dumps(batch), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (200, 409, 413, 422), answer.text
    if answer.status_code != 200:
        assert answer.json()["detail"], "it says why"
        return
    experiment = answer.json()["experiment_id"]
    experiment_ids.append(experiment)
    for path in ("", "/runs", "/judgement"):
        assert service.get(f"/v1/external-experiments/{experiment}{path}").status_code in (200, 409), path
    series = service.get(f"/v1/external-runs/{run_id}/series")
    assert series.status_code == 200 and series.json()["run_id"] == run_id
    pages = (f"/experiments/{experiment}", f"/experiments/{experiment}/figures/panel.json", "/")
    for page in (*pages, f"/runs.csv?q=experiment_id%3D{experiment}"):
        assert service.get(page).status_code == 200, page


def test_no_upload_breaks_the_service(service: TestClient) -> None:
    experiment_ids: list[str] = []
    send_and_look(service, experiment_ids)
    assert len(experiment_ids) > 40 and len({*experiment_ids}) > 4, "odd things were kept as well"


def test_lists_come_in_pages_and_series_by_metric(service: TestClient) -> None:
    for number in range(5):
        run = {"experiment": f"paged {number // 3}", "candidate": "muon", "tags": ["x"]}
        line = {"at": 1.0, "step": 3, "metrics": {"loss": 2.0, "lr": 0.1}}
        sent = service.post(f"/v1/external-runs/paged-{number}/lines", json={"run": run, "part": "a", "lines": [line]})
        assert sent.status_code == 200
    newest = service.get("/v1/external-experiments?limit=1").json()
    (later,) = newest["items"]
    assert later["name"] == "paged 1" and newest["next"] == later["id"]
    (earlier,) = service.get(f"/v1/external-experiments?limit=1&before={newest['next']}").json()["items"]
    assert earlier["name"] == "paged 0"
    runs = f"/v1/external-experiments/{earlier['id']}/runs"
    page = service.get(runs, params={"limit": 2}).json()
    second = service.get(runs, params={"limit": 2, "after": page["next"]}).json()
    assert [run["id"] for run in (*page["items"], *second["items"])] == ["paged-0", "paged-1", "paged-2"]
    assert second["next"] is None and service.get(f"{runs}?limit=101").status_code == 422
    series = service.get("/v1/external-runs/paged-0/series?metric=lr&metric=none").json()
    assert (series["steps"], series["values"]) == ({"lr": [3]}, {"lr": [0.1]})
