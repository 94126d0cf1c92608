"""`adapm-bench study ls|run|report`: does the paper hold? Each study answers one question, at up to three scales.

To run one is to find or submit its experiments, follow them, gather what they measured, judge it and keep it.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from api.cli.console import FAILED, Json, console, plain, print_json, refuse, text_table
from api.cli.experiments.watch import follow
from api.cli.own_service import exit_in_order, own_service
from api.cli.settings import Data, Slots, environment_settings
from api.client.client import Client
from api.client.messages import ClientError
from dashboards.text import formats
from dashboards.text.study import MEASURE_HEADS, answer_tone, cost_words, measure_cells, origin, reproduction
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.errors import NotFoundError
from orchestrator.jobs import RunStatus
from orchestrator.settings import Settings
from orchestrator.studies import registry
from orchestrator.studies.claims import ClaimVerdict
from orchestrator.studies.gathering import ResultSource, gather, machine, round_figures
from orchestrator.studies.records import ScaleReport, StudySummary
from orchestrator.studies.reports import summary
from orchestrator.studies.result import StudyResult, result_path, write_result
from orchestrator.studies.study import Study, StudyError, StudyScale, experiment_key, identity, read_study
from worker.words import pluralize

Name = Annotated[str | None, typer.Argument(help="One study, with claim, cost and figures.", metavar="[NAME]")]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Studies by name, which `study ls` lists, or files of your own, study.yaml.", metavar="[NAME|FILE]..."
    ),
]
ScaleOption = Annotated[
    StudyScale, typer.Option(help="tiny: minutes on a CPU; middle: hours on a CPU; paper: its setting, for GPUs.")
]
All = Annotated[bool, typer.Option("--all", help="Run every study.")]
Url = Annotated[
    str | None, typer.Option(help="The service to use; default: the one on the data folder, or a temporary one.")
]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Write the report into this file.")]

STYLES = {"good": "green", "warn": "yellow", "bad": "red", "wait": "dim"}
"""The colour of a verdict by its tone."""

verbs = typer.Typer(name="study", help="Does the paper hold? Run studies, each to its verdict.", no_args_is_help=True)


@verbs.command(name="ls")
def list_studies(name: Name = None, json: Json = False, data: Data = None) -> None:
    """List the studies with their results, yours or published; or show one with all of its figures."""
    folder = _results_folder(data)
    if name is not None:
        (study,) = _studies([name], folder)
        report = summary(study, folder)
        print_json(report) if json else console().print(study_view(report))
        return
    reports = [summary(study, folder) for study in registry.all_studies(folder)]
    print_json(reports) if json else console().print(list_table(reports))


@verbs.command()
def run(
    names: Names = None,
    scale: ScaleOption = StudyScale.TINY,
    everything: All = False,
    url: Url = None,
    data: Data = None,
    slots: Slots = None,
    json: Json = False,
) -> None:
    """Run studies to their verdicts. Finished experiments are used again, interrupted ones continue."""
    if bool(names) == everything:
        refuse("name the studies to run, or give --all")
    settings = environment_settings(data_folder=data, slots=slots)
    folder = settings.data_folder / "studies"
    studies = _studies(registry.names() if everything else names or (), folder, register=True)
    absent = [study for study in studies if scale not in study.scales]
    if absent and not everything:
        refuse(f"{absent[0].name} has no {scale.value} scale; it has {', '.join(absent[0].scales)}")
    studies = [study for study in studies if study not in absent]
    runner = StudyRunner(scale=scale, folder=folder)
    with redirect_stdout(sys.stderr) if json else nullcontext(), exit_in_order():
        runner.run(studies, settings, url)
    reports = [(study.name, summary(study, folder).scale(scale)) for study in studies]
    if json:
        fields = [(name, report.own, report.deviations) for name, report in reports]
        print_json(
            [
                {"study": name, "scale": scale, "finding": finding, "deviations": sentences}
                for name, finding, sentences in fields
            ]
        )
    if any(report.own is None or report.own.answer is ClaimVerdict.MISSING for _, report in reports):
        raise typer.Exit(FAILED)


@verbs.command()
def report(out: Out = None, data: Data = None) -> None:
    """Write the reproduction report in Markdown: every claim with its measurement, verdict and machine."""
    folder = _results_folder(data)
    text = reproduction([summary(study, folder) for study in registry.all_studies(folder)])
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        refuse(f"cannot write {out}: {error.strerror}; choose another file with -o")
    print(f"{out}  {len(text.encode()):,} bytes")


def _studies(names: Sequence[str], folder: Path, *, register: bool = False) -> list[Study]:
    """Return studies by name or from files, which are registered in the folder before they run."""
    studies = []
    try:
        for name in dict.fromkeys(names):
            if not name.endswith((".yaml", ".yml", ".json")):
                studies.append(registry.study(name, folder))
                continue
            studies.append(read_study(Path(name)))
            if register:
                registry.register(folder, studies[-1])
    except (NotFoundError, StudyError) as error:
        refuse(str(error))
    return studies


def _results_folder(data: Path | None) -> Path:
    return (data or environment_settings().data_folder) / "studies"


class StudyRunner:
    """Runs studies at one scale; each result goes into the folder as soon as it is there."""

    def __init__(self, *, scale: StudyScale, folder: Path) -> None:
        self.scale, self.folder = scale, folder

    def run(self, studies: Sequence[Study], settings: Settings, url: str | None) -> None:
        """Compute and train what the studies need, on the service at `url`, or on that of the data folder, which is
        started where none runs."""
        for study in studies:
            self._compute(study)
        with_experiments = [study for study in studies if study.scales[self.scale]]
        if with_experiments and url:
            with Client(url, retries=4) as client:
                self._train(client, with_experiments)
        elif with_experiments:
            with own_service(settings) as (own_url, check), Client(own_url, retries=4) as client:
                self._train(client, with_experiments, check)

    def _compute(self, study: Study) -> None:
        """Find, in this process, what no training is needed for."""
        figures = registry.figures_of(study.name)
        if figures is None or figures.compute is None:
            return
        print(f"{study.name}: computing", flush=True)
        computed = {name: round_figures(value) for name, value in figures.compute().items()}
        import torch  # seconds that only this verb needs

        from worker.meters.environment import describe_environment  # loads torch

        machines = (machine(describe_environment(torch.device("cpu"))),)
        version = figures.version
        self._store(
            study,
            StudyResult(study=study.name, scale=self.scale, computed=computed, computed_by=version, machines=machines),
        )

    def _train(self, client: Client, studies: Sequence[Study], check: Callable[[], None] = lambda: None) -> None:
        """Run the experiments; all are submitted first, so that no core waits between two of them."""
        submitted = [(study, self.submit(client, study)) for study in studies]
        source = ResultSource(
            compare=client.compare,
            sweep=client.sweep,
            runs=lambda experiment_id: client.runs(experiment_id=experiment_id),
            observations=client.observations,
            fit=lambda ids, form: _fit(client, ids, form),
        )
        for study, experiments in submitted:
            for experiment_id in experiments.values():
                follow(client, experiment_id, check)
            figures = registry.figures_of(study.name)
            self._store(study, gather(study, figures, self.scale, experiments, source))

    def submit(self, client: Client, study: Study) -> dict[str, str]:
        """Return part → experiment: the newest existing one, with its paused, failed and cancelled runs restarted, or a
        new one."""
        earlier_ids = self._newest_experiments(client, study)
        ids: dict[str, str] = {}
        for part, spec in study.scales[self.scale].items():
            key, experiment_id = experiment_key(spec), earlier_ids.get(part)
            if experiment_id is None or identity(client.experiment(experiment_id).spec) != identity(spec):
                submission = client.submit(spec, key=key)
                experiment_id = submission.experiment.id
                runs = pluralize(spec.run_count(), "run")
                print(f"{study.name}: submitted {experiment_id} ({part}), {runs} at most", flush=True)
            else:
                print(f"{study.name}: using {experiment_id} ({part})", flush=True)
            # Whoever runs a study wants its answer: what was paused, cancelled or has failed goes on.
            states = client.experiment(experiment_id).counts.by_status
            if states.get(RunStatus.PAUSED):
                client.resume_experiment(experiment_id)
            if states.get(RunStatus.FAILED) or states.get(RunStatus.CANCELLED):
                client.retry_experiment(experiment_id)
            ids[part] = experiment_id
        return ids

    def _newest_experiments(self, client: Client, study: Study) -> dict[str, str | None]:
        """Return the newest experiment by part. A study of one's own may be registered here and not at a service
        elsewhere, which knows its experiments by their keys alone."""
        try:
            experiments = client.study(study.name).scale(self.scale).experiments
        except ClientError as error:
            if error.status == 404 and study.name not in registry.names():
                return {}
            raise
        return {experiment.part: experiment.experiment_id for experiment in experiments}

    def _store(self, study: Study, result: StudyResult) -> None:
        write_result(result_path(self.folder, study.name, self.scale), result)
        report = summary(study, self.folder)
        console().print(finding_view(report, report.scale(self.scale)))


def _fit(client: Client, ids: Sequence[str], form: FormName) -> FitReport | None:
    try:
        return client.fit(ids, form=form)
    except ClientError as error:
        if error.status == 409:
            return None  # these results have no law
        raise


def list_table(reports: Iterable[StudySummary]) -> RenderableType:
    """Return the table of studies, a line each."""
    lines = []
    for report in reports:
        best_finding = report.best()
        cells = ("no result yet", "", "")
        if best_finding is not None:
            scale, finding = best_finding
            cells = (finding.answer.value, finding.sentence, origin(report, report.scale(scale)))
        lines.append((report.name, report.question, *cells))
    return text_table(("study", "question", "the claim", "claim by claim", "from"), lines)


def study_view(report: StudySummary) -> RenderableType:
    """Return the view of a study."""
    scales = text_table(
        ("scale", "runs", "estimated", "experiments"),
        [
            (
                scale.scale.value,
                str(scale.runs),
                cost_words(scale),
                ", ".join(part.part for part in scale.experiments) or "computed without training",
            )
            for scale in report.scales
        ],
    )
    head = Group(
        Text(f"{report.title} ({report.name})", style="bold"),
        Text(report.question),
        Text(f"Claim ({report.source}): {report.claim}"),
        *(Text(f"Caveat: {caveat}") for caveat in report.caveats),
    )
    findings = [finding_view(report, scale) for scale in report.scales if scale.best() is not None]
    return Group(head, Padding(scales, (1, 0)), *(findings or [Text("no result yet")]))


def finding_view(report: StudySummary, scale: ScaleReport) -> RenderableType:
    """Return the verdict of a result on each claim."""
    finding = scale.best()
    assert finding is not None
    head = Text(f"{report.name}, {origin(report, scale)}: ", style="bold")
    head.append(finding.answer.value, style=STYLES[answer_tone(finding.answer)])
    lines: list[RenderableType] = [head, Text(plain(formats.sentence(finding.sentence)))]
    if finding.measures:
        rows = [[plain(formats.sentence(cell)) for cell in measure_cells(measure)] for measure in finding.measures]
        lines.append(Padding(text_table(MEASURE_HEADS, rows), (1, 0)))
    lines += [Text(f"Note: {plain(formats.sentence(note))}") for note in finding.notes]
    lines += [Text(f"Deviates: {plain(formats.sentence(sentence))}") for sentence in scale.deviations]
    lines += [Text(f"Measured on {plain(sentence)}", style="dim") for sentence in finding.machines]
    return Padding(Group(*lines), (1, 0, 0, 0))
