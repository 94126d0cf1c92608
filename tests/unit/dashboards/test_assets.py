"""Static files: known by name only, compressed, cached for long."""

import gzip

import pytest

from dashboards import assets


@pytest.mark.parametrize("name", [*assets.OWN, "palette.css"])
def test_own_files_stay_light(name):
    assert len(assets.asset(name).body) < 40_000


@pytest.mark.parametrize("name", ["../routes.py", "nothing.css", "", "templates", "/etc/passwd"])
def test_no_other_file_can_be_asked_for(name):
    with pytest.raises(KeyError):
        assets.asset(name)


def test_the_address_carries_the_content():
    found = assets.asset("app.css")
    assert assets.url("app.css") == f"/static/app.css?v={found.digest}"
    assert gzip.decompress(found.gzipped_body) == found.body


def test_plotly_comes_from_the_installed_package():
    assert assets.asset(assets.PLOTLY).body.lstrip().startswith(b"/**\n* plotly.js v")
    assert len(assets.asset(assets.PLOTLY).gzipped_body) < 500_000
