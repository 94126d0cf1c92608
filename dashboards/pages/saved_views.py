"""Views of pages under a name.

POST /views                  saves the address of a page
GET  /views/{id}             leads to it
POST /views/{id}/delete      forgets it

The pages list their own views, with the form that saves what they show (`saved_views` of `templates/parts.html`).
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from fastapi.responses import RedirectResponse

from dashboards.pages.submit import Pairs, read_form_pairs
from dashboards.render import may_administer, missing_page, refused_page, visitor_id
from orchestrator.errors import NotFoundError
from orchestrator.store.saved_views import SavedView, SavedViews, ViewError


@dataclass(frozen=True, kw_only=True)
class PageViews:
    """What a page says of its views."""

    saved: tuple[SavedView, ...]
    address: str
    """Of what it shows."""

    def may_delete(self, view: SavedView) -> bool:
        """Whether who looks may forget it."""
        return may_administer() or view.key_id in (None, visitor_id())


def page_views(views: SavedViews, path: str, query: str) -> PageViews:
    """Those of a page, which shows what the query says."""
    return PageViews(saved=views.of_page(path), address=path + (query if query != "?" else ""))


def saved_view_pages(views: SavedViews) -> APIRouter:
    """The routes of this file."""
    router = APIRouter(include_in_schema=False)

    @router.post("/views")
    def save(pairs: Annotated[Pairs, Depends(read_form_pairs)]) -> Response:
        sent = dict(pairs)
        try:
            found = views.save(sent.get("name", ""), sent.get("address", ""), by=visitor_id())
        except ViewError as error:
            return refused_page(409, "Not saved", str(error))
        return RedirectResponse(found.address, status_code=303)

    @router.get("/views/{view_id}")
    def open_view(view_id: str) -> Response:
        try:
            return RedirectResponse(views.get(view_id).address, status_code=303)
        except NotFoundError as error:
            return missing_page(str(error))

    @router.post("/views/{view_id}/delete")
    def delete(view_id: str) -> Response:
        try:
            found = views.delete(view_id, by=visitor_id(), is_admin=may_administer())
        except NotFoundError as error:
            return missing_page(str(error))
        except ViewError as error:
            return refused_page(409, "Not deleted", str(error))
        return RedirectResponse(found.page(), status_code=303)

    return router
