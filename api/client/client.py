"""The typed clients: three lines in a notebook, the same records that the service uses.

with Client("http://127.0.0.1:8321") as client:
    experiment = client.submit(spec).experiment
    print(client.compare(experiment.id))

async with AsyncClient("http://127.0.0.1:8321") as client:
    experiment = (await client.submit(spec)).experiment
    print(await client.compare(experiment.id))

`AsyncClient` runs each verb of `Client` on a thread: a call is a few milliseconds of waiting for the service, and the
thread costs microseconds of it.
"""

import asyncio
import re
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import isgeneratorfunction
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from uuid import uuid4

import httpx2
from pydantic import ValidationError

from api.auth.client_key import check_key, own_key
from api.client.messages import (
    ANY_EXPERIMENT,
    as_list,
    json_body,
    read,
    refusal,
    segment,
    unreachable_error,
    wait_seconds,
)
from api.client.messages import ClientError as ClientError
from api.client.messages import InputError as InputError
from api.records import DatasetInfo, Health, ModelInfo, OptimizerInfo, Page, Problem, RunTableRow
from dashboards.files.publication import TableFormat
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.analysis.profiles import ProfileReport
from orchestrator.annotations import AnnotationChange
from orchestrator.external_runs import (
    ExternalExperiment,
    ExternalJudgement,
    ExternalRun,
    ExternalSeries,
    LinesBatch,
    LinesReceipt,
)
from orchestrator.jobs import TERMINAL, RunAction, RunStatus
from orchestrator.keys import AuditRecord, KeyRecord, KeyRequest, NewKey
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import (
    AnyExperiment,
    AttemptRecord,
    CellRecord,
    Chart,
    Comparison,
    EventRecord,
    ExperimentRecord,
    QueuePosition,
    RunFile,
    RunRecord,
    SubmissionReceipt,
)
from orchestrator.services.log_lines import LogLevel
from orchestrator.specs.preview import Preview
from orchestrator.studies.records import StudySummary
from orchestrator.sweeps.records import SweepReport
from orchestrator.webhooks.records import DeliveryRecord, NewWebhook, WebhookRecord, WebhookRequest
from worker.records.footprint import Footprint
from worker.records.result import Observation, Point, TextSamples

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]  # it publishes no types

Answer = TypeVar("Answer")
Parameter = str | float | list[str]
"""The value of a query parameter; a list is the parameter repeated."""

RETRIES = 4
FIRST_PAUSE_SECONDS = 0.2
"""Doubles after each failed try: 0.2 + 0.4 + 0.8 + 1.6 s outlast a restart of the api process."""
PAGE_LIMIT = 500
EXPORT_SECONDS = 600.0
"""A series of many million points takes a while to be written before its first byte is sent."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
MOST_TRIES = 10
"""The most tries to add a label while others edit the same experiment."""
MOST_IDS: Final = 64
"""The most ids in one request: `compare` takes several."""


class ShortIds(httpx2.Auth):
    """Takes the beginning of an id for the id, as git does, and `BEGINNING-NUMBER` for a run's.

    It is for people, who see what came of it. Such a request changed nothing: there was nothing of that name.
    """

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Yield the request, and again with each short id written out."""
        for _ in range(MOST_IDS):
            response = yield request
            if response.status_code != httpx2.codes.NOT_FOUND:
                return
            response.read()
            try:
                problem = Problem.model_validate_json(response.content).model_extra or {}
            except ValidationError:
                return
            if not problem.get("meant"):  # the only id that `asked` abbreviates
                return
            short = rf"(?<=[/=]){re.escape(problem['asked'])}(?=[/?&]|$)"
            request.url = httpx2.URL(re.sub(short, problem["meant"], str(request.url)))


class Client:
    """The answers of the service, as typed records. Thread-safe; close it, or use it as a context.

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
        key = check_key(key, "key") if key is not None else own_key()
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
        """Return whether the service answers and reaches its database."""
        return self._get("/healthz", Health)

    def submit(self, spec: ExperimentSpec | Mapping[str, Any], key: str | None = None) -> SubmissionReceipt:
        """Submit an experiment; the receipt says whether this call made it, or an earlier one with the same `key`.

        A mapping is sent as it is, so that the service names every fault in it.
        """
        path, headers = "/v1/experiments", _idempotency(key)
        return self._ask("POST", path, SubmissionReceipt, again=True, body=spec, headers=headers)

    def validate(self, spec: ExperimentSpec | Mapping[str, Any]) -> Preview:
        """Return what a specification would be: its runs, tokens and hours, or its faults. Nothing is stored."""
        return self._ask("POST", "/v1/experiments/validate", Preview, again=True, body=spec)

    def experiments(
        self, *, limit: int = 50, before: str | None = None, labels: Sequence[str] = (), deleted: bool = False
    ) -> tuple[AnyExperiment, ...]:
        """Return experiments that have all of `labels`, newest first; `before` is the id of the last one already seen.
        `deleted` returns deleted experiments that can be restored, instead of the others."""
        wanted = as_list(labels)
        page = self._get(
            "/v1/experiments", Page[AnyExperiment], limit=limit, before=before, label=wanted, deleted=deleted or None
        )
        return page.items

    def experiment(self, experiment_id: str) -> ExperimentRecord:
        """Return an experiment with its state."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}", ExperimentRecord)

    def compare(self, experiment_id: str, cell: str | None = None) -> Comparison:
        """Return the leaderboard of an experiment, over the runs that have ended; of a scaling experiment that of a
        cell."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}/comparison", Comparison, cell=cell)

    def cells(self, experiment_id: str) -> tuple[CellRecord, ...]:
        """Return the sizes and budgets of a scaling experiment, each with its leaderboard."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}/cells", Page[CellRecord]).items

    def comparison_table(self, experiment_id: str, form: TableFormat, cell: str | None = None) -> str:
        """Return the leaderboard as the text of a LaTeX, Markdown or CSV table."""
        path = f"/v1/experiments/{segment(experiment_id)}/comparison/{form}"
        return self._file(path, cell=cell).text

    def sweep(self, experiment_id: str) -> SweepReport:
        """Return the report of a sweep so far."""
        return self._get(f"/v1/experiments/{segment(experiment_id)}/sweep", SweepReport)

    def sweep_comparison(self, experiment_id: str, *, seeds: int = 3) -> ComparisonSpec:
        """Return the comparison of a sweep's best trials over so many fresh seeds, to be submitted."""
        path = f"/v1/experiments/{segment(experiment_id)}/sweep/comparison"
        return self._get(path, ComparisonSpec, seeds=seeds)

    def profile(self, experiment_ids: Sequence[str]) -> ProfileReport:
        """Return the performance profiles of several comparisons' candidates over all of their workloads."""
        return self._get("/v1/profiles", ProfileReport, experiment=as_list(experiment_ids))

    def fit(
        self,
        experiment_ids: Sequence[str],
        *,
        form: FormName | None = None,
        predict: Sequence[int | str] = (),
    ) -> FitReport:
        """Return the scaling laws of the candidates over experiments of several sizes; `predict`: models, or numbers of
        parameters, to say loss and memory at."""
        wanted = [str(each) for each in as_list(predict)]
        parameters = _sent_parameters(experiment=as_list(experiment_ids), predict=wanted, form=form)
        return self._ask("GET", "/v1/fits", FitReport, again=True, params=parameters, timeout=EXPORT_SECONDS)

    def external_experiments(
        self, labels: Sequence[str] = (), *, source: str | None = None, limit: int | None = None
    ) -> tuple[ExternalExperiment, ...]:
        """Return experiments with runs that were logged or imported (`source`) and with all of `labels`, the newest
        first; read page by page until there are `limit` of them."""
        path, wanted = "/v1/external-experiments", as_list(labels)
        pages = self._read_pages(path, Page[ExternalExperiment], "before", label=wanted, limit=PAGE_LIMIT)
        return tuple(islice((experiment for experiment in pages if source in (None, *experiment.source_kinds)), limit))

    def external_experiment(self, external_id: str) -> ExternalExperiment:
        """Return an experiment of external runs by its id or its name."""
        return self._get(f"/v1/external-experiments/{segment(external_id)}", ExternalExperiment)

    def external_runs(self, external_id: str) -> tuple[ExternalRun, ...]:
        """Return the runs of an experiment of external runs, the oldest first; read page by page."""
        path = f"/v1/external-experiments/{segment(external_id)}/runs"
        return tuple(self._read_pages(path, Page[ExternalRun], "after"))

    def judge(
        self,
        external_id: str,
        *,
        metric: str | None = None,
        baseline: str | None = None,
        workload: str | None = None,
        margin: float | None = None,
    ) -> ExternalJudgement:
        """Return the verdicts on its candidates, with notes on what weakens them or could not be checked. Lower values
        of `metric` are better (default: validation loss); differences below `margin` count as equal."""
        path = f"/v1/external-experiments/{segment(external_id)}/judgement"
        return self._get(path, ExternalJudgement, metric=metric, baseline=baseline, workload=workload, margin=margin)

    def external_run(self, external_id: str) -> ExternalRun:
        """Return a run of somebody's own loop."""
        return self._get(f"/v1/external-runs/{segment(external_id)}", ExternalRun)

    def external_series(self, external_id: str, metrics: Sequence[str] = ()) -> ExternalSeries:
        """Return all values of a run, or those of some metrics; above two million values the service asks for fewer
        metrics."""
        return self._get(f"/v1/external-runs/{segment(external_id)}/series", ExternalSeries, metric=as_list(metrics))

    def label_external_experiment(
        self, external_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> ExternalExperiment:
        """Add labels to an experiment of external runs, and remove some; the others stay."""
        change = {"add": as_list(add), "remove": as_list(remove)}
        path = f"/v1/external-experiments/{segment(external_id)}/labels"
        return self._ask("POST", path, ExternalExperiment, again=True, body=change)

    def delete_external_experiment(self, external_id: str) -> ExternalExperiment:
        """Remove an experiment of external runs and all of them, for good."""
        return self._ask("DELETE", f"/v1/external-experiments/{segment(external_id)}", ExternalExperiment, again=False)

    def delete_external_run(self, external_id: str) -> ExternalRun:
        """Delete a run for good. Sending its spool again brings it back."""
        return self._ask("DELETE", f"/v1/external-runs/{segment(external_id)}", ExternalRun, again=False)

    def send_lines(self, external_id: str, batch: LinesBatch) -> LinesReceipt:
        """Send lines of a spool (`RunSpool.send` sends whole spools); lines sent again change nothing."""
        path = f"/v1/external-runs/{segment(external_id)}/lines"
        return self._ask("POST", path, LinesReceipt, again=True, body=batch)

    def studies(self) -> tuple[StudySummary, ...]:
        """Return every study with its experiments and findings."""
        return self._get("/v1/studies", Page[StudySummary]).items

    def study(self, name: str) -> StudySummary:
        """Return a study."""
        return self._get(f"/v1/studies/{segment(name)}", StudySummary)

    def cancel_experiment(self, experiment_id: str) -> AnyExperiment:
        """Cancel every run that has not ended; training ones stop at their next heartbeat."""
        return self.apply_to_experiment(experiment_id, RunAction.CANCEL)

    def pause_experiment(self, experiment_id: str) -> AnyExperiment:
        """Pause every run that waits or trains; training ones write a checkpoint and stop."""
        return self.apply_to_experiment(experiment_id, RunAction.PAUSE)

    def resume_experiment(self, experiment_id: str) -> AnyExperiment:
        """Resume every paused run from its checkpoint."""
        return self.apply_to_experiment(experiment_id, RunAction.RESUME)

    def retry_experiment(self, experiment_id: str) -> AnyExperiment:
        """Queue every failed or cancelled run once more."""
        return self.apply_to_experiment(experiment_id, RunAction.RETRY)

    def apply_to_experiment(self, experiment_id: str, action: RunAction) -> AnyExperiment:
        """Cancel, pause, resume or retry every run whose state allows it."""
        path = f"/v1/experiments/{segment(experiment_id)}/{action.value}"
        return self._ask("POST", path, ANY_EXPERIMENT, again=False)

    def annotate(
        self, experiment_id: str, change: AnnotationChange | Mapping[str, Any], *, revision: int | None = None
    ) -> AnyExperiment:
        """Change labels and note; fields that `change` leaves out stay. With `revision`, that of the experiment as it
        was read, the service refuses the change (412) if the experiment was changed since."""
        body = change.model_dump(mode="json", exclude_unset=True) if isinstance(change, AnnotationChange) else change
        headers = {} if revision is None else {"If-Match": f'"{revision}"'}
        path = f"/v1/experiments/{segment(experiment_id)}"
        # Sent again under a revision it could be refused by its own first try.
        return self._ask("PATCH", path, ANY_EXPERIMENT, again=revision is None, body=body, headers=headers)

    def add_labels(self, experiment_id: str, *labels: str) -> AnyExperiment:
        """Add labels to an experiment. Labels that other callers add at the same time stay."""
        return self._relabel(experiment_id, lambda had: list(dict.fromkeys([*had, *labels])))

    def remove_labels(self, experiment_id: str, *labels: str) -> AnyExperiment:
        """Remove labels from an experiment; a label that it does not have changes nothing."""
        gone = {unicodedata.normalize("NFC", label).strip() for label in as_list(labels)}
        return self._relabel(experiment_id, lambda had: [label for label in had if label not in gone])

    def write_note(self, experiment_id: str, text: str | None) -> AnyExperiment:
        """Write an experiment's note, in Markdown; None removes it."""
        return self.annotate(experiment_id, {"note": text})

    def delete_experiment(self, experiment_id: str) -> AnyExperiment:
        """Delete an experiment whose runs have all ended; until `undo_until` it can be restored."""
        path = f"/v1/experiments/{segment(experiment_id)}"
        return self._ask("DELETE", path, ANY_EXPERIMENT, again=True)

    def restore_experiment(self, experiment_id: str) -> AnyExperiment:
        """Undo a deletion."""
        path = f"/v1/experiments/{segment(experiment_id)}/restore"
        return self._ask("POST", path, ANY_EXPERIMENT, again=True)

    def clone_experiment(
        self,
        experiment_id: str,
        name: str | None = None,
        key: str | None = None,
        *,
        fresh_seeds: int | None = None,
        keep_rates: bool = False,
    ) -> SubmissionReceipt:
        """Submit an experiment's specification again, under another name if one is given, and over so many
        `fresh_seeds` instead of its own, with `keep_rates` only at what each candidate was judged at, without another
        tuning, and all seeds at once; an earlier call with the same `key` made it, if the answer says so."""
        path, headers = f"/v1/experiments/{segment(experiment_id)}/clone", _idempotency(key)
        wanted = {"name": name} | ({} if fresh_seeds is None else {"fresh_seeds": fresh_seeds})
        wanted |= {"keep_rates": True} if keep_rates else {}
        return self._ask("POST", path, SubmissionReceipt, again=True, body=wanted, headers=headers)

    def runs(self, *, experiment_id: str | None = None, status: RunStatus | None = None) -> tuple[RunRecord, ...]:
        """Return every run that matches, in order; read page by page."""
        found = self._read_pages(
            "/v1/runs", Page[RunRecord], "after", limit=PAGE_LIMIT, experiment_id=experiment_id, status=status
        )
        return tuple(found)

    def run_table(
        self,
        *,
        where: str = "",
        columns: Sequence[str] = (),
        sort: str = "-created_at",
        limit: int | None = None,
    ) -> tuple[RunTableRow, ...]:
        """Return fields of every run that the filter finds, external runs too; read page by page.

        `where` is a filter such as `lr<0.01 and optimizer=adapm`, `sort` any field, with `-` the largest first.
        """
        a_page, wanted = min(limit or PAGE_LIMIT, PAGE_LIMIT), as_list(columns)
        found = self._read_pages(
            "/v1/runs/table", Page[RunTableRow], "after", where=where, columns=wanted, sort=sort, limit=a_page
        )
        return tuple(islice(found, limit))

    def run(self, run_id: str) -> RunRecord:
        """Return a run with its state, and its result once there is one."""
        return self._get(f"/v1/runs/{segment(run_id)}", RunRecord)

    def standing(self, run_id: str) -> QueuePosition:
        """Return a waiting run's place in the queue, and when it may start."""
        return self._get(f"/v1/runs/{segment(run_id)}/standing", QueuePosition)

    def attempts(self, run_id: str) -> tuple[AttemptRecord, ...]:
        """Return every execution of a run."""
        return self._get(f"/v1/runs/{segment(run_id)}/attempts", Page[AttemptRecord]).items

    def events(self, run_id: str) -> tuple[EventRecord, ...]:
        """Return every change of a run's state."""
        return self._get(f"/v1/runs/{segment(run_id)}/events", Page[EventRecord]).items

    def points(self, run_id: str, *, after_step: int = -1) -> tuple[Point, ...]:
        """Return the points of a run after a step, in order of steps; read page by page."""
        path = f"/v1/runs/{segment(run_id)}/points"
        return tuple(self._read_pages(path, Page[Point], "after_step", limit=PAGE_LIMIT, after_step=after_step))

    def observations(self, run_id: str) -> tuple[Observation, ...]:
        """Return the observations of a run's probes, by step and probe; read page by page."""
        path = f"/v1/runs/{segment(run_id)}/observations"
        return tuple(self._read_pages(path, Page[Observation], "after_step", after_step=-1))

    def samples(self, run_id: str) -> tuple[TextSamples, ...]:
        """Return the texts that a run's model wrote at evaluations, by step; read page by page."""
        path = f"/v1/runs/{segment(run_id)}/samples"
        return tuple(self._read_pages(path, Page[TextSamples], "after_step", after_step=-1))

    def charts(
        self, run_ids: Sequence[str], metric: str, *, buckets: int = 800, after_step: int = -1
    ) -> tuple[Chart, ...]:
        """Return one metric of several runs, downsampled so that spikes survive: lowest, mean and highest of each
        range."""
        ids = as_list(run_ids)
        page = self._get("/v1/points", Page[Chart], run=ids, metric=metric, buckets=buckets, after_step=after_step)
        return page.items

    def export(self, experiment_id: str, name: str, path: Path) -> None:
        """Write an experiment's `results` or `series` into a file; `name` is `series.parquet`, `results.csv`, …"""
        self._save(f"/v1/experiments/{segment(experiment_id)}/exports/{segment(name)}", path)

    def document(self, experiment_id: str, name: str) -> bytes:
        """Return a file about an experiment: `report`, `document.json` or `references.bib`."""
        return self._file(f"/v1/experiments/{segment(experiment_id)}/{segment(name)}").content

    def figure_names(self, experiment_id: str, cell: str | None = None) -> tuple[str, ...]:
        """Return the names of an experiment's figures."""
        path = f"/v1/experiments/{segment(experiment_id)}/figures"
        return self._get(path, Page[str], cell=cell).items

    def figure(
        self, experiment_id: str, name: str, form: str, *, cell: str | None = None, theme: str = "light"
    ) -> bytes:
        """Return a figure as a file: `svg`, `png`, `pdf`, `html`, `csv` or `json`."""
        path = f"/v1/experiments/{segment(experiment_id)}/figures/{segment(name)}.{segment(form)}"
        return self._file(path, cell=cell, theme=theme).content

    def files(self, run_id: str) -> tuple[RunFile, ...]:
        """Return a run's specification, result, logs and kept checkpoints, with their sizes."""
        return self._get(f"/v1/runs/{segment(run_id)}/files", Page[RunFile]).items

    def file(self, run_id: str, name: str, path: Path) -> None:
        """Write one of these files to `path`."""
        self._save(f"/v1/runs/{segment(run_id)}/files/{segment(name)}", path)

    def log(
        self,
        run_id: str,
        attempt: int,
        *,
        tail_bytes: int = 2**16,
        search: str = "",
        level: LogLevel = LogLevel.INFO,
    ) -> str:
        """Return the end of what an attempt's process printed; only lines that contain `search`, of that level or
        worse."""
        path = f"/v1/runs/{segment(run_id)}/attempts/{attempt}/log"
        return self._file(path, tail_bytes=tail_bytes, search=search, level=level.value).text

    def cancel_run(self, run_id: str) -> RunRecord:
        """Cancel one run."""
        return self.apply_to_run(run_id, RunAction.CANCEL)

    def pause_run(self, run_id: str) -> RunRecord:
        """Pause one run; a training one writes a checkpoint and stops."""
        return self.apply_to_run(run_id, RunAction.PAUSE)

    def resume_run(self, run_id: str, processes: int | None = None) -> RunRecord:
        """Resume one paused run from its checkpoint; `processes` train it from then on, if given."""
        return self.apply_to_run(run_id, RunAction.RESUME, processes)

    def retry_run(self, run_id: str, processes: int | None = None) -> RunRecord:
        """Queue one failed or cancelled run once more; `processes` train it from then on, if given."""
        return self.apply_to_run(run_id, RunAction.RETRY, processes)

    def apply_to_run(self, run_id: str, action: RunAction, processes: int | None = None) -> RunRecord:
        """Cancel, pause, resume or retry one run, these two with another number of processes where one is given;
        refused (409) where its state rules that out."""
        path = f"/v1/runs/{segment(run_id)}/{action.value}"
        return self._ask("POST", path, RunRecord, again=False, params=_sent_parameters(processes=processes))

    def optimizers(self) -> tuple[OptimizerInfo, ...]:
        """Return the optimizers that the service can build, with their options."""
        return self._get("/v1/optimizers", Page[OptimizerInfo]).items

    def models(self) -> tuple[ModelInfo, ...]:
        """Return the models that the service can train."""
        return self._get("/v1/models", Page[ModelInfo]).items

    def memory(
        self,
        model: str,
        *,
        rank_ratio: float | None = None,
        state_dtype: str | None = None,
        ranks: int = 1,
        card_gib: float | None = None,
        micro_batch: int = 1,
        precision: str = "bf16",
    ) -> Footprint:
        """Return the bytes that training a model takes under each optimizer; of several ranks, on the fullest one. With
        `card_gib` its `fits` have the peaks at a micro-batch, and the largest micro-batch on such a card."""
        path = f"/v1/models/{segment(model)}/memory"
        return self._get(
            path, Footprint, rank_ratio=rank_ratio, state_dtype=state_dtype, ranks=ranks, card_gib=card_gib,
            micro_batch=micro_batch, precision=precision,
        )  # fmt: skip

    def block_plan(
        self, model: str, optimizer: str = "adapm", *, rank_ratio: float | None = None, state_dtype: str | None = None
    ) -> Footprint:
        """Return the state that AdaPM or AdaPM-mini keeps for every block of a model:
        `footprint.optimizers[0].blocks`."""
        path = f"/v1/models/{segment(model)}/plan"
        return self._get(path, Footprint, optimizer=optimizer, rank_ratio=rank_ratio, state_dtype=state_dtype)

    def datasets(self) -> tuple[DatasetInfo, ...]:
        """Return the datasets that the service can train on."""
        return self._get("/v1/datasets", Page[DatasetInfo]).items

    def create_key(self, wanted: KeyRequest) -> NewKey:
        """Make a key (admins); its secret is in the answer and nowhere else."""
        return self._ask("POST", "/v1/keys", NewKey, again=False, body=wanted)

    def api_keys(self) -> tuple[KeyRecord, ...]:
        """Return all keys, the newest first (admins)."""
        return self._get("/v1/keys", Page[KeyRecord]).items

    def revoke_key(self, key_id: str) -> KeyRecord:
        """Revoke a key (admins)."""
        return self._ask("DELETE", f"/v1/keys/{segment(key_id)}", KeyRecord, again=True)

    def audit(self, *, limit: int = 100, key_id: str | None = None) -> tuple[AuditRecord, ...]:
        """Return the latest changes with their authors, the newest first (admins)."""
        return self._get("/v1/audit", Page[AuditRecord], limit=limit, key_id=key_id).items

    def add_webhook(self, wanted: WebhookRequest) -> NewWebhook:
        """Register a URL for messages about ended experiments. Only this answer has the secret that signs them."""
        return self._ask("POST", "/v1/webhooks", NewWebhook, again=False, body=wanted)

    def webhooks(self) -> tuple[WebhookRecord, ...]:
        """Return all webhooks, the newest first."""
        return self._get("/v1/webhooks", Page[WebhookRecord]).items

    def remove_webhook(self, webhook_id: str) -> WebhookRecord:
        """Remove a webhook and its undelivered messages."""
        return self._ask("DELETE", f"/v1/webhooks/{segment(webhook_id)}", WebhookRecord, again=False)

    def test_webhook(self, webhook_id: str) -> DeliveryRecord:
        """Deliver a `webhook.test`, as messages about ended experiments; one that waits already is the only one."""
        return self._ask("POST", f"/v1/webhooks/{segment(webhook_id)}/test", DeliveryRecord, again=True)

    def webhook_deliveries(self, webhook_id: str, *, limit: int = 50) -> tuple[DeliveryRecord, ...]:
        """Return deliveries: sent, waiting and abandoned, the newest first."""
        path = f"/v1/webhooks/{segment(webhook_id)}/deliveries"
        return self._get(path, Page[DeliveryRecord], limit=limit).items

    def watch(self, experiment_id: str, *, pause_seconds: float = 1.0) -> Iterator[ExperimentRecord]:
        """Yield the experiment now and whenever a look after a pause finds it changed, until all of its runs have
        ended; the last one is done."""
        last: ExperimentRecord | None = None
        while True:
            now = self.experiment(experiment_id)
            if now != last:
                yield now
            if now.counts.done():
                return
            last = now
            time.sleep(pause_seconds)

    def watch_run(self, run_id: str, *, pause_seconds: float = 1.0) -> Iterator[RunRecord]:
        """Yield a run now and after every pause, until it has ended; the last one has its result, if there is any."""
        while True:
            run = self.run(run_id)
            yield run
            if run.status in TERMINAL:
                return
            time.sleep(pause_seconds)

    def dataframe(self, experiment_id: str) -> "DataFrame":
        """Return an experiment's results as a DataFrame, a row per run; columns as `adapm-bench export` writes them."""
        return self._frame(f"/v1/experiments/{segment(experiment_id)}/exports/results.parquet")

    def series_dataframe(self, experiment_id: str) -> "DataFrame":
        """Return the points of all runs of an experiment as a DataFrame, a row per point, with the run's id in
        `run_id`."""
        return self._frame(f"/v1/experiments/{segment(experiment_id)}/exports/series.parquet")

    def points_dataframe(self, run_id: str) -> "DataFrame":
        """Return the points of one run as a DataFrame, a row per point."""
        return self._frame(f"/v1/runs/{segment(run_id)}/exports/series.parquet")

    def _relabel(self, experiment_id: str, labels: Callable[[Iterable[str]], list[str]]) -> AnyExperiment:
        for tries_left in reversed(range(MOST_TRIES)):
            seen = self.experiment(experiment_id)
            try:
                return self.annotate(experiment_id, {"labels": labels(seen.labels)}, revision=seen.revision)
            except ClientError as error:
                if not tries_left or error.status != httpx2.codes.PRECONDITION_FAILED:
                    raise
        raise AssertionError("unreachable: the last try returns or raises")

    def _read_pages(
        self, path: str, page: type[Page[Answer]], cursor: str, **parameters: Parameter | None
    ) -> Iterator[Answer]:
        while True:
            answer = self._get(path, page, **parameters)
            yield from answer.items
            if answer.next is None:
                return
            parameters[cursor] = answer.next

    def _get(self, path: str, answer: type[Answer], **parameters: Parameter | None) -> Answer:
        return self._ask("GET", path, answer, again=True, params=_sent_parameters(**parameters))

    def _save(self, address: str, path: Path) -> None:
        """Write an answer into a file, piece by piece."""
        try:
            with self._http.stream("GET", address, timeout=EXPORT_SECONDS) as response:
                if not response.is_success:
                    response.read()
                    raise refusal(response)
                with path.open("wb") as file:
                    for piece in response.iter_bytes():
                        file.write(piece)
        except httpx2.TransportError as error:
            raise unreachable_error(self.url, error) from error

    def _file(self, path: str, **parameters: Parameter | None) -> httpx2.Response:
        """Return an answer that is not a record; raises `ClientError` if it is a refusal."""
        chosen = _sent_parameters(**parameters)
        response = self._send(
            lambda: self._http.get(path, params=chosen, timeout=EXPORT_SECONDS), tries=self._retries + 1
        )
        if not response.is_success:
            raise refusal(response)
        return response

    def _frame(self, path: str) -> "DataFrame":
        content = self._file(path).content
        try:
            import pandas  # installed with the notebooks, and heavy
        except ImportError as error:
            raise ImportError("DataFrames need pandas, which is not installed; `pip install pandas`") from error
        frame: DataFrame = pandas.read_parquet(BytesIO(content))
        return frame

    def _ask(self, method: str, path: str, answer: type[Answer], *, again: bool, **sent: Any) -> Answer:
        """Return the record at a path of the service; `again`: the request may be repeated when the connection fails;
        `body`: a record, or a mapping, that is sent as JSON."""
        if "body" in sent:
            sent["content"] = json_body(sent.pop("body"))
            sent["headers"] = {"Content-Type": "application/json"} | sent.get("headers", {})
        tries = self._retries + 1 if again else 1
        return read(self._send(lambda: self._http.request(method, path, **sent), tries=tries), answer)

    def _send(self, request: Callable[[], httpx2.Response], tries: int) -> httpx2.Response:
        """Send a request up to `tries` times: when the connection fails, or when the service says how long to wait."""
        pause_seconds = FIRST_PAUSE_SECONDS
        for tries_left in reversed(range(tries)):
            try:
                response = request()
                asked_seconds = wait_seconds(response)
                if tries_left == 0 or asked_seconds is None:
                    return response
                pause_seconds = max(pause_seconds, asked_seconds)
            except httpx2.TransportError as error:
                if tries_left == 0:
                    raise unreachable_error(self.url, error) from error
            time.sleep(pause_seconds)
            pause_seconds *= 2
        raise AssertionError("unreachable: the last try returns or raises")


class AsyncClient:
    """The verbs of `Client` as coroutines; `watch` and `watch_run` are for `async for`. Close it, or use it as a
    context.

    A verb runs on a thread, so that the event loop goes on. A call that is cancelled is no longer waited for; its
    request may reach the service all the same, so that a submission which matters should have an idempotency key.
    """

    def __init__(self, url: str, **options: Any) -> None:
        """Take the arguments of `Client`."""
        self._client = Client(url, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._client.close)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in dir(self._client) if not name.startswith("_"))]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        verb = getattr(self._client, name)
        if not callable(verb):
            return verb

        @wraps(verb)
        async def iterate(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
            records = verb(*arguments, **named)
            while (record := await asyncio.to_thread(next, records, None)) is not None:
                yield record

        @wraps(verb)
        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(verb, *arguments, **named)

        return iterate if isgeneratorfunction(verb) else call


def _idempotency(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or uuid4().hex}


def _sent_parameters(**parameters: Parameter | None) -> dict[str, Parameter]:
    return {name: value for name, value in parameters.items() if value is not None}
