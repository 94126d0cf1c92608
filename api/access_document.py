"""What OpenAPI says about access: each operation's security, and the answers 401, 403 and 429, from one table."""

from collections.abc import Callable
from functools import cache
from typing import Any

from api.routes.context import problems
from api.scopes import Access, Place, place_of

KEY = "Key"
SCHEMES = {
    KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of the service, `adapm_…`; a service without keys asks for none.",
    }
}
STATUSES = {
    Access.OPEN: ("429",),
    Access.LEASE: (),
    Access.VIEWER: ("401", "429"),
    Access.SUBMITTER: ("401", "403", "429"),
    Access.ADMIN: ("401", "403", "429"),
}


def access_described(document: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """The maker of an OpenAPI document, with access described in what it makes."""

    @cache
    def described() -> dict[str, Any]:
        made = document()
        made.setdefault("components", {}).setdefault("securitySchemes", {}).update(SCHEMES)
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                _describe(operation, place_of(method.upper(), path))
        return made

    return described


def _describe(operation: dict[str, Any], place: Place | None) -> None:
    access = place.access if place else Access.ADMIN
    for status in STATUSES[access]:
        operation["responses"].setdefault(status, problems(int(status))[int(status)])
    if access.scope() is not None:
        operation["security"] = [{KEY: []}]
        operation["x-scope"] = access.value
