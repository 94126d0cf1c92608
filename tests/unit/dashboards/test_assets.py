"""Static files: known by name only, compressed, cached for long."""

import gzip
import hashlib

import pytest

from dashboards import assets


@pytest.mark.parametrize("name", ["../routes.py", "nothing.css", "", "templates", "/etc/passwd"])
def test_no_other_file_can_be_asked_for(name):
    with pytest.raises(KeyError):
        assets.asset(name)


def test_the_address_carries_the_content():
    stylesheet = assets.asset("app.css")
    assert assets.url("app.css") == f"/static/app.css?v={stylesheet.digest}"
    assert gzip.decompress(stylesheet.gzipped_body) == stylesheet.body


def test_plotly_is_the_official_bundle_unchanged():
    assert hashlib.sha256(assets.asset(assets.PLOTLY).body).hexdigest() == assets.PLOTLY_SHA256
    assert len(assets.asset(assets.PLOTLY).gzipped_body) < 400_000
