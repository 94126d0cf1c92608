"""The scope of every route, in one table. Admins alone open what is not in it.

A new route has to be placed here; the matrix test of callers and routes fails until it is.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from starlette.routing import compile_path

from orchestrator.keys import Scope


class Access(StrEnum):
    """The access that a route asks of its caller."""

    OPEN = "open"
    """No key: the route shows nothing of anybody's work."""
    LEASE = "lease"
    """The token of an attempt's lease, which the route checks itself: it opens that attempt and nothing else."""
    VIEWER = "viewer"
    SUBMITTER = "submitter"
    ADMIN = "admin"

    def scope(self) -> Scope | None:
        """Return the least scope of a key that opens it; None if no key is asked for."""
        return None if self in (Access.OPEN, Access.LEASE) else Scope(self.value)


TABLE = {
    Access.OPEN: """
    GET /healthz
    GET /static/{name}
    GET /login
    POST /login
    POST /logout
    """,
    Access.LEASE: """
    POST /v1/attempts/{run_id}/{attempt}/hello
    POST /v1/attempts/{run_id}/{attempt}/heartbeat
    POST /v1/attempts/{run_id}/{attempt}/points
    POST /v1/attempts/{run_id}/{attempt}/checkpoint
    POST /v1/attempts/{run_id}/{attempt}/finish
    POST /v1/attempts/{run_id}/{attempt}/stopped
    POST /v1/attempts/{run_id}/{attempt}/fail
    """,
    Access.VIEWER: """
    GET /
    GET /compare                                                     whole
    GET /compare/figures/panel.{form}                                heavy
    GET /deleted
    GET /docs
    GET /events                                                      stream
    GET /experiments/{experiment_id}                                 whole
    GET /experiments/{experiment_id}/events                          stream
    GET /experiments/{experiment_id}/figures/{name}.{form}           heavy
    GET /experiments/{experiment_id}/table.{suffix}                  heavy
    GET /fits                                                        whole
    GET /fits/figures/{name}.{form}                                  heavy
    GET /memory
    GET /metrics                                                     whole
    GET /profiles                                                    whole
    GET /queue
    GET /runs                                                        whole
    GET /runs.csv                                                    heavy
    GET /runs/{run_id}
    GET /runs/{run_id}/figures/meters.{form}                         heavy
    GET /runs/{run_id}/figures/probe.{form}                          heavy
    GET /runs/{run_id}/figures/series.{form}                         heavy
    GET /studies                                                     whole
    GET /studies/{name}                                              whole
    GET /v1/datasets
    GET /v1/experiments
    GET /v1/experiments/{experiment_id}
    GET /v1/experiments/{experiment_id}/cells                        whole
    GET /v1/experiments/{experiment_id}/comparison                   whole
    GET /v1/experiments/{experiment_id}/comparison/{form}            heavy
    GET /v1/experiments/{experiment_id}/document.json                heavy
    GET /v1/experiments/{experiment_id}/exports/{name}               heavy
    GET /v1/experiments/{experiment_id}/figures
    GET /v1/experiments/{experiment_id}/figures/{name}.{form}        heavy
    GET /v1/experiments/{experiment_id}/references.bib               whole
    GET /v1/experiments/{experiment_id}/report                       heavy
    GET /v1/experiments/{experiment_id}/stream                       stream
    GET /v1/experiments/{experiment_id}/sweep                        whole
    GET /v1/experiments/{experiment_id}/sweep/comparison             whole
    GET /v1/external-experiments                                     whole
    GET /v1/external-experiments/{external_id}
    GET /v1/external-experiments/{external_id}/judgement             whole
    GET /v1/external-experiments/{external_id}/runs                  whole
    GET /v1/external-runs/{external_id}
    GET /v1/external-runs/{external_id}/series                       heavy
    GET /v1/fits                                                     whole
    GET /v1/models
    GET /v1/models/{model}/memory                                    heavy
    GET /v1/models/{model}/plan                                      heavy
    GET /v1/openapi.json
    GET /v1/optimizers
    GET /v1/points                                                   whole
    GET /v1/profiles                                                 whole
    GET /v1/runs
    GET /v1/runs/table                                               whole
    GET /v1/runs/{run_id}
    GET /v1/runs/{run_id}/attempts
    GET /v1/runs/{run_id}/attempts/{attempt}/log
    GET /v1/runs/{run_id}/events
    GET /v1/runs/{run_id}/exports/{name}                             heavy
    GET /v1/runs/{run_id}/files
    GET /v1/runs/{run_id}/files/{name}
    GET /v1/runs/{run_id}/observations
    GET /v1/runs/{run_id}/points
    GET /v1/runs/{run_id}/samples
    GET /v1/runs/{run_id}/standing
    GET /v1/studies                                                  whole
    GET /v1/studies/{name}                                           whole
    """,
    Access.SUBMITTER: """
    GET /experiments/{experiment_id}/clone                           whole
    POST /experiments/{experiment_id}/clone
    GET /experiments/{experiment_id}/delete
    POST /experiments/{experiment_id}/delete
    GET /experiments/{experiment_id}/edit
    POST /experiments/{experiment_id}/edit
    POST /experiments/{experiment_id}/restore
    GET /new
    POST /new
    POST /v1/experiments
    POST /v1/experiments/validate
    PATCH /v1/experiments/{experiment_id}
    DELETE /v1/experiments/{experiment_id}
    POST /v1/experiments/{experiment_id}/clone
    POST /v1/experiments/{experiment_id}/restore
    GET /v1/webhooks
    POST /v1/webhooks
    DELETE /v1/webhooks/{webhook_id}
    GET /v1/webhooks/{webhook_id}/deliveries
    POST /v1/webhooks/{webhook_id}/test
    DELETE /v1/external-experiments/{external_id}
    DELETE /v1/external-runs/{external_id}
    POST /v1/external-runs/{external_id}/lines
    POST /v1/external-experiments/{external_id}/labels
    POST /v1/experiments/{experiment_id}/{action}
    POST /v1/runs/{run_id}/{action}
    """,
    Access.ADMIN: """
    GET /keys
    GET /v1/audit
    GET /v1/keys
    POST /v1/keys
    DELETE /v1/keys/{key_id}
    """,
}
"""The scope of each route; routes after an admission class (`api/middleware/admission.py`) name it.

stream   its answer goes on and on; there is no HEAD of it
heavy    makes a file of a whole experiment, or draws: a few at once
whole    reads every run of an experiment, or of several, for what somebody waits to see
"""


class GuardedRoute:
    """A line of the table, with the addresses that it matches."""

    def __init__(self, access: Access, method: str, path: str, *marks: str) -> None:
        self.access, self.method, self.marks = access, method, marks
        self.route = f"{method} {path}"
        # The application's own way to read a path: an address means the same here and there.
        self._pattern = compile_path(path)[0]

    def matches(self, path: str) -> bool:
        """Return whether the path is one of its addresses."""
        return self._pattern.match(path) is not None


GUARDED_ROUTES = tuple(
    GuardedRoute(access, *line.split()) for access in reversed(Access) for line in TABLE[access].strip().splitlines()
)
"""The strictest first."""
ROUTES: Mapping[Access, tuple[str, ...]] = {
    access: tuple(each.route for each in GUARDED_ROUTES if each.access is access) for access in Access
}
STREAMS, HEAVY, WHOLE = (
    frozenset(each.route for each in GUARDED_ROUTES if mark in each.marks) for mark in ("stream", "heavy", "whole")
)


@lru_cache(maxsize=4096)
def routes_at(path: str) -> tuple[GuardedRoute, ...]:
    """Return the lines that the path belongs to, the strictest first."""
    return tuple(route for route in GUARDED_ROUTES if route.matches(path))


def find_route(method: str, path: str) -> GuardedRoute | None:
    """Return the line for a request; where several fit, the strictest. None if the table knows none."""
    wanted = "GET" if method == "HEAD" else method
    return next((route for route in routes_at(path) if route.method == wanted), None)


def methods_at(path: str) -> str:
    """Return the methods of an address, for the header `Allow`; a literal segment takes precedence over a parameter."""
    routes = routes_at(path)
    fewest_parameters = min((guarded.route.count("{") for guarded in routes), default=0)
    nearest = [guarded for guarded in routes if guarded.route.count("{") == fewest_parameters]
    methods = {guarded.method for guarded in nearest}
    is_readable = any(guarded.method == "GET" and guarded.route not in STREAMS for guarded in nearest)
    return ", ".join(sorted(methods | ({"HEAD"} if is_readable else set())))
