"""Saved views over REST: views of pages under a name, which everybody finds; who saved one, or an admin, deletes it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.records import Page
from api.routes.context import ID_PATTERN, CallerDependency, JsonRoute, SavedViewsDependency, json_response, problems
from orchestrator.keys import Scope
from orchestrator.records import LONGEST_ADDRESS, SavedView, ViewRequest

router = APIRouter(prefix="/views", tags=["saved views"], route_class=JsonRoute)

PagePath = Annotated[
    str, Query(max_length=LONGEST_ADDRESS, pattern=r"^[^\x00]*$", description="Those of this page alone: `/runs`.")
]


@router.get("", response_model=Page[SavedView])
def views(saved_views: SavedViewsDependency, page: PagePath = "") -> Response:
    """All saved views, or those of one page, by name."""
    found = saved_views.list_for_page(page) if page else saved_views.list_all()
    return json_response(Page[SavedView](items=found))


@router.post("", status_code=201, response_model=SavedView, responses=problems(403, 409, 413, 422))
def save(wanted: ViewRequest, saved_views: SavedViewsDependency, caller: CallerDependency) -> Response:
    """Save a view under a name, in place of an earlier one of the same key. 409 where the name is another key's, or the
    address is not that of a page with a view."""
    found = saved_views.save(wanted.name, wanted.address, by=caller.key_id())
    return json_response(found, 201, {"Location": f"/views/{found.id}"})


@router.delete("/{view_id}", response_model=SavedView, responses=problems(403, 404, 409))
def delete(
    view_id: Annotated[str, Path(pattern=ID_PATTERN)], saved_views: SavedViewsDependency, caller: CallerDependency
) -> Response:
    """Forget a view; 409 where it is another key's, which only an admin may do."""
    is_admin = caller.scope() is Scope.ADMIN
    return json_response(saved_views.delete(view_id, by=caller.key_id(), is_admin=is_admin))
