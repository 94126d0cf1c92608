"""The page of keys: their state and use, the audit log by key and page, and no secret."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.keys import KeyRequest, Scope
from orchestrator.store.admin.audit import AuditLine
from tests.factories.serving import application, open_services


def test_admins_see_keys_and_who_changed_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_services(tmp_path) as (services, _), TestClient(application(services)) as browser:
        empty = browser.get("/keys").text
        assert "No keys" in empty
        ada = services.keyring.create(KeyRequest(label="<b>Ada", scope=Scope.SUBMITTER, runs_at_once=3))
        bob = services.keyring.create(KeyRequest(label="Bob"))
        services.keyring.revoke(bob.key.id)
        for number, new_key in enumerate((ada, ada, bob)):
            services.audit.add(
                AuditLine(key_id=new_key.key.id, address="10.0.0.1", action=f"act{number}", target="/x", outcome=409)
            )
        page = browser.get("/keys").text
        assert "&lt;b&gt;Ada" in page and "<b>Ada" not in page and "0 of 3" in page and ">revoked<" in page
        assert ada.secret not in page and page.index("act2") < page.index("act1") < page.index("act0")
        of_ada = browser.get(f"/keys?key={ada.key.id}").text
        assert "act1" in of_ada and "act2" not in of_ada
        monkeypatch.setattr("dashboards.pages.service.LINES_SHOWN", 2)
        first = browser.get("/keys").text
        assert "act1" in first and "act0" not in first
        address = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        older = browser.get(address).text
        assert "act0" in older and "act1" not in older and 'rel="next"' not in older
        assert browser.get("/keys?key=a%00b&before=\u00b2").status_code == 200
