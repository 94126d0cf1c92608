"""Webhooks: told once an experiment has ended, signed, to nowhere that the operator does not name; lost by no kill."""

import asyncio
import ipaddress
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.client.client import Client, ClientError
from orchestrator.dispatch.webhook_sender import PostError, WebhookSender, post
from orchestrator.errors import OrchestratorError
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRequest, Scope
from orchestrator.settings import Settings
from orchestrator.store.leadership import LeaderLoop
from orchestrator.store.outgoing.messages import DueMessage
from orchestrator.store.outgoing.webhooks import MOST_OF_A_KEY
from orchestrator.webhooks.policy import AddressError, WebhookPolicy, WebhookUrlError
from orchestrator.webhooks.records import DeliveryState, WebhookRecord, WebhookRequest
from orchestrator.webhooks.signing import KEY_NAME, SigningKey, signed_headers
from tests.architecture.tree import REPOSITORY
from tests.factories.stores import DATABASES, requested_database
from tests.factories.sweep import sweep_spec
from tests.factories.waiting import until
from tests.integration.api_service import Service, serving, submitted
from tests.integration.webhook_receiver import Receiver, receiving

DOCUMENT = REPOSITORY / "docs" / "webhooks.md"
LOOPBACK = "127.0.0.0/8"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


@pytest.fixture(params=DATABASES)
def service(request: pytest.FixtureRequest, tmp_path: Path, receiver: Receiver) -> Iterator[Service]:
    """Over each of the two databases."""
    with requested_database(request, tmp_path) as database, serving(tmp_path, database=database) as running:
        running.webhooks.policy = WebhookPolicy.parse(receiver.url, LOOPBACK)
        yield running


def sender(service: Service, folder: Path) -> WebhookSender:
    find = partial(service.experiments.get_any, deleted_too=True)
    return WebhookSender(service.database, find, service.webhooks.policy, SigningKey(folder), holder="here")


def look(posting: WebhookSender) -> bool:
    """Do one round, and wait for all of its posts; returns whether there was anything to do."""
    pause = LeaderLoop(posting).tick()
    wait(posting._posting.values())
    return pause == 0.0


def webhook(service: Service, id: str) -> WebhookRecord:
    return next(record for record in service.webhooks.list_webhooks() if record.id == id)


# What is told


def test_the_end_of_an_experiment_is_told_once_and_signed(service: Service, receiver: Receiver, tmp_path: Path):
    with Client(service.url) as client:
        hook = client.add_webhook(WebhookRequest(url=f"{receiver.url}hook?a=1"))
        experiment_id = submitted(service)
        posting = sender(service, tmp_path)
        assert not look(posting), "nothing has ended"
        service.runs.apply(f"{experiment_id}-0000", RunAction.CANCEL)
        look(posting)
        assert receiver.posts == [], "its other runs have not ended"
        service.experiments.apply(experiment_id, RunAction.CANCEL)
        look(posting)
        assert not look(posting)
        (receipt,) = receiver.posts
        assert receipt.path == "/hook?a=1"
        body = receipt.verified(hook.secret)
        ended = service.experiments.get(experiment_id)
        assert body["type"] == "experiment.ended"
        assert body["data"] == {
            "id": experiment_id,
            "name": "small",
            "kind": "comparison",
            "outcome": "cancelled",
            "counts": json.loads(ended.counts.model_dump_json()),
            "created_at": ended.created_at,
            "ended_at": ended.ended_at,
        }
        (delivery,) = client.webhook_deliveries(hook.webhook.id)
        assert (delivery.id, delivery.state) == (receipt.headers["webhook-id"], DeliveryState.DELIVERED)
        (listed,) = client.webhooks()
        assert (listed.waiting, listed.delivered_at, listed.last_error) == (0, delivery.settled_at, None)
        client.retry_experiment(experiment_id)
        client.cancel_experiment(experiment_id)
        look(posting)
        assert len({message.headers["webhook-id"] for message in receiver.posts}) == 2, "it has ended again"


def test_a_sweep_that_never_began_and_what_was_deleted_since_are_told_too(
    service: Service, receiver: Receiver, tmp_path: Path
):
    sweep, deleted = service.experiments.submit(sweep_spec()).experiment.id, submitted(service)
    with Client(service.url) as client:
        client.add_webhook(WebhookRequest(url=receiver.url))
        service.database.clock_offset_seconds += 1.0
        client.cancel_experiment(sweep)
        client.cancel_experiment(deleted)
        client.delete_experiment(deleted)
    posting = sender(service, tmp_path)
    while look(posting):
        pass
    outcome_by_id = {
        body["data"]["id"]: body["data"]["outcome"] for body in (json.loads(message.body) for message in receiver.posts)
    }
    assert outcome_by_id == {sweep: "cancelled", deleted: "cancelled"}


def test_receivers_that_hang_delay_nobody_else(
    service: Service, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As many as are posted to at once: those that answer wait for no more than one try."""
    monkeypatch.setattr("orchestrator.dispatch.webhook_sender.AT_ONCE", 4)
    monkeypatch.setattr("orchestrator.dispatch.webhook_sender.TRY_SECONDS", 0.2)
    receiver.hold("/hangs")

    def add_and_test(url: str) -> str:
        webhook_id = service.webhooks.add(WebhookRequest(url=url)).webhook.id
        service.webhooks.test(webhook_id)
        return webhook_id

    hanging = [add_and_test(f"{receiver.url}hangs/{number}") for number in range(8)]
    posting = LeaderLoop(sender(service, tmp_path), stop_seconds=5.0)
    posting.start()
    try:
        until(lambda: all(webhook(service, id).last_error for id in hanging), "all have failed once")
        add_and_test(f"{receiver.url}well")
        until(receiver.confirmed, "the one that answers is told")
        assert [post.path for post in receiver.answered] == ["/well"]
    finally:
        receiver.let_go()
        posting.close()


def test_one_key_has_so_many_webhooks_and_one_webhook_one_test_waiting(service: Service, receiver: Receiver):
    """Another key may still add its own."""
    ada, bob = (service.keyring.create(KeyRequest(label=name, scope=Scope.SUBMITTER)) for name in ("Ada", "Bob"))
    with Client(service.url, key=ada.secret) as client:
        for number in range(MOST_OF_A_KEY):
            hook = client.add_webhook(WebhookRequest(url=f"{receiver.url}{number}"))
        with pytest.raises(ClientError, match=f"this key has {MOST_OF_A_KEY} webhooks") as refused:
            client.add_webhook(WebhookRequest(url=receiver.url))
        assert refused.value.status == 409
        waiting = client.test_webhook(hook.webhook.id)
        assert client.test_webhook(hook.webhook.id) == waiting
        client.remove_webhook(hook.webhook.id)
        client.add_webhook(WebhookRequest(url=receiver.url))
    with Client(service.url, key=bob.secret) as client:
        client.add_webhook(WebhookRequest(url=receiver.url))


def test_a_webhook_of_one_experiment_hears_of_no_other_and_of_an_end_that_came_first(
    service: Service, receiver: Receiver, tmp_path: Path
):
    early, other = submitted(service), submitted(service)
    service.experiments.apply(early, RunAction.CANCEL)
    with Client(service.url) as client:
        hook = client.add_webhook(WebhookRequest(url=receiver.url, experiment_id=early))
        with pytest.raises(ClientError, match="no experiment"):
            client.add_webhook(WebhookRequest(url=receiver.url, experiment_id="none"))
        client.cancel_experiment(other)
        posting = sender(service, tmp_path)
        look(posting)
        look(posting)
        assert [message.verified(hook.secret)["data"]["id"] for message in receiver.posts] == [early]
        assert client.remove_webhook(hook.webhook.id).id == hook.webhook.id
        assert client.webhooks() == ()


def test_a_receiver_that_fails_is_tried_again_with_the_same_id_and_body(
    service: Service, receiver: Receiver, tmp_path: Path
):
    hook = service.webhooks.add(WebhookRequest(url=receiver.url))
    posting, database = sender(service, tmp_path), service.database
    receiver.statuses = [500, 302, 404]
    service.experiments.apply(submitted(service), RunAction.CANCEL)
    for pause in (1, 2, 4):
        look(posting)
        assert not look(posting), "not before its pause is over"
        database.clock_offset_seconds += pause + 0.1
        posting.leadership._renewed_at = time.monotonic()  # the clock of its lease jumped with the database's
    (waiting,) = service.webhooks.deliveries(hook.webhook.id)
    assert (waiting.tries, waiting.state) == (3, DeliveryState.WAITING) and "404" in (waiting.last_error or "")
    look(posting)
    assert len(receiver.posts) == 4, "the redirect was not followed"
    assert len({(message.headers["webhook-id"], message.body) for message in receiver.posts}) == 1
    for message in receiver.posts:
        message.verified(hook.secret)
    assert webhook(service, hook.webhook.id).last_error is None


def test_what_is_not_delivered_within_a_day_is_given_up(service: Service, receiver: Receiver, tmp_path: Path):
    hook = service.webhooks.add(WebhookRequest(url=receiver.url))
    service.webhooks.test(hook.webhook.id)
    receiver.statuses = [503]
    look(sender(service, tmp_path))
    service.database.clock_offset_seconds += 86_401
    look(sender(service, tmp_path))
    (lost,) = service.webhooks.deliveries(hook.webhook.id)
    assert (lost.state, lost.next_try_at) == (DeliveryState.GIVEN_UP, None) and "503" in (lost.last_error or "")
    assert len(receiver.posts) == 1


def test_the_webhooks_of_a_revoked_key_are_silent(service: Service, receiver: Receiver, tmp_path: Path):
    key = service.keyring.create(KeyRequest(label="Bob", scope=Scope.SUBMITTER)).key
    service.webhooks.add(WebhookRequest(url=receiver.url), by=key.id)
    service.experiments.apply(submitted(service), RunAction.CANCEL)
    service.keyring.revoke(key.id)
    look(sender(service, tmp_path))
    assert receiver.posts == []


# Where it may go

OUTSIDE = ("https://hooks.example.evil/a", "https://hooks.example:444/a", "http://hooks.example/a", "https://evil/a")
TRICKS = (
    "https://hooks.example/a/../b",
    "https://hooks.example/a/..;/b",
    "https://hooks.example/a/..%5cb",
    "https://hooks.example/a/%2e%2e/b",
    "https://hooks.example/a/%252e%252e/b",
    "https://user@hooks.example/a/",
    "https://hooks.example@evil/a/",
    "https://hooks.example\\@evil/a/",
    "https://hooks.example/ab",
    "https://hooks.example/b",
    "ftp://hooks.example/a/",
    "file:///etc/passwd",
    "https:///a/",
    "hooks.example/a/",
    "https://hooks.example/a/#b",
    "https://hooks.example/a/\n",
    "https://hooks.exämple/a/",
    "https://hooks.example:x/a/",
    "https://[::1/a/",
)


@pytest.mark.parametrize("url", [*OUTSIDE, *TRICKS])
def test_a_url_that_the_operator_did_not_name_is_refused(url: str):
    with pytest.raises(WebhookUrlError):
        WebhookPolicy.parse("https://hooks.example/a/", "").check(url)


@pytest.mark.parametrize(
    "url", ["https://hooks.example/a", "https://hooks.example:443/a/b?c=../d", "HTTPS://HOOKS.example/a/"]
)
def test_a_url_below_one_that_the_operator_named_is_not_refused(url: str):
    WebhookPolicy.parse("https://hooks.example/a/", "").check(url)


def test_without_the_setting_webhooks_are_off_and_the_way_out_is_told(tmp_path: Path):
    with serving(tmp_path) as service, Client(service.url) as client:
        with pytest.raises(ClientError, match="ADAPM_BENCH_WEBHOOK_URLS") as refused:
            client.add_webhook(WebhookRequest(url="https://hooks.example/"))
        assert refused.value.status == 422
    assert not (tmp_path / KEY_NAME).exists()


PRIVATE = (
    *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
    *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "::127.0.0.1", "::10.0.0.1", "::ffff:8.8.8.8"),
    *("::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "fec0::1", "100::1", "400::1", "5f00::1", "4000::1"),
    *("0.1.2.3", "240.0.0.1", "198.18.0.1", "2001:db8::1"),
)
PUBLIC = ("93.184.216.34", "1.1.1.1", "2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4001:82a::200e")


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_that_is_an_address_inside_is_refused(address: str):
    async def look_up(host: str, port: int) -> tuple[str, ...]:
        return "93.184.216.34", address

    policy = WebhookPolicy.parse("https://hooks.example/", "")
    with pytest.raises(AddressError, match="ADAPM_BENCH_WEBHOOK_NETWORKS"):
        asyncio.run(policy.resolve_address("https://hooks.example/", look_up))


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_internet_is_not_refused(address: str):
    async def look_up(host: str, port: int) -> tuple[str, ...]:
        return (address,)

    policy = WebhookPolicy.parse("https://hooks.example/", "")
    assert asyncio.run(policy.resolve_address("https://hooks.example/", look_up)) == address


def test_a_network_that_the_operator_names_may_be_reached_as_it_is_written_alone():
    policy = WebhookPolicy.parse("https://hooks.example/", "10.1.0.0/16, fec0::/64")
    permitted = ["10.1.2.3", "fec0::1"], ["10.2.0.1", "::ffff:10.1.2.3", "::10.1.2.3", "fec0:0:0:1::1"]
    assert [[policy.permits(ipaddress.ip_address(address)) for address in addresses] for addresses in permitted] == [
        [True] * 2,
        [False] * 4,
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "localhost"])
def test_an_address_of_this_machine_is_refused_however_it_is_written(receiver: Receiver, host: str):
    url = receiver.url.replace("127.0.0.1", host)
    with pytest.raises((AddressError, PostError)):
        deliver(WebhookPolicy.parse(url, ""), url)
    assert receiver.posts == []


def deliver(policy: WebhookPolicy, url: str, look_up: Any = None) -> None:
    """Post a message there, now."""
    message = DueMessage(id="msg_1", webhook_id="w", url=url, secret_hash="", body="{}")
    options = {"look_up": look_up} if look_up else {}
    asyncio.run(post(policy, message, "whsec_AAAA", **options))


def test_the_connection_goes_to_the_address_that_was_judged_and_shows_the_name(receiver: Receiver):
    """A name that means something else at its second lookup is not looked up a second time."""
    port = receiver.url.rstrip("/").rpartition(":")[2]
    hosts: list[str] = []

    async def look_up(host: str, _: int) -> tuple[str, ...]:
        hosts.append(host)
        return ("127.0.0.1",)

    deliver(WebhookPolicy.parse(f"http://hooks.test:{port}/", LOOPBACK), f"http://hooks.test:{port}/x", look_up)
    assert hosts == ["hooks.test"], "nobody else knows that name"
    assert receiver.posts[0].headers["host"] == f"hooks.test:{port}"


def test_an_answer_without_an_end_holds_nobody_up(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    policy = WebhookPolicy.parse(receiver.url, LOOPBACK)
    receiver.endless = True
    deliver(policy, receiver.url)  # its status says all
    monkeypatch.setattr("orchestrator.dispatch.webhook_sender.TRY_SECONDS", 0.3)
    receiver.dripping = True
    with pytest.raises(PostError, match=r"no answer within 0\.3 s"):
        deliver(policy, receiver.url)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("webhook_urls", "hooks.example", "https://host/path"),
        ("webhook_urls", "https://hooks.example/?a", "query"),
        ("webhook_networks", "10.0.0.1/8", "10.1.0.0/16"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: str, word: str):
    with pytest.raises(ValueError, match=re.escape(word)):
        Settings.model_validate({name: value})


# Secrets


def test_the_secret_is_kept_nowhere(
    service: Service, receiver: Receiver, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    with Client(service.url) as client:
        secret = client.add_webhook(WebhookRequest(url=receiver.url)).secret
        webhook_id = client.webhooks()[0].id
        client.test_webhook(webhook_id)
        receiver.statuses = [500]
        look(sender(service, tmp_path))
        answers = [client.webhooks(), client.webhook_deliveries(webhook_id), client.audit()]
        text = "".join(str(answer) for answer in answers)
        assert "POST /v1/webhooks" in text
        client.remove_webhook(webhook_id)
    stored_bytes = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for part in (secret, secret.removeprefix("whsec_")):
        assert part not in text and part.encode() not in stored_bytes and part not in "".join(capfd.readouterr())
    assert (tmp_path / KEY_NAME).stat().st_mode & 0o777 == 0o600


def test_with_another_key_nothing_is_sent_that_nobody_could_verify(
    service: Service, receiver: Receiver, tmp_path: Path
):
    hook = service.webhooks.add(WebhookRequest(url=receiver.url))
    service.webhooks.test(hook.webhook.id)
    (tmp_path / KEY_NAME).write_text("00" * 32)
    look(sender(service, tmp_path))
    assert receiver.posts == []
    assert "add it again" in (webhook(service, hook.webhook.id).last_error or "")
    (tmp_path / KEY_NAME).write_text("no key")
    with pytest.raises(OrchestratorError, match="backup"):
        SigningKey(tmp_path).secret("x")


# kill -9

SENDING = """
import sys, threading
from orchestrator.store.database import Database
from orchestrator.webhooks.policy import WebhookPolicy
from orchestrator.dispatch.webhook_sender import WebhookSender
from orchestrator.store.leadership import LeaderLoop
from orchestrator.webhooks.signing import SigningKey
from pathlib import Path
from tests.factories.services import make_services
folder, url = Path(sys.argv[1]), sys.argv[2]
database = Database(sys.argv[3])
policy = WebhookPolicy.parse(url, "127.0.0.0/8")
find = make_services(database).experiments.get
LeaderLoop(WebhookSender(database, find, policy, SigningKey(folder), holder="one")).start()
threading.Event().wait()
"""


def test_a_killed_dispatcher_loses_none_and_tells_none_under_another_id(
    service: Service, receiver: Receiver, tmp_path: Path
):
    hook = service.webhooks.add(WebhookRequest(url=receiver.url))
    database_url = service.database._engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", SENDING, str(tmp_path), receiver.url, database_url]
    experiments = [submitted(service, name=f"e{number}") for number in range(3)]
    receiver.hold()  # it has read the message and does not answer
    first = subprocess.Popen(command)
    try:
        service.experiments.apply(experiments[0], RunAction.CANCEL)
        until(lambda: receiver.posts, "the first message is on its way")
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(30)
    receiver.let_go()
    for experiment_id in experiments[1:]:
        service.experiments.apply(experiment_id, RunAction.CANCEL)
    second = subprocess.Popen(command)
    try:
        until(lambda: len(receiver.confirmed()) == 3, "all three are confirmed")
        until(lambda: webhook(service, hook.webhook.id).waiting == 0, "all three are noted")
    finally:
        second.send_signal(signal.SIGKILL)
        second.wait(30)
    pairs = [(message.headers["webhook-id"], message.verified(hook.secret)["data"]["id"]) for message in receiver.posts]
    assert sorted({experiment_id for _, experiment_id in pairs}) == sorted(experiments)
    assert len({id for id, _ in pairs}) == 3
    assert pairs.count(pairs[0]) == 2, "the one that was cut is told again, under its id"
    states = [delivery.state for delivery in service.webhooks.deliveries(hook.webhook.id)]
    assert states == [DeliveryState.DELIVERED] * 3


# The document


def test_the_documents_receiver_verifies_and_its_message_is_one(service: Service, receiver: Receiver, tmp_path: Path):
    blocks = dict(re.findall(r"^```(python|json)\n(.*?)^```", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL))
    namespace: dict[str, Any] = {}
    exec(blocks["python"], namespace)
    hook = service.webhooks.add(WebhookRequest(url=receiver.url))
    service.experiments.apply(submitted(service), RunAction.CANCEL)
    look(sender(service, tmp_path))
    (message,) = receiver.posts
    assert namespace["verified"](hook.secret, message.headers, message.body)
    assert not namespace["verified"](hook.secret, message.headers, message.body + b" ")
    assert not namespace["verified"](hook.secret, message.headers | {"webhook-timestamp": "1700000000"}, message.body)
    shown, sent = json.loads(blocks["json"]), json.loads(message.body)
    assert (shown.keys(), shown["data"].keys()) == (sent.keys(), sent["data"].keys())


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_example_of_the_librarys_own_tests_is_signed_alike() -> None:
    """`sign function should work` of standardwebhooks, whose version 1.1.0 gives the same for it."""
    assert signed_headers(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}') == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
