"""A house to be fuzzed: the real service on a loopback port, closed by keys, with something of everything in it.

with furnished(folder) as house:
    house.url, house.secret       # where it is, and an admin's key
    house.lease()                 # the identity of an attempt that is at work, a new one where the last has ended
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from orchestrator.errors import LeaseLostError
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRequest, Scope
from orchestrator.kinds.registry import read_spec
from orchestrator.services.composition import Services
from orchestrator.webhooks.policy import WebhookPolicy
from orchestrator.webhooks.records import WebhookRequest
from tests.factories.playing import PlayedRun, Player
from tests.factories.scaling import scaling_fields
from tests.factories.serving import open_services, running
from tests.factories.sweep import add_trials, sweep_spec
from tests.integration.api_service import comparison_fields
from worker.reporting.log import log_path
from worker.schema import canonical_json

HOOKS = "https://hooks.example/"
NO_THROTTLE = 1e9
PROBES = {"kinds": ["gradient-sparsity"], "every_steps": 5}


@dataclass
class House:
    """The service, what opens it, and who plays its workers."""

    url: str
    services: Services
    player: Player
    app: FastAPI
    secret: str
    key_id: str
    kinds: dict[str, dict[str, str]]
    """Paths of which few experiments have anything, and parameters that lead to one that has."""
    at_work: PlayedRun | None = None

    def lease(self) -> tuple[str, int, str]:
        """Run, attempt and token of an attempt that is at work."""
        if self.at_work is not None:
            try:
                self.at_work.report(max(self.at_work.step, 0))
            except LeaseLostError:
                self.at_work = None
        if self.at_work is None:
            self.services.experiments.submit(spec_of(comparison_fields(seeds=[1])))
            self.at_work = self.player.begin()
        return self.at_work.identity


def spec_of(fields: dict[str, Any]) -> Any:
    """A specification of any kind, from what a user writes."""
    return read_spec(canonical_json(fields))


def furnish(services: Services, player: Player, key_id: str) -> dict[str, dict[str, str]]:
    """A comparison with points, observations and a log, a law, a sweep, a deleted experiment; the house's `kinds`."""
    workload = comparison_fields()["workload"] | {"probes": PROBES}
    experiment_id = services.experiments.submit(spec_of(comparison_fields(workload=workload)), by=key_id).experiment.id
    player.finish(3)
    log = log_path(services.storage.runs_folder() / f"{experiment_id}-0000", 1)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("step 10 of 10: loss 2.31\n")
    law = services.experiments.submit(spec_of(scaling_fields()), by=key_id).experiment.id
    player.finish()
    clone_id = services.experiments.clone(law, "to be deleted", by=key_id).experiment.id
    services.experiments.apply(clone_id, RunAction.CANCEL)
    services.experiments.delete(clone_id)
    sweep = sweep_spec()
    sweep_id = services.experiments.submit(sweep, by=key_id).experiment.id
    add_trials(services.database, sweep_id, sweep)
    player.finish()
    experiment_path = "/v1/experiments/{experiment_id}"
    return {
        f"{experiment_path}/sweep": {"experiment_id": sweep_id},
        f"{experiment_path}/sweep/comparison": {"experiment_id": sweep_id},
        f"{experiment_path}/cells": {"experiment_id": law},
        f"{experiment_path}/figures/{{name}}.{{form}}": {"experiment_id": experiment_id},
        "/v1/runs/{run_id}/attempts/{attempt}/log": {"run_id": f"{experiment_id}-0000"},
    }


@contextmanager
def furnished(folder: Path) -> Iterator[House]:
    """The house behind a real server until the block ends; its streams end at once, and nobody is throttled."""
    with open_services(folder) as (services, player):
        services.webhooks.policy = WebhookPolicy.parse(HOOKS, "")
        key = services.keyring.create(KeyRequest(label="the fuzzer", scope=Scope.ADMIN))
        kinds = furnish(services, player, key.key.id)
        services.webhooks.add(WebhookRequest(url=HOOKS + "bench"), by=key.key.id)
        app = create_app(services, stopping=lambda: True, requests_a_second=NO_THROTTLE)
        app.state.bench.auth.failures.burst = app.state.bench.auth.strange_workers.burst = NO_THROTTLE
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=2))
        with running(server) as url:
            yield House(
                url=url,
                services=services,
                player=player,
                app=app,
                secret=key.secret,
                key_id=key.key.id,
                kinds=kinds,
            )
