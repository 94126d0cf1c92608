"""Static files: our own and Plotly.js, compressed once, cached by browsers for a year.

Plotly.js is the official partial bundle for lines and bars (MIT, `static/plotly-basic.LICENSE.txt`), the file of that
name in the npm package plotly.js-basic-dist-min 4.1.1, unchanged: its SHA-256 stands below.

Addresses carry a digest of the content, so that a new version is a new address. Nothing is looked up on the disk by a
name that a browser sent.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from fastapi import APIRouter, HTTPException, Request, Response

from dashboards import palette

MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
OWN = (
    "app.css", "forms.css", "curation.css", "print.css", "theme.js", "keys.js", "live.js", "actions.js", "figures.js",
    "form.js", "copy.js", "favicon.svg", "reference.css",
)  # fmt: skip
PLOTLY = "plotly-basic.min.js"
PLOTLY_SHA256 = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"
FOR_A_YEAR = "public, max-age=31536000, immutable"


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A static file."""

    body: bytes
    digest: str
    media_type: str

    @cached_property
    def gzipped_body(self) -> bytes:
        """Return the compressed body, made when it is first sent: a page that only names Plotly does not wait for
        it."""
        return gzip.compress(self.body, compresslevel=6, mtime=0)


@cache
def asset(name: str) -> Asset:
    """Return the static file of that name; `KeyError` for any other."""
    if name == "palette.css":
        body = palette.stylesheet().encode()
    elif name == PLOTLY or name in OWN:
        body = (files("dashboards") / "static" / name).read_bytes()
    else:
        raise KeyError(name)
    suffix = name[name.rindex(".") :]
    return Asset(
        body=body,
        digest=hashlib.sha256(body).hexdigest()[:12],
        media_type=f"{MEDIA_TYPES[suffix]}; charset=utf-8",
    )


def url(name: str) -> str:
    """Return the address of a static file, as templates write it."""
    return f"/static/{name}?v={asset(name).digest}"


def plotly_script() -> str:
    """Return Plotly.js for use between `<script>` and `</script>`."""
    return asset(PLOTLY).body.decode().replace("</script", "<\\/script")


def static_files() -> APIRouter:
    """Return the route that serves them."""
    router = APIRouter(include_in_schema=False)

    @router.get("/static/{name}")
    def static(name: str, request: Request) -> Response:
        try:
            file = asset(name)
        except KeyError:
            raise HTTPException(status_code=404, detail=f"there is no static file {name!r}") from None
        return _answer(file, compressed="gzip" in request.headers.get("accept-encoding", ""))

    return router


def _answer(file: Asset, *, compressed: bool) -> Response:
    headers = {"Cache-Control": FOR_A_YEAR, "Vary": "Accept-Encoding", "ETag": f'"{file.digest}"'}
    if compressed:
        return Response(file.gzipped_body, media_type=file.media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.media_type, headers=headers)
