"""`adapm-bench study ls|show|run|report`: does the paper hold? Each study answers one question, at two or three scales.

To run one is to find or submit its experiments, follow them, gather what they measured, judge it and keep it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from api.cli.console import (
    FAILED,
    Json,
    console,
    fail,
    messages_on_stderr,
    plain,
    plain_table,
    print_json,
    refuse,
    text_table,
)
from api.cli.experiments.watch import follow
from api.cli.own_service import exit_in_order, own_service
from api.cli.settings import Data, Slots, environment_settings
from api.cli.studies.claims import design_claim, is_file
from api.client.client import Client
from api.client.messages import ClientError
from dashboards.text import formats
from dashboards.text.study import (
    Entry,
    answer_tone,
    cost_words,
    figure_text,
    interval_text,
    measured_words,
    origin,
    reproduction,
)
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.errors import NotFoundError
from orchestrator.jobs import RunStatus
from orchestrator.settings import Settings
from orchestrator.studies import registry
from orchestrator.studies.claim_file import ClaimError, ClaimSpec, read_claim
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict, Finding
from orchestrator.studies.gathering import EvidenceSource, gather, machine, round_figures
from orchestrator.studies.results import WITHDRAWN, StoredFinding, best, stored_findings, write_evidence
from orchestrator.studies.study import Study
from worker.words import pluralize

Names = Annotated[
    list[str] | None,
    typer.Argument(help="Studies by name, which `study ls` lists, or claims as files.", metavar="[NAME|FILE]..."),
]
Name = Annotated[str, typer.Argument(help="A study by name, or a claim as a file.", metavar="NAME|FILE")]
ScaleOption = Annotated[
    StudyScale,
    typer.Option("--scale", help="tiny: minutes on a CPU; middle: hours on a CPU; paper: its setting, for GPUs."),
]
All = Annotated[bool, typer.Option("--all", help="Run every study, and write the reproduction report.")]
Again = Annotated[bool, typer.Option("--again", help="Train again, even if there are finished experiments.")]
Compare = Annotated[
    bool, typer.Option("--compare-with-published", help="Exit with code 1 if a result deviates from the published one.")
]
Url = Annotated[
    str | None,
    typer.Option("--url", help="The service to use; default: the one on the data folder, or a temporary one."),
]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Write the report into this file.")]
Results = Annotated[
    Path | None, typer.Option("--results", help="Folder of results; default: studies in the data folder.")
]

STYLES = {"good": "green", "warn": "yellow", "bad": "red", "wait": "dim"}
"""The colour of a verdict by its tone."""

verbs = typer.Typer(name="study", help="Does the paper hold? Run studies, each to its verdict.", no_args_is_help=True)


@verbs.command(name="ls")
def list_studies(json: Json = False, data: Data = None) -> None:
    """List the studies, each with its best verdict so far: yours, or the published one."""
    folder = _results_folder(None, data)
    rows = [(each, stored_findings(each, folder)) for each in registry.all_studies(folder)]
    if json:
        print_json([{"name": each.name, "question": each.question, "findings": findings} for each, findings in rows])
    else:
        console().print(list_table(rows))


@verbs.command()
def show(name: Name, json: Json = False, data: Data = None) -> None:
    """Show a study: question, claim, what each scale runs and costs, and its findings."""
    folder = _results_folder(None, data)
    (study,) = _studies([name], folder)
    found = stored_findings(study, folder)
    if not json:
        console().print(study_view(study, found))
        return
    scales = {
        scale.value: {
            "runs": plan.run_count(),
            "estimated_device_hours": plan.device_hours(),
            "experiments": [{"part": part.name, "key": part.key(), "spec": part.spec} for part in plan.parts],
        }
        for scale, plan in study.plans.items()
    }
    texts = {name: getattr(study, name) for name in ("name", "title", "question", "claim", "source", "caveats")}
    print_json({**texts, "scales": scales, "findings": found})


@verbs.command()
def run(
    names: Names = None,
    scale: ScaleOption = StudyScale.TINY,
    everything: All = False,
    again: Again = False,
    compare_with_published: Compare = False,
    url: Url = None,
    data: Data = None,
    slots: Slots = None,
    json: Json = False,
) -> None:
    """Run studies to their verdicts; finished experiments are reused, interrupted ones continue."""
    if bool(names) == everything:
        refuse("name the studies to run, or give --all")
    settings = environment_settings(data_folder=data, slots=slots)
    folder = settings.data_folder / "studies"
    chosen = _studies(registry.names() if everything else names or (), folder)
    absent = [each for each in chosen if scale not in each.plans]
    if absent and not everything:
        refuse(f"{absent[0].name} has no {scale.value} scale; it has {', '.join(absent[0].plans)}")
    chosen = [each for each in chosen if each not in absent]
    claims = [_claim(name) for name in names or () if is_file(name)]
    runner = StudyRunner(scale=scale, folder=folder, again=again, claims=claims)
    with messages_on_stderr(as_json=json):
        try:
            with exit_in_order():
                runner.run(chosen, settings, url)
        except ClaimError as error:
            fail(f"error: {error}")
        deviating = runner.print_deviations(chosen)
        if everything:
            path = runner.folder / "reproduction.md"
            path.write_text(_report(runner.folder), encoding="utf-8")
            print(f"report: {path}")
    if json:
        print_json([{"study": each.name, "scale": scale, "finding": runner.stored_finding(each)} for each in chosen])
    found = [runner.stored_finding(study) for study in chosen]
    unanswered = any(each is None or each.finding.answer is ClaimVerdict.MISSING for each in found)
    if unanswered or (compare_with_published and deviating):
        raise typer.Exit(FAILED)


@verbs.command()
def report(out: Out = None, results: Results = None, data: Data = None) -> None:
    """Write the reproduction report in Markdown: every study's claim, figures, verdict, and the machine."""
    text = _report(_results_folder(results, data))
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        refuse(f"cannot write {out}: {error.strerror}; choose another file with -o")
    print(f"{out}  {len(text.encode()):,} bytes")


def _report(folder: Path) -> str:
    entries = [Entry(study=each, findings=stored_findings(each, folder)) for each in registry.all_studies(folder)]
    return reproduction(entries, WITHDRAWN.read_text(encoding="utf-8"))


def _studies(names: Sequence[str], folder: Path) -> list[Study]:
    try:
        return [
            _claim(name).study() if is_file(name) else registry.study(name, folder) for name in dict.fromkeys(names)
        ]
    except NotFoundError as error:
        refuse(str(error))


def _claim(file: str) -> ClaimSpec:
    try:
        claim = read_claim(Path(file))
    except ClaimError as error:
        refuse(str(error))
    if claim.name in registry.names():
        refuse(f"{file}: a study that comes with this version is called {claim.name}; give the claim another name")
    return claim


def _results_folder(given: Path | None, data: Path | None) -> Path:
    return given or (data or environment_settings().data_folder) / "studies"


class StudyRunner:
    """Runs studies at one scale; what it finds goes into a folder, one small file a study."""

    def __init__(self, *, scale: StudyScale, folder: Path, again: bool, claims: Iterable[ClaimSpec] = ()) -> None:
        """`claims`: those of the studies that are given as files."""
        self.folder = folder
        self.scale, self._again = scale, again
        self._claims = {claim.name: claim for claim in claims}

    def run(self, studies: Sequence[Study], settings: Settings, url: str | None) -> None:
        """Compute and train what the studies need, on the service at `url`, or on one of our own."""
        self._compute(studies)
        with_experiments = [study for study in studies if study.plans[self.scale].parts]
        if with_experiments and url:
            with Client(url, retries=4) as client:
                self._train(client, with_experiments)
        elif with_experiments:
            with own_service(settings) as (own_url, check), Client(own_url, retries=4) as client:
                self._train(client, with_experiments, check)

    def _compute(self, studies: Iterable[Study]) -> None:
        """Find, in this process, what no training is needed for."""
        for study in studies:
            plan = study.plans[self.scale]
            if plan.compute is None:
                continue
            print(f"{study.name}: computing", flush=True)
            figures = {name: round_figures(value) for name, value in plan.compute().items()}
            import torch  # seconds that only this verb needs

            from worker.meters.environment import describe_environment  # loads torch

            machines = (machine(describe_environment(torch.device("cpu"))),)
            by = plan.version
            evidence = Evidence(study=study.name, scale=self.scale, computed=figures, computed_by=by, machines=machines)
            self._store(study, evidence)

    def _train(self, client: Client, studies: Sequence[Study], check: Callable[[], None] = lambda: None) -> None:
        """Run the experiments; all are submitted first, so that no core waits between two of them."""
        studies = [self._design(client, study) for study in studies]
        found = {study.name: self.submit(client, study) for study in studies}
        for study in studies:
            experiments = found[study.name]
            for experiment_id in experiments.values():
                follow(client, experiment_id, check)
            source = EvidenceSource(
                compare=client.compare,
                sweep=client.sweep,
                runs=lambda experiment_id: client.runs(experiment_id=experiment_id),
                observations=client.observations,
                fit=lambda ids, form: _fit(client, ids, form),
            )
            self._store(study, gather(study, self.scale, experiments, source))

    def print_deviations(self, studies: Iterable[Study]) -> bool:
        """Print where results deviate from the published ones; returns whether any does."""
        any_deviates = False
        for study in studies:
            stored = self.stored_finding(study)
            for sentence in stored.deviations if stored else ():
                any_deviates = True
                print(f"{study.name} deviates from the published result: {plain(sentence)}")
        return any_deviates

    def submit(self, client: Client, study: Study) -> dict[str, str]:
        """Part → experiment: the newest one that there is, its failed and cancelled runs queued again; or a new one."""
        known = self._newest_experiment_by_part(client, study)
        ids: dict[str, str] = {}
        for part in study.plans[self.scale].parts:
            found, is_new = known.get(part.name), False
            if found is not None and client.experiment(found).spec.content_hash() != part.spec.content_hash():
                found = None  # of a service of another version, whose plan is another
            if found is None or self._again:
                key = f"{part.key()}-{time.time_ns()}" if self._again else part.key()
                submission = client.submit(part.spec, key=key)
                found, is_new = submission.experiment.id, submission.created
            if is_new:
                print(
                    f"{study.name}: submitted {found} ({part.name}), {pluralize(part.spec.run_count(), 'run')}",
                    flush=True,
                )
            else:
                print(f"{study.name}: using {found} ({part.name})", flush=True)
                # Whoever runs a study wants its answer: what was paused, cancelled or has failed goes on.
                states = client.experiment(found).counts.by_status
                if states.get(RunStatus.PAUSED):
                    client.resume_experiment(found)
                if states.get(RunStatus.FAILED) or states.get(RunStatus.CANCELLED):
                    client.retry_experiment(found)
            ids[part.name] = found
        return ids

    def _newest_experiment_by_part(self, client: Client, study: Study) -> dict[str, str | None]:
        """Part → its newest experiment. A claim may be registered here and not at a service elsewhere, which knows its
        experiments by their keys alone."""
        try:
            experiments = client.study(study.name).scale(self.scale).experiments
        except ClientError as error:
            if error.status == 404 and study.name not in registry.names():
                return {}
            raise
        return {each.part: each.experiment_id for each in experiments}

    def _design(self, client: Client, study: Study) -> Study:
        """Of a claim that is given as a file, with the seeds that were chosen for it; others as they are."""
        if (claim := self._claims.get(study.name)) is None:
            return study
        claim, why = design_claim(client, claim, self.scale, self.folder)
        design = claim.scales[self.scale].design
        assert design is not None
        print(f"{study.name}: {pluralize(design.seeds, 'seed')}: {plain(why)}", flush=True)
        return claim.study()

    def _store(self, study: Study, evidence: Evidence) -> None:
        write_evidence(self.folder, evidence)
        stored = self.stored_finding(study)
        assert stored is not None
        console().print(finding_view(study, stored))

    def stored_finding(self, study: Study) -> StoredFinding | None:
        """What was found of a study, here and at this scale."""
        found = stored_findings(study, self.folder)
        return next((each for each in found if each.scale is self.scale and not each.published), None)


def _fit(client: Client, ids: Sequence[str], form: FormName) -> FitReport | None:
    try:
        return client.fit(ids, form=form)
    except ClientError as error:
        if error.status == 409:
            return None  # these results have no law
        raise


def list_table(rows: Iterable[tuple[Study, tuple[StoredFinding, ...]]]) -> RenderableType:
    """One line a study."""
    lines = []
    for study, findings in rows:
        found = best(findings)
        verdict = ("no result yet", "", "")
        if found is not None:
            verdict = (found.finding.answer_words(), measured_words(found.finding), origin(study, found))
        lines.append((study.name, study.question, *verdict))
    return text_table(("study", "question", "the claim", "what was run", "from"), lines)


def study_view(study: Study, findings: tuple[StoredFinding, ...]) -> RenderableType:
    """Everything about a study."""
    scales = text_table(
        ("scale", "runs", "estimated", "experiments"),
        [
            (
                scale.value,
                str(plan.run_count()),
                cost_words(plan.device_hours(), plan.specs()),
                ", ".join(part.name for part in plan.parts) or "computed without training",
            )
            for scale, plan in study.plans.items()
        ],
    )
    head = Group(
        Text(f"{study.title} ({study.name})", style="bold"),
        Text(study.question),
        Text(f"Claim ({study.source}): {study.claim}"),
        *(Text(f"Caveat: {each}") for each in study.caveats),
    )
    parts: list[RenderableType] = [head, Padding(scales, (1, 0))]
    parts += [finding_view(study, each) for each in findings] or [Text("no result yet")]
    return Group(*parts)


def finding_view(study: Study, stored: StoredFinding) -> RenderableType:
    """A verdict with its figures."""
    finding = stored.finding
    head = Text(f"{study.name}, {origin(study, stored)}: ", style="bold")
    head.append(finding.answer_words(), style=STYLES[answer_tone(finding.answer)])
    if finding.answer is ClaimVerdict.BEYOND:
        head.append(f" (on what was run: {finding.measured.value})")
    lines: list[RenderableType] = [head, Text(plain(formats.sentence(finding.sentence)))]
    if finding.measures:
        lines.append(Padding(_measures(finding, study.axis), (1, 0)))
    lines += [Text(f"Note: {plain(formats.sentence(each))}") for each in finding.notes]
    lines += [Text(f"Deviates: {plain(formats.sentence(each))}") for each in stored.deviations]
    if stored.compared and not stored.deviations and finding.answer is not ClaimVerdict.MISSING:
        lines.append(Text("All of it lies within the published intervals."))
    lines += [Text(f"Measured on {plain(each)}", style="dim") for each in finding.machines]
    return Padding(Group(*lines), (1, 0, 0, 0))


def _measures(finding: Finding, axis: str) -> RenderableType:
    table = plain_table(axis, "measured", "95 % interval", "n", "the paper's")
    table.add_column("", overflow="fold")
    for each in finding.measures:
        claimed = figure_text(each.claimed) if each.claimed is not None else ""
        cells = (plain(each.name), figure_text(each.value), interval_text(each), str(each.n or ""), claimed, each.note)
        table.add_row(*(Text(formats.sentence(cell)) for cell in cells))
    return table
