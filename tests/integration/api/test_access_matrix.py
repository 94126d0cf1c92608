"""Every route × every kind of caller: who gets in is what the table in api/auth/scopes.py says, and nothing else.

The routes are those of the application itself and of its OpenAPI document: a new one fails here until it is placed.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi import FastAPI, routing
from starlette.testclient import TestClient

from api.app import create_app
from api.auth.scopes import GUARDED_ROUTES, Access, find_route
from api.auth.throttle import Throttle
from api.middleware.admission import AdmissionMiddleware
from orchestrator.keys import KeyRequest, Scope
from orchestrator.services.composition import Services
from orchestrator.store.tables import keys
from tests.factories.openapi import operations
from tests.factories.serving import open_services
from tests.factories.stores import claim, comparison_spec

UNKNOWN = "adapm_0123456789_" + "x" * 43
CALLERS = ("nobody", "unknown", "viewer", "submitter", "admin", "revoked", "expired", "lease", "session")
SCOPES = {"viewer": Scope.VIEWER, "submitter": Scope.SUBMITTER, "admin": Scope.ADMIN, "session": Scope.VIEWER}
NOT_LET_IN = (401, 403)


@dataclass(frozen=True)
class House:
    """A service with one experiment of one leased run, and what each caller sends."""

    client: TestClient
    app: FastAPI
    headers: dict[str, dict[str, str]]
    names: dict[str, str]
    sign_in_again: Callable[[], None]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with open_services(folder) as (services, player):
        ring = services.keyring
        new_keys = {scope.value: ring.create(KeyRequest(label=scope.value, scope=scope)) for scope in Scope}
        new_keys |= {name: ring.create(KeyRequest(label=name, scope=Scope.ADMIN)) for name in ("revoked", "expired")}
        ring.revoke(new_keys["revoked"].key.id)
        with player.queue._database.writing() as connection:
            connection.execute(keys.update().where(keys.c.label == "expired").values(expires_at=1.0))
        headers = {name: {"Authorization": f"Bearer {key.secret}"} for name, key in new_keys.items()}
        run_id = services.runs.page(experiment_id=services.experiments.submit(comparison_spec()).experiment.id)[0].id
        (lease,) = claim(player.queue, cpus=1, limit=1)
        headers |= {"nobody": {}, "unknown": {"Authorization": f"Bearer {UNKNOWN}"}}
        headers["lease"] = {"Authorization": f"Bearer {lease.token}"}
        headers["session"] = signed_in(services, new_keys["viewer"].key.id)
        names = {"experiment_id": run_id.rpartition("-")[0], "run_id": run_id, "attempt": "1", "form": "csv"}
        names |= {"action": "cancel", "name": "results.csv", "suffix": "csv", "by": "optimizer", "scale": "tiny"}
        names |= {"key_id": new_keys["revoked"].key.id, "model": "gpt2-nano"}
        names |= dict.fromkeys(("webhook_id", "external_id", "view_id"), "none")

        def refresh() -> None:
            headers["session"] = signed_in(services, new_keys["viewer"].key.id)

        # Streams end at once; nobody is throttled; the planner's page counts nothing.
        services.footprints._begin = lambda question: None  # type: ignore[method-assign]  # no process counts
        app = create_app(services, stopping=lambda: True, requests_a_second=1e6)
        app.state.bench.auth.failures.burst = app.state.bench.auth.strange_workers.burst = 1e6
        with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
            yield House(client=client, app=app, headers=headers, names=names, sign_in_again=refresh)


def signed_in(services: Services, key_id: str) -> dict[str, str]:
    """Return the headers of a page of a new session."""
    return {"Cookie": f"adapm_bench_session={services.keyring.log_in(key_id)}", "Origin": "http://127.0.0.1"}


def routes_of(app: FastAPI) -> set[str]:
    """Every `METHOD /path` that the application answers, whatever it is made of."""

    def walk(members) -> Iterator[str]:
        for route in members:
            if isinstance(route, routing._IncludedRouter):
                yield from walk(route.effective_candidates())
            else:
                assert route.methods, f"{route!r} is not a route that this test knows"
                yield from (f"{method} {route.path}" for method in route.methods - {"HEAD"})

    return set(walk(app.routes))


def test_every_route_is_placed_once(house: House):
    placed = [guarded_route.route for guarded_route in GUARDED_ROUTES]
    assert {mark for route in GUARDED_ROUTES for mark in route.marks} == {"stream", "heavy", "whole"}
    assert len(placed) == len(set(placed))
    assert routes_of(house.app) == set(placed), "place it in api/auth/scopes.py"
    layers: list[object] = [layer.cls for layer in house.app.user_middleware]
    assert AdmissionMiddleware in layers, "which the marks are for"


def test_every_operation_of_the_document_is_placed_and_says_what_it_asks_for(house: House):
    document = house.app.openapi()
    for route, operation in operations(document):
        guarded_route = find_route(*route.split(" "))
        assert guarded_route is not None and guarded_route.route == route
        scope = guarded_route.access.scope()
        assert operation.get("x-scope") == (scope.value if scope else None)
        assert ("401" in operation["responses"]) == (guarded_route.access is not Access.OPEN)
        assert ("403" in operation["responses"]) >= (scope is not None and scope is not Scope.VIEWER)
    assert document["components"]["securitySchemes"]["Key"]["scheme"] == "bearer" and document["paths"]


@pytest.mark.parametrize("place", GUARDED_ROUTES, ids=lambda guarded_route: guarded_route.route)
def test_who_gets_in_is_what_the_table_says(house: House, place):
    path = re.sub(r"\{(\w+)\}", lambda match: house.names[match[1]], place.route.partition(" ")[2])
    for caller in CALLERS:
        answer = house.client.request(place.method, path, headers=house.headers[caller], content="[")
        status = answer.status_code
        assert status != 500, caller
        if place.access is Access.OPEN:
            assert status != 403 and "key-" not in answer.text, caller
        elif place.access is Access.LEASE:
            assert (status == 401) == (caller in ("nobody", "session")), caller
        else:
            expected = outcome(caller, place.access)
            assert (status if status in NOT_LET_IN else 200) == expected, caller
            if expected != 200:
                assert answer.headers["content-type"] == "application/problem+json", caller
        if (place.route, caller) == ("POST /logout", "session"):
            house.sign_in_again()


def outcome(caller: str, access: Access) -> int:
    """401 without a good key, 403 with one that is not enough, 200 for whatever the route then says."""
    if caller not in SCOPES:
        return 401
    needed = access.scope()
    assert needed is not None
    return 200 if SCOPES[caller].covers(needed) else 403


@pytest.mark.parametrize(("caller", "status"), [("nobody", 401), ("viewer", 404), ("submitter", 404), ("admin", 404)])
@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing", "/v1/keys/x/y", "/V1/runs", "/static/../v1/runs"])
def test_an_address_that_is_nowhere_is_no_way_in(house: House, path: str, caller: str, status: int):
    if path == "/static/../v1/runs":
        status = {"nobody": 401}.get(caller, 200)  # clients take the dots away before they ask
    assert house.client.get(path, headers=house.headers[caller]).status_code == status


@pytest.mark.parametrize(("caller", "status"), [("nobody", 401), ("viewer", 405), ("admin", 405)])
def test_a_method_that_a_route_does_not_have_is_no_way_in(house: House, caller: str, status: int):
    assert house.client.delete("/v1/experiments", headers=house.headers[caller]).status_code == status


def test_a_route_that_nobody_placed_opens_to_admins_alone(tmp_path: Path):
    with open_services(tmp_path) as (services, _):
        keys = {scope: services.keyring.create(KeyRequest(label="x", scope=scope)).secret for scope in Scope}
        app = create_app(services)
        app.get("/v1/new")(lambda: "the secret of the house")
        with TestClient(app, base_url="http://127.0.0.1") as client:
            answers = {
                scope: client.get("/v1/new", headers={"Authorization": f"Bearer {secret}"})
                for scope, secret in keys.items()
            }
            assert client.get("/v1/new").status_code == 401
    assert [answers[scope].status_code for scope in Scope] == [404, 404, 200]


def test_workers_without_a_known_token_are_throttled_and_hold_up_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(house.app.state.bench.auth, "strange_workers", Throttle(2.0, 30.0, lambda: 0.0))
    path = f"/v1/attempts/{house.names['run_id']}/1/points"
    strange = [house.client.post(path, headers={"Authorization": f"Bearer {number}"}) for number in range(40)]
    assert [answer.status_code for answer in strange] == [409] * 30 + [429] * 10
    assert strange[-1].headers["Retry-After"] == "1"
    assert house.client.post(path).status_code == 429
    assert house.client.post(path, headers=house.headers["lease"]).status_code == 422, "an empty batch, which was read"
    assert house.client.get("/v1/runs", headers=house.headers["viewer"]).status_code == 200
