"""Examples for the OpenAPI document, asked of the real service: `python -m tests.openapi_examples.write` writes them.

A story is told to the application: keys, a comparison that is trained by a worker over REST, a law, a sweep, webhooks.
What was sent and answered is kept; ids, times and secrets become the same in every telling, long lists and texts are
shortened. A test tells the story again and compares.
"""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from api.app import create_app
from api.openapi import FILE
from orchestrator.keys import KeyRequest, Scope
from orchestrator.kinds.trials import planned_parameters, trial_run
from orchestrator.services.composition import Services
from orchestrator.store.queue import trials
from orchestrator.webhooks.policy import WebhookPolicy
from tests.factories.playing import PlayedRun, Player
from tests.factories.scaling import scaling_fields
from tests.factories.serving import open_services
from tests.factories.stores import claim
from tests.factories.sweep import sweep_fields, sweep_spec
from tests.integration.api_service import comparison_fields
from tests.openapi_examples.normal_form import Evened, shortened
from worker.records.protocol import CheckpointNotice, Command, Failure, FailureKind, Heartbeat, PointsBatch, Stopped
from worker.records.result import Result
from worker.reporting.log import log_path

EXPERIMENT, RUN, ATTEMPT = "/v1/experiments/{experiment_id}", "/v1/runs/{run_id}", "/v1/attempts/{run_id}/{attempt}"
WEBHOOK, KEY = "/v1/webhooks/{webhook_id}", "/v1/keys/{key_id}"
EXTERNAL, EXTERNAL_RUN = "/v1/external-experiments/{external_id}", "/v1/external-runs/{external_id}"
PROBES = {"kinds": ["gradient-sparsity"], "every_steps": 5}
HOOK = {"url": "https://hooks.example.org/bench"}
NO_THROTTLE = 1e9
VERSION = "0.1.0"
"""In examples; whatever version tells the story."""


@dataclass
class Story:
    """Who asks, and what was sent and answered: by route, then by name or by status and media type."""

    client: TestClient
    sent: dict[str, dict[str, Any]] = field(default_factory=dict)
    answered: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def ask(
        self,
        route: str,
        body: Any = None,
        *,
        called: str = "example",
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **names: Any,
    ) -> Any:
        """Make one call, keep it, and give back what was answered; the first answer of a media type is kept."""
        method, _, path = route.partition(" ")
        content = None if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json"}
        answer = self.client.request(
            method, path.format(**names), content=content, params=query, headers=kind | (headers or {})
        )
        assert answer.status_code < 300, (route, answer.status_code, answer.text)
        if body is not None:
            self.sent.setdefault(route, {}).setdefault(called, body)
        media = answer.headers.get("content-type", "")
        if answer.status_code == 204:
            return None
        value = answer.json() if media == "application/json" else answer.text
        answered = self.answered.setdefault(route, {})
        if not any(media in by_media for by_media in answered.values()):
            answered.setdefault(str(answer.status_code), {})[media] = value
        return value


@dataclass(frozen=True)
class RestWorker:
    """What a played run reports to: the verbs of a worker, each as a call of the story."""

    story: Story

    def hello(self, run_id: str, attempt: int, token: str) -> None:
        self._ask("hello", run_id, attempt, token)

    def heartbeat(self, run_id: str, attempt: int, token: str, beat: Heartbeat) -> None:
        self._ask("heartbeat", run_id, attempt, token, beat.model_dump(mode="json"))

    def append_points(self, run_id: str, attempt: int, token: str, batch: PointsBatch) -> None:
        self._ask("points", run_id, attempt, token, json.loads(batch.body()))

    def checkpoint(self, run_id: str, attempt: int, token: str, notice: CheckpointNotice) -> None:
        self._ask("checkpoint", run_id, attempt, token, notice.model_dump(mode="json"))

    def finish(self, run_id: str, attempt: int, token: str, result: Result) -> None:
        self._ask("finish", run_id, attempt, token, result.model_dump(mode="json"))

    def record_stop(self, run_id: str, attempt: int, token: str, stopped: Stopped) -> None:
        self._ask("stopped", run_id, attempt, token, stopped.model_dump(mode="json"))

    def fail(self, run_id: str, attempt: int, token: str, failure: Failure) -> None:
        self._ask("fail", run_id, attempt, token, failure.model_dump(mode="json"))

    def _ask(self, verb: str, run_id: str, attempt: int, token: str, body: Any = None) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self.story.ask(f"POST {ATTEMPT}/{verb}", body, headers=headers, run_id=run_id, attempt=attempt)


def made_examples(folder: Path) -> dict[str, Any]:
    """The examples of every operation, from a story told in an empty folder."""
    with open_services(folder) as (services, player):
        services.webhooks.policy = WebhookPolicy.parse("https://hooks.example.org/", "")
        secret = services.keyring.create(KeyRequest(label="Ada", scope=Scope.ADMIN)).secret
        looks = iter((False, True))
        app = create_app(services, stopping=lambda: next(looks, True), requests_a_second=NO_THROTTLE)
        client = TestClient(app, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {secret}"})
        with client:
            story = Story(client)
            _keys(story)
            experiment_id = _comparison(story, services, player)
            _curation(story, experiment_id)
            _several(story, services, player, experiment_id)
            _webhooks(story)
            _external_runs(story)
            for route in ("/v1/audit", "/healthz", "/metrics", "/v1/optimizers", "/v1/models", "/v1/datasets"):
                story.ask(f"GET {route}")
            story.ask("GET /v1/models/{model}/memory", model="gpt2-nano", query={"ranks": 2})
            story.ask("GET /v1/models/{model}/plan", model="gpt2-nano")
    return _evened(story, app.version, folder)


def _keys(story: Story) -> None:
    wanted = {"label": "CI", "scope": "submitter", "expires_in_days": 90, "runs_at_once": 4}
    made = story.ask("POST /v1/keys", wanted)
    story.ask("GET /v1/keys")
    story.ask(f"DELETE {KEY}", key_id=made["key"]["id"])


def _comparison(story: Story, services: Services, player: Player) -> str:
    """A comparison from its submission to its figures, trained by workers over REST."""
    fields = comparison_fields(name="AdaPM against AdamW")
    fields["workload"] |= {"probes": PROBES}
    fields["workload"]["evaluation"] = {"every_steps": 5, "samples": {"prompts": ["def "], "tokens": 16}}
    key = {"Idempotency-Key": "adapm-against-adamw-1"}
    story.ask("POST /v1/experiments/validate", fields, called="comparison")
    experiment_id: str = story.ask("POST /v1/experiments", fields, called="comparison", headers=key)["experiment"]["id"]
    story.ask("POST /v1/experiments", fields, called="comparison", headers=key)
    here: dict[str, Any] = {"experiment_id": experiment_id}
    first, last = f"{experiment_id}-0000", f"{experiment_id}-0003"
    story.ask(f"GET {RUN}/standing", run_id=last)
    log = log_path(services.storage.runs_folder() / first, 1)
    log.parent.mkdir(parents=True)
    log.write_text("step 5 of 10: loss 2.9314\nstep 10 of 10: loss 2.3127\n")
    worker = RestWorker(story)
    trained = _begun(player, worker)
    trained.report(5)
    notice = CheckpointNotice(path="checkpoints/step-5", step=5, size_bytes=10_051_584, sha256="5f" * 32, attempt=1)
    worker.checkpoint(*trained.identity, notice)
    trained.finish()
    for verb in ("pause", "resume", "cancel", "retry"):
        story.ask(f"POST {RUN}/{{action}}", action=verb, run_id=last)
    for verb in ("pause", "resume", "cancel", "retry"):
        story.ask(f"POST {EXPERIMENT}/{{action}}", action=verb, **here)
    stopping = _begun(player, worker)
    story.ask(f"POST {RUN}/{{action}}", action="pause", run_id=stopping.lease.run_id)
    worker.record_stop(*stopping.identity, Stopped(command=Command.PAUSE, step=3, device_seconds=4.2))
    story.ask(f"POST {RUN}/{{action}}", action="resume", run_id=stopping.lease.run_id)
    failing = _begun(player, worker)
    message = "RuntimeError: the loss is not a number"
    worker.fail(*failing.identity, Failure(kind=FailureKind.PROGRAM, message=message, device_seconds=4.2))
    story.ask(f"POST {RUN}/{{action}}", action="retry", run_id=failing.lease.run_id)
    player.finish()
    for noun in ("points", "observations", "samples", "events", "attempts", "files"):
        story.ask(f"GET {RUN}/{noun}", run_id=first)
    story.ask(f"GET {RUN}", run_id=first)
    story.ask("GET /v1/runs", query=here)
    story.ask(
        "GET /v1/runs/table", query={"where": "seed<1 and state=finished", "columns": ["lr", "val_loss"], "limit": 2}
    )
    story.ask(f"GET {RUN}/attempts/{{attempt}}/log", run_id=first, attempt=1)
    story.ask(f"GET {RUN}/exports/{{name}}", run_id=first, name="series.csv")
    story.ask(f"GET {RUN}/files/{{name}}", run_id=first, name="attempt-1.log")
    story.ask("GET /v1/points", query={"run": first, "metric": "train_loss", "buckets": 4})
    return experiment_id


def _begun(player: Player, worker: RestWorker) -> PlayedRun:
    (lease,) = claim(player.queue, cpus=64, limit=1)
    return PlayedRun(worker, lease)  # type: ignore[arg-type]  # it has the verbs that a played run needs


def _curation(story: Story, experiment_id: str) -> None:
    """What is read of an ended comparison, and done with it."""
    here: dict[str, Any] = {"experiment_id": experiment_id}
    story.ask(f"PATCH {EXPERIMENT}", {"labels": ["paper", "tiny"], "note": "The first look."}, **here)
    for noun in ("", "/comparison", "/stream", "/figures", "/report", "/references.bib"):
        story.ask(f"GET {EXPERIMENT}{noun}", **here)
    story.ask(f"GET {EXPERIMENT}/document.json", **here)
    for form in ("csv", "markdown", "latex"):
        story.ask(f"GET {EXPERIMENT}/comparison/{{form}}", form=form, **here)
    for form in ("svg", "csv"):
        story.ask(f"GET {EXPERIMENT}/figures/{{name}}.{{form}}", name="curves", form=form, **here)
    story.ask(f"GET {EXPERIMENT}/exports/{{name}}", name="results.csv", **here)
    story.ask("GET /v1/experiments")
    key = {"Idempotency-Key": "once-more-1"}
    for _ in range(2):
        made = story.ask(f"POST {EXPERIMENT}/clone", {"name": "Once more"}, headers=key, **here)
    clone: dict[str, Any] = {"experiment_id": made["experiment"]["id"]}
    story.client.post(EXPERIMENT.format(**clone) + "/cancel")
    story.ask(f"DELETE {EXPERIMENT}", **clone)
    story.ask(f"POST {EXPERIMENT}/restore", **clone)
    story.client.delete(EXPERIMENT.format(**clone))


def _several(story: Story, services: Services, player: Player, experiment_id: str) -> None:
    """A law, a sweep, and what several experiments say together."""
    # One rate each, and three seeds: at the edge of a grid, and on two seeds, no cell would have a verdict.
    candidates = [{"optimizer": name, "learning_rates": [0.002]} for name in ("adamw", "adapm")]
    scaling = scaling_fields(candidates=candidates, seeds=[1, 2, 3])
    for fields in (scaling, sweep_fields()):
        story.ask("POST /v1/experiments/validate", fields, called=fields["kind"])
    law = story.ask("POST /v1/experiments", scaling, called="scaling")["experiment"]["id"]
    player.finish()
    story.ask(f"GET {EXPERIMENT}/cells", experiment_id=law)
    story.ask("GET /v1/fits", query={"experiment": law, "predict": "1e9"})
    story.ask("GET /v1/profiles", query={"experiment": experiment_id})
    sweep_id = story.ask("POST /v1/experiments", sweep_fields(), called="sweep")["experiment"]["id"]
    sweep = sweep_spec()
    for number in range(4):
        parameters = planned_parameters(sweep, number)
        assert parameters is not None
        trials.add(services.database, sweep_id, sweep, number, trial_run(sweep, number, parameters))
    trials.close(services.database, sweep_id)
    player.finish()
    story.ask(f"GET {EXPERIMENT}/sweep", experiment_id=sweep_id)
    story.ask(f"GET {EXPERIMENT}/sweep/comparison", experiment_id=sweep_id)
    studies = story.ask("GET /v1/studies")
    story.ask("GET /v1/studies/{name}", name=studies["items"][0]["name"])


def _webhooks(story: Story) -> None:
    key = {"Idempotency-Key": "tell-the-group-1"}
    for _ in range(2):
        made = story.ask("POST /v1/webhooks", HOOK, headers=key)
    here: dict[str, Any] = {"webhook_id": made["webhook"]["id"]}
    story.ask("GET /v1/webhooks")
    story.ask(f"POST {WEBHOOK}/test", **here)
    story.ask(f"GET {WEBHOOK}/deliveries", **here)
    story.ask(f"DELETE {WEBHOOK}", **here)


def _external_runs(story: Story) -> None:
    """Two candidates that somebody trained with a loop of their own, over three seeds."""
    began = 1_767_225_600.0
    for candidate, gain in (("muon", 0.05), ("adamw", 0.0)):
        for seed in (1, 2, 3):
            run = {"experiment": "Muon against AdamW", "candidate": candidate, "lr": 0.002, "seed": seed}
            lines = [
                {"at": began + 1, "state": "running"},
                {"at": began + 2, "step": 100, "metrics": {"val_loss": 3.2 + seed / 100 - gain * (1 + seed / 50)}},
                {"at": began + 3, "state": "finished"},
            ]
            batch = {"run": run | {"started_at": began}, "part": "first", "first_line": 0, "lines": lines}
            story.ask(f"POST {EXTERNAL_RUN}/lines", batch, external_id=f"{candidate}-seed-{seed}")
    here = story.ask("GET /v1/external-experiments")["items"][0]["id"]
    story.ask(f"POST {EXTERNAL}/labels", {"add": ["paper"], "remove": ["draft"]}, external_id=here)
    for noun in ("", "/runs", "/runs.csv"):
        story.ask(f"GET {EXTERNAL}{noun}", external_id=here)
    story.ask(f"GET {EXTERNAL}/judgement", query={"baseline": "adamw"}, external_id=here)
    for noun in ("", "/series"):
        story.ask(f"GET {EXTERNAL_RUN}{noun}", external_id="muon-seed-1")
    story.ask(f"DELETE {EXTERNAL_RUN}", external_id="adamw-seed-3")
    story.ask(f"DELETE {EXTERNAL}", external_id=here)


def _evened(story: Story, version: str, folder: Path) -> dict[str, Any]:
    routes = sorted({*story.sent, *story.answered})
    answered = [story.answered.get(route) for route in routes]
    evened = Evened(answered, {str(folder): "/srv/adapm-bench", version: VERSION})
    told: dict[str, Any] = {}
    for route in routes:
        answers = story.answered.get(route, {}).items()
        told[route] = {
            "sent": {name: evened.of(body) for name, body in story.sent.get(route, {}).items()},
            "answered": {
                status: {media: evened.of(shortened(answer)) for media, answer in by_media.items()}
                for status, by_media in answers
            },
        }
    return told


def main() -> None:
    """Write the examples that the document has from now on."""
    with tempfile.TemporaryDirectory() as folder:
        told = made_examples(Path(folder))
    FILE.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
