"""A service with keys as its callers meet it: programs, people who sign in, strangers, and who asks for too much."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from api.app import create_app
from api.auth.callers import BELIEVED_SECONDS, Callers, PresentedSecret
from api.auth.client_key import own_key
from api.auth.throttle import MOST_BUCKETS, Throttle
from api.middleware.authentication import FAILURES_AT_ONCE
from orchestrator.errors import StoreError
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRecord, KeyRequest, Scope
from orchestrator.services.composition import Services
from orchestrator.store.admin.keyring import Keyring
from tests.factories.serving import open_services
from tests.factories.stores import comparison_spec
from tests.integration.api_service import Service, comparison_fields, serving

ORIGIN = {"Origin": "http://127.0.0.1"}


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    with open_services(tmp_path) as (bench, _):
        yield bench


@pytest.fixture
def keys(services: Services) -> dict[Scope, str]:
    """A key of each scope."""
    return {scope: services.keyring.create(KeyRequest(label=scope.value, scope=scope)).secret for scope in Scope}


@pytest.fixture
def http(services: Services, keys: dict[Scope, str]) -> Iterator[TestClient]:
    app = create_app(services, stopping=lambda: True)
    with TestClient(app, base_url="http://127.0.0.1", follow_redirects=False) as client:
        yield client


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


# Keys


def test_without_keys_the_service_lets_this_machine_in(tmp_path: Path):
    with (
        open_services(tmp_path) as (services, _),
        TestClient(create_app(services), base_url="http://127.0.0.1") as client,
    ):
        assert client.get("/v1/experiments").status_code == 200
        response = client.post("/v1/keys", json={"label": "first", "scope": "admin"})
        assert (response.status_code, response.headers["Cache-Control"]) == (201, "no-store")
        assert client.get("/v1/experiments").status_code == 401, "from the first key on everybody is asked for one"
        assert client.get("/v1/keys", headers=bearer(response.json()["secret"])).status_code == 200


def test_a_key_in_the_query_or_in_another_scheme_is_no_key(http: TestClient, keys):
    stranger = http.get("/v1/runs", params={"key": keys[Scope.ADMIN]})
    assert stranger.status_code == 401 and "adapm-bench keys create" in stranger.json()["detail"]
    assert http.get("/v1/runs", headers={"Authorization": f"Basic {keys[Scope.ADMIN]}"}).status_code == 401
    assert http.get("/v1/runs", headers={"Authorization": f"bearer  {keys[Scope.ADMIN]}"}).status_code == 200


def test_a_key_is_looked_up_once_in_two_seconds(services: Services, keys):
    lookups: list[str] = []

    class Counting(Keyring):
        def open_with(self, secret: str) -> KeyRecord | None:
            lookups.append(secret)
            return super().open_with(secret)

    clock, secret = Clock(), PresentedSecret(secret=keys[Scope.VIEWER], by_cookie=False)
    callers = Callers(Counting(services.database), clock)

    async def asks() -> list[bool]:
        answers = [await callers.key(secret) is not None for _ in range(5)]
        services.keyring.revoke(keys[Scope.VIEWER].split("_")[1])
        answers.append(await callers.key(secret) is not None)
        clock.now += BELIEVED_SECONDS
        return [*answers, await callers.key(secret) is not None]

    assert asyncio.run(asks()) == [True] * 6 + [False]
    assert len(lookups) == 2
    assert keys[Scope.VIEWER] not in repr(secret)


def test_a_look_up_that_a_revocation_overtakes_is_not_believed(services: Services, keys):
    class Overtaken(Keyring):
        def open_with(self, secret: str) -> KeyRecord | None:
            record = super().open_with(secret)
            if record is not None:
                self.revoke(record.id)
                callers.forget()
            return record

    callers = Callers(Overtaken(services.database), Clock())
    secret = PresentedSecret(secret=keys[Scope.VIEWER], by_cookie=False)

    async def asks() -> list[bool]:
        return [await callers.key(secret) is not None for _ in range(2)]

    assert asyncio.run(asks()) == [True, False]


def test_a_database_that_is_away_lets_nobody_in(http: TestClient, services: Services, keys, monkeypatch):
    def away(_: str) -> None:
        raise StoreError("the database cannot be used: it is away")

    assert http.get("/v1/optimizers", headers=bearer(keys[Scope.VIEWER])).status_code == 200
    http.app.state.bench.auth.callers.forget()  # type: ignore[attr-defined]
    monkeypatch.setattr(services.keyring, "open_with", away)
    answer = http.get("/v1/optimizers", headers=bearer(keys[Scope.VIEWER]))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


def test_what_is_answered_to_one_caller_is_kept_by_no_cache(http: TestClient, keys):
    for path in ("/v1/runs", "/", "/compare/figures/panel.json"):
        answer = http.get(path, headers=bearer(keys[Scope.VIEWER]))
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "private, no-cache")
    assert "immutable" in http.get("/static/app.css").headers["Cache-Control"]


# People


def test_a_page_asks_people_to_sign_in_and_brings_them_back(http: TestClient, keys):
    redirect = http.get("/runs/x?a=1", headers={"Accept": "text/html"})
    assert (redirect.status_code, redirect.headers["Location"]) == (303, "/login?next=/runs/x%3Fa%3D1")
    form = http.get(redirect.headers["Location"])
    assert 'name="next" value="/runs/x?a=1"' in form.text
    signed = http.post("/login", data={"key": keys[Scope.VIEWER], "next": "/runs/x?a=1"}, headers=ORIGIN)
    assert (signed.status_code, signed.headers["Location"]) == (303, "/runs/x?a=1")
    cookie = signed.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" not in cookie
    assert keys[Scope.VIEWER] not in cookie
    page = http.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 200 and 'action="/logout"' in page.text


def test_behind_tls_the_cookie_goes_over_tls_only(services: Services, keys):
    with TestClient(create_app(services), base_url="https://127.0.0.1", follow_redirects=False) as client:
        assert "Secure" in client.post("/login", data={"key": keys[Scope.VIEWER]}).headers["Set-Cookie"]


def test_signing_out_ends_the_session_for_good(http: TestClient, keys):
    http.post("/login", data={"key": keys[Scope.VIEWER]}, headers=ORIGIN)
    session = dict(http.cookies)
    response = http.post("/logout", headers=ORIGIN)
    assert (response.status_code, response.headers["Location"]) == (303, "/login")
    assert not http.cookies
    http.cookies.update(session)
    assert http.get("/v1/runs").status_code == 401


def test_a_cookie_changes_nothing_without_an_origin_and_nothing_from_another_site(http: TestClient, keys):
    http.post("/login", data={"key": keys[Scope.SUBMITTER]}, headers=ORIGIN)
    for headers in ({}, {"Origin": "https://evil.example"}):
        answer = http.post("/v1/experiments", json=comparison_fields(), headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:adapm-bench:problem:cross-site")
    assert http.get("/v1/experiments").json()["items"] == []
    assert http.post("/v1/experiments", json=comparison_fields(), headers=ORIGIN).status_code == 201


def test_a_viewer_is_led_to_no_form_and_no_button_and_told_so_on_a_page(http: TestClient, keys):
    viewer, submitter, page = bearer(keys[Scope.VIEWER]), bearer(keys[Scope.SUBMITTER]), {"Accept": "text/html"}
    assert "/new" not in http.get("/", headers=viewer).text + http.get("/queue", headers=viewer).text
    answer = http.get("/new", headers=viewer | page)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "scope submitter" in answer.text and 'href="/new"' not in answer.text
    assert http.get("/new", headers=viewer).headers["content-type"] == "application/problem+json"
    submission = http.post("/v1/experiments", json=comparison_fields(), headers=submitter).json()
    path = f"/experiments/{submission['experiment']['id']}"
    for offer in ("/new?from=", "data-run-action"):
        assert offer not in http.get(path, headers=viewer).text
        assert offer in http.get(path, headers=submitter).text
    assert "/new" in http.get("/", headers=submitter).text


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\tx", "", "x"]
)
def test_a_login_leads_to_no_other_site(http: TestClient, keys, target: str):
    signed = http.post("/login", data={"key": keys[Scope.VIEWER], "next": target}, headers=ORIGIN)
    assert signed.headers["Location"] == "/"
    assert 'name="next" value="/"' in http.get("/login", params={"next": target}).text


def test_a_wrong_key_is_told_so_and_not_repeated(http: TestClient):
    answer = http.post("/login", data={"key": "my secret", "next": "/runs/x"}, headers=ORIGIN)
    assert answer.status_code == 401
    assert "my secret" not in answer.text
    assert 'value="/runs/x"' in answer.text


# Those who ask for too much


def test_a_key_that_asks_for_too_much_is_told_when_to_come_back(services: Services, keys):
    app = create_app(services, requests_a_second=2)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answers = [client.get("/v1/models", headers=bearer(keys[Scope.VIEWER])) for _ in range(60)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused and {answer.status_code for answer in answers} == {200, 429}
        assert int(refused[0].headers["Retry-After"]) >= 1
        assert refused[0].json()["type"] == "urn:adapm-bench:problem:too-many-requests"
        assert client.get("/v1/models", headers=bearer(keys[Scope.ADMIN])).status_code == 200, "others are not held up"


def test_wrong_keys_are_looked_up_no_more_than_a_few_times(http: TestClient, services: Services, keys, monkeypatch):
    looked_up: list[str] = []
    monkeypatch.setattr(http.app.state.bench.auth.failures, "_clock", lambda: 0.0)  # type: ignore[attr-defined]
    monkeypatch.setattr(services.keyring, "open_with", looked_up.append)
    wrong = [f"adapm_{number:010d}_" + "x" * 43 for number in range(int(FAILURES_AT_ONCE) + 200)]
    answers = [http.get("/v1/runs", headers=bearer(secret)).status_code for secret in wrong]
    assert answers == [401] * int(FAILURES_AT_ONCE) + [429] * 200
    assert len(looked_up) == FAILURES_AT_ONCE
    assert http.post("/login", data={"key": "x"}, headers=ORIGIN).status_code == 429


def test_wrong_keys_do_not_hold_up_who_was_right_lately(http: TestClient, services: Services, keys, monkeypatch):
    monkeypatch.setattr(http.app.state.bench.auth.failures, "_clock", lambda: 0.0)  # type: ignore[attr-defined]
    right = keys[Scope.VIEWER]
    assert http.get("/v1/runs", headers=bearer(right)).status_code == 200
    for number in range(int(FAILURES_AT_ONCE) + 1):
        http.get("/v1/runs", headers=bearer(f"adapm_{number:010d}_" + "x" * 43))
    http.app.state.bench.auth.callers.forget()  # type: ignore[attr-defined]  # as two seconds do
    assert http.get("/v1/runs", headers=bearer(right)).status_code == 200
    assert http.post("/login", data={"key": right}, headers=ORIGIN).status_code == 303
    assert http.get("/v1/runs", headers=bearer(keys[Scope.SUBMITTER])).status_code == 429
    services.keyring.revoke(right.split("_")[1])
    http.app.state.bench.auth.callers.forget()  # type: ignore[attr-defined]
    assert http.get("/v1/runs", headers=bearer(right)).status_code == 401, "it is looked up all the same"


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [(9, 422, "more than 8 are not read"), (1_500, 422, "more than 8 are not read"), (10_000, 413, "16")],
)
def test_a_login_with_more_fields_than_it_has_is_refused(http: TestClient, keys, fields: int, status: int, said: str):
    body = "&".join(f"f{number}=x" for number in range(fields))
    headers = ORIGIN | {"Content-Type": "application/x-www-form-urlencoded"}
    answer = http.post("/login", content=body, headers=headers)
    assert (answer.status_code, said in answer.text) == (status, True)


def test_a_bucket_fills_again_and_holds_no_more_than_a_burst():
    clock = Clock()
    throttle = Throttle(2.0, 3.0, clock)
    assert [throttle.take("a") for _ in range(5)] == [None, None, None, 1, 1]
    assert throttle.take("b") is None
    clock.now += 0.5
    assert [throttle.take("a"), throttle.take("a")] == [None, 1]
    clock.now += 1_000_000
    assert [throttle.take("a") for _ in range(4)] == [None, None, None, 1]


def test_the_memory_of_buckets_is_bounded():
    throttle = Throttle(1.0, 2.0, Clock())
    for number in range(MOST_BUCKETS + 10):
        throttle.take(str(number))
    assert len(throttle._buckets) <= MOST_BUCKETS


def test_too_many_runs_and_too_large_a_body_are_refused_with_the_limit(http: TestClient, keys):
    rates = [1e-3 + number * 1e-6 for number in range(64)]
    fields = comparison_fields(candidates=[{"optimizer": "adamw", "learning_rates": rates}], seeds=list(range(200)))
    answer = http.post("/v1/experiments", json=fields, headers=bearer(keys[Scope.SUBMITTER]))
    assert (answer.status_code, "at most 10000" in answer.text) == (422, True)
    answer = http.post("/v1/experiments", content=b" " * (2**20 + 1), headers=bearer(keys[Scope.SUBMITTER]))
    assert (answer.status_code, "1 MiB" in answer.text) == (413, True)


# The audit log


def test_every_change_leaves_a_line_and_reading_leaves_none(http: TestClient, services: Services, keys):
    submitter, admin = bearer(keys[Scope.SUBMITTER]), bearer(keys[Scope.ADMIN])
    experiment_id = http.post("/v1/experiments", json=comparison_fields(), headers=submitter).json()["experiment"]["id"]
    http.post(f"/v1/runs/{experiment_id}-0000/cancel", headers=submitter)
    http.post(f"/v1/experiments/{experiment_id}/cancel", headers=bearer(keys[Scope.VIEWER]))
    http.post("/v1/experiments", json={"name": "\x1b[2J secret words"}, headers=submitter)
    http.post("/v1/experiments", json=comparison_fields())  # a stranger: nothing happened, and nobody is known
    http.get("/v1/experiments", headers=admin)
    with capture_logs() as logs:
        http.post("/login", data={"key": "wrong"}, headers=ORIGIN)
    assert [(line["event"], line["address"]) for line in logs] == [("failed login", "testclient")]
    lines = http.get("/v1/audit", headers=admin).json()["items"]
    assert [(line["label"], line["action"], line["target"], line["outcome"]) for line in reversed(lines)] == [
        ("submitter", "POST /v1/experiments", f"/v1/experiments/{experiment_id}", 201),
        ("submitter", "POST /v1/runs/{run_id}/{action}", f"/v1/runs/{experiment_id}-0000/cancel", 200),
        ("viewer", "POST /v1/experiments/{experiment_id}/{action}", f"/v1/experiments/{experiment_id}/cancel", 403),
        ("submitter", "POST /v1/experiments", "/v1/experiments", 422),
    ]
    assert all(line["address"] == "testclient" and line["at"] > 0 for line in lines)
    assert "secret words" not in str(lines)
    page = http.get("/v1/audit", params={"limit": 2, "before": lines[0]["number"]}, headers=admin).json()
    assert [line["number"] for line in page["items"]] == [lines[1]["number"], lines[2]["number"]]
    assert page["next"] == str(lines[2]["number"])


def test_a_change_is_answered_although_its_line_cannot_be_written(
    http: TestClient, services: Services, keys, monkeypatch
):
    def away(_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(services.audit, "add", away)
    answer = http.post("/v1/experiments", json=comparison_fields(), headers=bearer(keys[Scope.SUBMITTER]))
    assert answer.status_code == 201


# The client


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service")) as running:
        running.keyring.create(KeyRequest(label="first"))
        yield running


def test_a_key_comes_from_the_environment_or_from_a_file(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("adapm_x\n")
    assert own_key({}) is None
    assert own_key({"ADAPM_BENCH_KEY_FILE": str(file)}) == "adapm_x"
    assert own_key({"ADAPM_BENCH_KEY": " adapm_y ", "ADAPM_BENCH_KEY_FILE": str(file)}) == "adapm_y"


def test_an_open_event_stream_ends_with_its_key(service: Service, monkeypatch: pytest.MonkeyPatch):
    """The next event is not sent any more; the service goes on without a complaint."""
    monkeypatch.setattr("api.auth.callers.BELIEVED_SECONDS", 0.1)
    new_key = service.keyring.create(KeyRequest(label="listener"))
    experiment_id = service.experiments.submit(comparison_spec()).experiment.id
    with (
        httpx2.Client(base_url=service.url, headers=bearer(new_key.secret), trust_env=False, timeout=60) as listener,
        listener.stream("GET", f"/v1/experiments/{experiment_id}/stream") as stream,
    ):
        lines = stream.iter_lines()
        assert any(line.startswith("event: changed") for line in lines)
        service.keyring.revoke(new_key.key.id)
        time.sleep(0.1)
        service.experiments.apply(experiment_id, RunAction.CANCEL)
        remainder = "".join(lines)
    assert remainder.count("event: changed") == 0
