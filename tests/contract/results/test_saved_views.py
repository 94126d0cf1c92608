"""Saved views on both databases: whose they are, what may be saved, and which page lists them."""

import pytest

from orchestrator.errors import NotFoundError
from orchestrator.keys import KeyRequest
from orchestrator.store.saved_views import SavedViews, ViewError
from tests.contract.conftest import Store


def test_a_view_is_saved_found_by_its_page_replaced_by_its_owner_and_deleted(store: Store) -> None:
    views = SavedViews(store.database)
    owner, other = (store.keyring.create(KeyRequest(label=label)).key.id for label in ("Ada", "Bob"))
    first = views.save("  b   low rates", "/runs?q=lr%3C0.01", by=owner)
    assert (first.name, first.owner, first.page()) == ("b low rates", "Ada", "/runs")
    views.save("A", "/runs", by=None)
    views.save("mine", "/experiments/k3v9?x=tokens", by=other)
    views.save("not of k3v9", "/experiments/k3v9m?x=tokens", by=other)
    assert [one.name for one in views.list_for_page("/runs")] == ["A", "b low rates"]
    assert [one.name for one in views.list_for_page("/experiments/k3v9")] == ["mine"]
    assert views.list_for_page("/experiments/%") == views.list_for_page("/run_") == ()
    assert [one.name for one in views.list_all()] == ["A", "b low rates", "mine", "not of k3v9"]
    again = views.save("b low rates", "/runs?sort=lr", by=owner)
    assert (again.id, views.get(first.id).address) == (first.id, "/runs?sort=lr")
    for by in (other, None):
        with pytest.raises(ViewError, match="somebody else"):
            views.save("b low rates", "/runs", by=by)
    with pytest.raises(ViewError, match="another key"):
        views.delete(first.id, by=other, is_admin=False)
    assert views.delete(first.id, by="", is_admin=True).id == first.id
    for gone in (first.id, "a\x00b"):
        with pytest.raises(NotFoundError):
            views.get(gone)


def test_what_is_no_name_or_no_page_is_refused(store: Store) -> None:
    views = SavedViews(store.database)
    for name in ("", "  ", "x" * 81, "a\x00b", "a\u202eb"):
        with pytest.raises(ViewError, match="name"):
            views.save(name, "/runs", by=None)
    evil = ("", "//evil.example", "https://evil.example/", "/\\evil.example", "/runs#a", "/logout", "/runs?a\nb")
    for address in (*evil, "/runs?\u00e4", "/runs\n", "/runs?" + "a" * 4_000):
        with pytest.raises(ViewError, match="address"):
            views.save("x", address, by=None)
    assert views.list_for_page("/runs") == ()
