"""`adapm-bench keys` and `audit`, on a data folder and over a service; which address may be listened on; and that no
secret is ever kept where somebody may read it."""

import json
from pathlib import Path

import httpx2
import pytest
import structlog
from typer.testing import CliRunner, Result

from api.cli.app import main
from api.processes.address import OpenServiceError, is_loopback
from api.processes.api import allowed_hosts
from api.processes.supervisor import Supervisor, children_environment
from orchestrator.keys import SECRET
from orchestrator.logs import configure_logs
from orchestrator.settings import Settings
from tests.integration.api_service import comparison_fields, serving


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own; the command line may change the environment of its process, which is ours here."""
    monkeypatch.chdir(tmp_path)
    for name in ("URL", "KEY", "KEY_FILE"):
        monkeypatch.setenv(f"ADAPM_BENCH_{name}", "")
        monkeypatch.delenv(f"ADAPM_BENCH_{name}")


def say(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == status, result.output
    return result


def make(*options: str) -> str:
    """A new key, alone on standard output, so that it can go into a file."""
    secret = say("keys", "create", *options).stdout.strip()
    assert SECRET.fullmatch(secret)
    return secret


def test_the_first_key_is_made_on_the_data_folder(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    secret = make("--data", str(tmp_path / "d"), "--label", "Ada", "--scope", "admin", "--runs-at-once", "2")
    listed = json.loads(say("keys", "ls", "--data", str(tmp_path / "d"), "--json").stdout)
    assert [(key["label"], key["scope"], key["runs_at_once"]) for key in listed] == [("Ada", "admin", 2)]
    table = say("keys", "ls", "--data", str(tmp_path / "d")).stdout
    assert "Ada" in table and "0 of 2" in table and secret not in table
    key_id = listed[0]["id"]
    assert key_id in say("keys", "revoke", key_id, "--data", str(tmp_path / "d")).stdout
    assert "revoked" in say("keys", "ls", "--data", str(tmp_path / "d")).stdout
    lines = json.loads(say("keys", "audit", "--data", str(tmp_path / "d"), "--json").stdout)
    assert [(line["action"], line["target"]) for line in lines] == [
        ("keys revoke", f"/v1/keys/{key_id}"),
        ("keys create", f"/v1/keys/{key_id}"),
    ]
    assert "this machine" in say("keys", "audit", "--data", str(tmp_path / "d")).stdout


def test_the_first_key_says_before_it_is_made_that_it_closes_the_service(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("typer.confirm", lambda question, err: False)
    command = ("keys", "create", "--data", str(tmp_path / "d"), "--label", "x")
    monkeypatch.setattr("api.cli.admin.keys._is_interactive", lambda: True)
    undone = say(*command, status=2)
    assert undone.stdout == "" and "without a key" in undone.stderr
    assert "without --url" in undone.stderr and "--scope admin" in undone.stderr
    assert json.loads(say("keys", "ls", "--data", str(tmp_path / "d"), "--json").stdout) == []
    assert "first key" in say(*command, "--yes").stderr
    assert "first key" not in say(*command).stderr


def test_what_makes_no_sense_is_refused_with_the_option(tmp_path: Path):
    result = say("keys", "create", "--data", str(tmp_path), "--label", "x", "--expires-in-days", "-1", status=2)
    assert "--expires-in-days" in result.stderr
    assert "no key 'nothing'" in say("keys", "revoke", "nothing", "--data", str(tmp_path), status=1).stderr


def test_an_admin_makes_keys_over_the_service_and_others_are_told_why_not(tmp_path: Path):
    with serving(tmp_path) as service:
        admin = tmp_path / "admin.key"
        admin.write_text(make("--url", service.url, "--label", "Ada", "--scope", "admin"))
        assert "--key-file" in say("ls", "--url", service.url, status=1).stderr
        admin_options = ("--key-file", str(admin))
        submitter = tmp_path / "submitter.key"
        creation = say(*admin_options, "keys", "create", "--url", service.url, "--label", "Bob", "--scope", "submitter")
        submitter.write_text(creation.stdout)
        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps(comparison_fields()))
        assert "submitted" in say("--key-file", str(submitter), "submit", str(spec), "--url", service.url).stdout
        refused = say("--key-file", str(submitter), "keys", "ls", "--url", service.url, status=1)
        assert "Ask an admin" in refused.stderr
        assert "Bob" in say(*admin_options, "keys", "ls", "--url", service.url).stdout
        lines = json.loads(say(*admin_options, "keys", "audit", "--url", service.url, "--json").stdout)
        assert "POST /v1/experiments" in [line["action"] for line in lines], "a table may fold it"
        key_id = creation.stdout.split("_")[1]
        say(*admin_options, "keys", "revoke", key_id, "--url", service.url)
        assert "revoked" in say("--key-file", str(submitter), "ls", "--url", service.url, status=1).stderr


def test_a_key_file_that_cannot_be_used_is_named_and_not_shown(tmp_path: Path):
    (tmp_path / "bad").write_text("the secret\nof two lines")
    for file in (tmp_path / "bad", tmp_path / "none", tmp_path):
        result = say("--key-file", str(file), "ls", "--url", "http://127.0.0.1:9", status=2)
        assert file.name in result.stderr and "the secret" not in result.output


@pytest.mark.parametrize("fields", [{"host": "0.0.0.0"}, {"host": "::"}, {"allowed_hosts": "localhost, bench.example"}])
def test_without_keys_nobody_else_is_listened_to(tmp_path: Path, fields: dict[str, str]):
    settings = Settings.model_validate({"data_folder": tmp_path / "d", "port": 0, **fields})
    with pytest.raises(OpenServiceError, match="adapm-bench keys create --scope admin"):
        Supervisor(settings).__enter__()
    assert not (tmp_path / "d" / "service.json").exists()


def test_what_is_loopback():
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", ""))


def test_the_operator_names_further_hosts():
    settings = Settings.model_validate({"allowed_hosts": "Bench.example, [fd00::1],"})
    assert allowed_hosts(settings)[-2:] == ("bench.example", "[fd00::1]")


def test_no_secret_is_kept_in_the_database_or_in_a_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
):
    """Right and wrong keys, cookies and passwords in URLs, by every way in; then every byte is searched."""
    config = structlog.get_config()
    request.addfinalizer(lambda: structlog.configure(**config))
    request.addfinalizer(structlog.contextvars.clear_contextvars)
    configure_logs("api")  # as the service does
    with serving(tmp_path) as service:
        admin = make("--url", service.url, "--label", "Ada", "--scope", "admin")
        capfd.readouterr()  # where it was shown, this once
        wrong = "adapm_0123456789_" + "wrong" * 8 + "abc"
        with httpx2.Client(base_url=service.url, trust_env=False, timeout=120) as http:
            for secret in (admin, wrong):
                bearer = {"Authorization": f"Bearer {secret}"}
                http.get("/v1/runs", headers=bearer)
                http.post("/v1/experiments", json=comparison_fields(), headers=bearer)
                http.post("/v1/keys", json={"label": "x", "scope": secret}, headers=bearer)
                http.post("/v1/keys", content="{" + secret, headers=bearer)
                http.post("/login", data={"key": secret}, headers={"Origin": service.url})
            session = http.cookies["adapm_bench_session"]
            monkeypatch.setattr(service.runs, "page", lambda **_: 1 / 0)
            assert http.get("/v1/runs", headers={"Authorization": f"Bearer {admin}"}).status_code == 500
        monkeypatch.setenv("ADAPM_BENCH_KEY", wrong)
        say("ls", "--url", service.url, status=1)
    printed = capfd.readouterr()
    stored_bytes = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"Ada" in stored_bytes and "ZeroDivisionError" in printed.out + printed.err
    for secret in (admin, wrong, session):
        # A key's last part opens what the whole does; a session's token may have a `_` anywhere.
        for part in (secret, secret if secret == session else secret.split("_", 2)[2]):
            assert part.encode() not in stored_bytes
            assert part not in printed.out + printed.err


def test_the_service_does_not_inherit_its_operators_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADAPM_BENCH_KEY", "adapm_x")
    monkeypatch.setenv("ADAPM_BENCH_KEY_FILE", "x")
    environment = children_environment(Settings(host="10.0.0.1", slots=3))
    assert (environment["ADAPM_BENCH_HOST"], environment["ADAPM_BENCH_SLOTS"]) == ("10.0.0.1", "3")
    assert not {"ADAPM_BENCH_KEY", "ADAPM_BENCH_KEY_FILE"} & environment.keys()
