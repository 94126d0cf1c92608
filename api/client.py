"""The typed client: three lines in a notebook, the same records that the service uses.

with Client("http://127.0.0.1:8321") as client:
    experiment = client.submit(spec).experiment
    print(client.compare(experiment.id))
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx2

from api.client_answers import ANY_EXPERIMENT, read, refusal, unreached, wait_seconds
from api.client_answers import ClientError as ClientError
from api.client_answers import InputError as InputError
from api.client_answers import fault_text as fault_text
from api.client_curation import CurationVerbs
from api.client_frames import NotebookVerbs
from api.client_ids import ShortIds
from api.client_streams import Line, changes
from api.client_values import listed, segment, several, written
from api.client_webhooks import WebhookVerbs
from api.own_key import checked, own_key
from api.pages import DatasetInfo, Health, ModelInfo, OptimizerInfo, Page
from dashboards.publication import TableFormat
from orchestrator.experiments import ComparisonSpec
from orchestrator.fit_records import FitReport, FormName
from orchestrator.jobs import RunStatus, Wish
from orchestrator.key_records import AuditRecord, KeyRecord, KeyRequest, NewKey
from orchestrator.previews import Preview
from orchestrator.profile_records import ProfileReport
from orchestrator.records import (
    AnyExperiment,
    AttemptRecord,
    CellRecord,
    Chart,
    Comparison,
    EventRecord,
    ExperimentRecord,
    RunRecord,
    Standing,
    Submission,
)
from orchestrator.studies.study_records import StudySummary
from orchestrator.sweep_records import SweepReport
from orchestrator.sweeps import SweepSpec
from worker.record import Observation, Point

Answer = TypeVar("Answer")
Parameter = str | int | list[str] | list[int]
"""The value of a query parameter; a list is the parameter repeated."""

RETRIES = 4
FIRST_PAUSE_SECONDS = 0.2
"""Doubles after each failed try: 0.2 + 0.4 + 0.8 + 1.6 s outlast a restart of the api process."""
PAGE_LIMIT = 500
EXPORT_SECONDS = 600.0
"""A series of many million points takes a while to be written before its first byte is sent."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Client(NotebookVerbs, CurationVerbs, WebhookVerbs):
    """Everything that the service answers, as typed records. Thread-safe; close it, or use it as a context.

    Reading, and submitting under an idempotency key, is tried again when the connection fails, and when the service
    asks to wait a few seconds (429, 503).
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_seconds: float = 30.0,
        retries: int = RETRIES,
        short_ids: bool = False,
    ) -> None:
        """`key`: default is that of the environment, $ADAPM_BENCH_KEY or the file $ADAPM_BENCH_KEY_FILE. `short_ids`:
        take the beginning of an id for the id, where it is of only one."""
        key = checked(key, "key") if key is not None else own_key()
        self.url = url.rstrip("/")
        self._retries = retries
        try:
            base = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise InputError(f"{url!r} is not a URL: {error}; give one like http://127.0.0.1:8321") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise InputError(f"{url!r} is not a URL of a service; give one like http://127.0.0.1:8321")
        # A proxy from the environment is not meant for this machine's own addresses.
        local, headers = base.host in LOOPBACK, {"Authorization": f"Bearer {key}"} if key else {}
        https = base.scheme == "https"  # else certificates, which take a while to read, are of no use
        self._http = httpx2.Client(
            base_url=base, timeout=timeout_seconds, trust_env=not local, headers=headers, verify=https,
            auth=ShortIds() if short_ids else None,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def health(self) -> Health:
        """Whether the service answers and reaches its database."""
        return self._get("/healthz", Health)

    def submit(self, spec: ComparisonSpec | SweepSpec | Mapping[str, Any], key: str | None = None) -> Submission:
        """Submit an experiment; tells whether that made it, or an earlier call with the same `key` did.

        A mapping is sent as it is, so that the service names every fault in it.
        """
        content = written(spec)
        headers = {"Idempotency-Key": key or uuid4().hex, "Content-Type": "application/json"}
        response = self._send(
            lambda: self._http.post("/v1/experiments", content=content, headers=headers), tries=self._retries + 1
        )
        return read(response, Submission)

    def validate(self, spec: ComparisonSpec | SweepSpec | Mapping[str, Any]) -> Preview:
        """What submitting this would mean, or what is wrong with it; nothing is stored."""
        content = written(spec)
        path, headers = "/v1/experiments/validate", {"Content-Type": "application/json"}
        response = self._send(lambda: self._http.post(path, content=content, headers=headers), tries=self._retries + 1)
        return read(response, Preview)

    def experiments(
        self, *, limit: int = 50, before: str | None = None, labels: Sequence[str] = (), deleted: bool = False
    ) -> tuple[AnyExperiment, ...]:
        """Experiments that have all of `labels`, newest first; `before` is the id of the last one already seen.
        `deleted`: those that were deleted and can be restored, instead of the others."""
        more: dict[str, Parameter] = {
            "label": several(labels, "the labels"),
            **({"deleted": "true"} if deleted else {}),
        }
        parameters = {**_given(limit=limit, before=before), **more}
        return self._get("/v1/experiments", Page[AnyExperiment], parameters).items

    def experiment(self, experiment_id: str) -> ExperimentRecord:
        """One experiment with its state."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}", ExperimentRecord)

    def watch(self, experiment_id: str, *, pause_seconds: float = 1.0) -> Iterator[ExperimentRecord]:
        """Yield the experiment now and whenever it has changed, until all of its runs have ended; the last one is done.

        A connection that breaks is made again after `pause_seconds`, and goes on after the last change that was told.
        """
        line = Line(experiment_id, retries=self._retries, pause_seconds=pause_seconds)
        with closing(changes(self._http, line)) as turns:
            told: ExperimentRecord | None = None
            for _ in turns:
                now = self.experiment(experiment_id)
                if now != told:
                    yield now
                if now.counts.done():
                    return
                told = now

    def compare(self, experiment_id: str, cell: str | None = None) -> Comparison:
        """The leaderboard of an experiment, over the runs that have ended; of a scaling experiment that of a cell."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}/comparison", Comparison, _given(cell=cell))

    def cells(self, experiment_id: str) -> tuple[CellRecord, ...]:
        """The sizes and budgets of a scaling experiment, each with its leaderboard."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}/cells", Page[CellRecord]).items

    def comparison_table(self, experiment_id: str, form: TableFormat, cell: str | None = None) -> str:
        """The leaderboard as the text of a LaTeX, Markdown or CSV table."""
        path = f"/v1/experiments/{segment(experiment_id)}/comparison/{form}"
        response = self._send(lambda: self._http.get(path, params=_given(cell=cell)), tries=self._retries + 1)
        if response.status_code != 200:
            raise refusal(response)
        return response.text

    def sweep(self, experiment_id: str) -> SweepReport:
        """What a sweep found so far."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}/sweep", SweepReport)

    def sweep_comparison(self, experiment_id: str, *, seeds: int = 3) -> ComparisonSpec:
        """The comparison of a sweep's best trials over so many fresh seeds, to be submitted."""
        path = f"/v1/experiments/{segment(experiment_id)}/sweep/comparison"
        return self._get(path, ComparisonSpec, {"seeds": seeds})

    def profile(self, experiment_ids: Sequence[str]) -> ProfileReport:
        """How the candidates of several comparisons do over all of their workloads."""
        return self._get("/v1/profiles", ProfileReport, {"experiment": several(experiment_ids, "the ids")})

    def fit(
        self, experiment_ids: Sequence[str], *, form: FormName | None = None, predict: Sequence[int | str] = ()
    ) -> FitReport:
        """The scaling laws of the candidates over experiments of several sizes; `predict`: models, or numbers of
        parameters, to say loss and memory at."""
        chosen: dict[str, Parameter] = {} if form is None else {"form": form}
        wanted = [str(each) for each in listed(predict, "what to predict")]
        parameters = {"experiment": several(experiment_ids, "the ids"), "predict": wanted, **chosen}
        response = self._send(
            lambda: self._http.get("/v1/fits", params=parameters, timeout=EXPORT_SECONDS), tries=self._retries + 1
        )
        return read(response, FitReport)

    def studies(self) -> tuple[StudySummary, ...]:
        """Every study with its experiments and findings."""
        return self._get("/v1/studies", Page[StudySummary]).items

    def study(self, name: str) -> StudySummary:
        """One study."""
        return self._get(f"/v1/studies/{segment(name, 'name')}", StudySummary)

    def cancel_experiment(self, experiment_id: str) -> AnyExperiment:
        """Cancel every run that has not ended; training ones stop at their next heartbeat."""
        return self.wish_experiment(experiment_id, Wish.CANCEL)

    def pause_experiment(self, experiment_id: str) -> AnyExperiment:
        """Pause every run that waits or trains; training ones write a checkpoint and stop."""
        return self.wish_experiment(experiment_id, Wish.PAUSE)

    def resume_experiment(self, experiment_id: str) -> AnyExperiment:
        """Let every paused run go on from its checkpoint."""
        return self.wish_experiment(experiment_id, Wish.RESUME)

    def retry_experiment(self, experiment_id: str) -> AnyExperiment:
        """Queue every failed or cancelled run once more."""
        return self.wish_experiment(experiment_id, Wish.RETRY)

    def wish_experiment(self, experiment_id: str, wish: Wish) -> AnyExperiment:
        """Cancel, pause, resume or retry every run whose state allows it."""
        path = f"/v1/experiments/{segment(experiment_id)}/{wish.value}"
        changed: AnyExperiment = self._post(path, ANY_EXPERIMENT)
        return changed

    def runs(self, *, experiment_id: str | None = None, status: RunStatus | None = None) -> tuple[RunRecord, ...]:
        """Every run that matches, in order; read page by page."""
        parameters = _given(limit=PAGE_LIMIT, experiment_id=experiment_id, status=status)
        return tuple(self._all("/v1/runs", Page[RunRecord], "after", parameters))

    def run(self, run_id: str) -> RunRecord:
        """One run with its state, and its result once there is one."""
        return self._get(f"/v1/runs/{segment(run_id)}", RunRecord)

    def standing(self, run_id: str) -> Standing:
        """Where a waiting run stands in the queue, and when it may start."""
        return self._get(f"/v1/runs/{segment(run_id)}/standing", Standing)

    def attempts(self, run_id: str) -> tuple[AttemptRecord, ...]:
        """Every execution of a run."""
        return self._get(f"/v1/runs/{segment(run_id)}/attempts", Page[AttemptRecord]).items

    def events(self, run_id: str) -> tuple[EventRecord, ...]:
        """Every change of a run's state."""
        return self._get(f"/v1/runs/{segment(run_id)}/events", Page[EventRecord]).items

    def points(self, run_id: str, *, after_step: int = -1) -> tuple[Point, ...]:
        """What a run reported after a step, in order of steps; read page by page."""
        path = f"/v1/runs/{segment(run_id)}/points"
        return tuple(self._all(path, Page[Point], "after_step", {"limit": PAGE_LIMIT, "after_step": after_step}))

    def observations(self, run_id: str) -> tuple[Observation, ...]:
        """What a run's probes saw, by step and probe; read page by page."""
        path = f"/v1/runs/{segment(run_id)}/observations"
        return tuple(self._all(path, Page[Observation], "after_step", {"after_step": -1}))

    def charts(
        self, run_ids: Sequence[str], metric: str, *, buckets: int = 800, after_step: int = -1
    ) -> tuple[Chart, ...]:
        """One metric of several runs, downsampled so that spikes survive: lowest, mean and highest of each range."""
        parameters: dict[str, Parameter] = {"run": several(run_ids, "the ids"), "metric": metric}
        parameters |= {"buckets": buckets, "after_step": after_step}
        response = self._send(lambda: self._http.get("/v1/points", params=parameters), tries=self._retries + 1)
        return read(response, Page[Chart]).items

    def export(self, experiment_id: str, name: str, path: Path) -> None:
        """Write an experiment's `results` or `series` into a file; `name` is `series.parquet`, `results.csv`, …"""
        address = f"/v1/experiments/{segment(experiment_id)}/exports/{segment(name, 'name')}"
        try:
            with self._http.stream("GET", address, timeout=EXPORT_SECONDS) as response:
                if not response.is_success:
                    response.read()
                    raise refusal(response)
                with path.open("wb") as file:
                    for piece in response.iter_bytes():
                        file.write(piece)
        except httpx2.TransportError as error:
            raise unreached(self.url, error) from error

    def document(self, experiment_id: str, name: str) -> bytes:
        """A file about an experiment: `report`, `document.json` or `references.bib`."""
        return self._file(f"/v1/experiments/{segment(experiment_id)}/{segment(name, 'name')}", {})

    def figure_names(self, experiment_id: str, cell: str | None = None) -> tuple[str, ...]:
        """The figures that an experiment has."""
        path = f"/v1/experiments/{segment(experiment_id)}/figures"
        return self._get(path, Page[str], _given(cell=cell)).items

    def figure(
        self, experiment_id: str, name: str, form: str, *, cell: str | None = None, theme: str = "light"
    ) -> bytes:
        """A figure as a file: `svg`, `png`, `pdf`, `html`, `csv` or `json`."""
        path = f"/v1/experiments/{segment(experiment_id)}/figures/{segment(name, 'name')}.{segment(form, 'form')}"
        return self._file(path, _given(cell=cell, theme=theme))

    def _file(self, path: str, parameters: Mapping[str, Parameter]) -> bytes:
        response = self._send(
            lambda: self._http.get(path, params=dict(parameters), timeout=EXPORT_SECONDS), tries=self._retries + 1
        )
        if not response.is_success:
            raise refusal(response)
        return response.content

    def log(self, run_id: str, attempt: int, *, tail_bytes: int = 2**16) -> str:
        """The end of what an attempt's process printed."""
        path = f"/v1/runs/{segment(run_id)}/attempts/{attempt}/log"
        response = self._send(lambda: self._http.get(path, params={"tail_bytes": tail_bytes}), tries=self._retries + 1)
        if not response.is_success:
            raise refusal(response)
        return response.text

    def cancel_run(self, run_id: str) -> RunRecord:
        """Cancel one run."""
        return self.wish_run(run_id, Wish.CANCEL)

    def pause_run(self, run_id: str) -> RunRecord:
        """Pause one run; a training one writes a checkpoint and stops."""
        return self.wish_run(run_id, Wish.PAUSE)

    def resume_run(self, run_id: str) -> RunRecord:
        """Let one paused run go on from its checkpoint."""
        return self.wish_run(run_id, Wish.RESUME)

    def retry_run(self, run_id: str) -> RunRecord:
        """Queue one failed or cancelled run once more."""
        return self.wish_run(run_id, Wish.RETRY)

    def wish_run(self, run_id: str, wish: Wish) -> RunRecord:
        """Cancel, pause, resume or retry one run; refused (409) where its state rules that out."""
        return self._post(f"/v1/runs/{segment(run_id)}/{wish.value}", RunRecord)

    def optimizers(self) -> tuple[OptimizerInfo, ...]:
        """The optimizers that the service can build, with their options."""
        return self._get("/v1/optimizers", Page[OptimizerInfo]).items

    def models(self) -> tuple[ModelInfo, ...]:
        """The models that the service can train."""
        return self._get("/v1/models", Page[ModelInfo]).items

    def datasets(self) -> tuple[DatasetInfo, ...]:
        """The datasets that the service can train on."""
        return self._get("/v1/datasets", Page[DatasetInfo]).items

    def create_key(self, wanted: KeyRequest) -> NewKey:
        """Make a key (admins); its secret is in the answer and nowhere else."""
        content, headers = wanted.model_dump_json(), {"Content-Type": "application/json"}
        return read(self._send(lambda: self._http.post("/v1/keys", content=content, headers=headers), tries=1), NewKey)

    def api_keys(self) -> tuple[KeyRecord, ...]:
        """All keys, the newest first (admins)."""
        return self._get("/v1/keys", Page[KeyRecord]).items

    def revoke_key(self, key_id: str) -> KeyRecord:
        """Let a key open nothing any more (admins)."""
        path = f"/v1/keys/{segment(key_id)}"
        return read(self._send(lambda: self._http.delete(path), tries=self._retries + 1), KeyRecord)

    def audit(self, *, limit: int = 100, key_id: str | None = None) -> tuple[AuditRecord, ...]:
        """Who changed what, the newest first (admins)."""
        return self._get("/v1/audit", Page[AuditRecord], _given(limit=limit, key_id=key_id)).items

    def _all(
        self, path: str, page: type[Page[Answer]], cursor: str, parameters: dict[str, str | int]
    ) -> Iterator[Answer]:
        parameters = dict(parameters)
        while True:
            answer = self._get(path, page, parameters)
            yield from answer.items
            if answer.next is None:
                return
            parameters[cursor] = answer.next

    def _get(self, path: str, answer: type[Answer], parameters: Mapping[str, Parameter] | None = None) -> Answer:
        response = self._send(lambda: self._http.get(path, params=dict(parameters or {})), tries=self._retries + 1)
        return read(response, answer)

    def _post(self, path: str, answer: type[Answer]) -> Answer:
        return self._asked("POST", path, answer, again=False)

    def _asked(self, method: str, path: str, answer: type[Answer], *, again: bool, **sent: Any) -> Answer:
        tries = self._retries + 1 if again else 1
        return read(self._send(lambda: self._http.request(method, path, **sent), tries=tries), answer)

    def _send(self, request: Callable[[], httpx2.Response], tries: int) -> httpx2.Response:
        """Send a request up to `tries` times: when the connection fails, or when the service says how long to wait."""
        pause_seconds = FIRST_PAUSE_SECONDS
        for left in reversed(range(tries)):
            try:
                response = request()
                asked_seconds = wait_seconds(response)
                if left == 0 or asked_seconds is None:
                    return response
                pause_seconds = max(pause_seconds, asked_seconds)
            except httpx2.TransportError as error:
                if left == 0:
                    raise unreached(self.url, error) from error
            time.sleep(pause_seconds)
            pause_seconds *= 2
        raise AssertionError("unreachable: the last try returns or raises")


def _given(**parameters: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in parameters.items() if value is not None}
