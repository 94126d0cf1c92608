"""Who is ranked on a board, where, and why others are not: submissions, their candidates, and sets of rules.

    verified bundles ─► one submission for each experiment, however many published it ─► disputed ones set apart
                     ─► the candidates of each workload, or of each set of rules, in their order, with the records

Losses of one workload stand side by side; a verdict is only ever about the candidates of one submission, which were
paired by seed and tuned alike. Pure, on what was verified.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from api.bundles.layout import BundleSource
from api.bundles.rules import PairedRecord, ProfileRecord, RuleSet, TargetRecord
from api.bundles.verification import Verification
from dashboards.text import formats
from orchestrator.analysis.benchmark_rules import MeasuredComparison, TargetTestChoice, algoperf_profile, target_test
from orchestrator.analysis.cells import comparisons
from orchestrator.analysis.profiles import trained_workload
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import CandidateRow, Comparison, Conclusion, ExperimentRecord, RunRecord
from worker.words import pluralize

SHORT = 12
"""Characters of a fingerprint that name a signer where many stand."""


@dataclass(frozen=True, kw_only=True)
class BoardSubmission:
    """One experiment that was believed, and who published it."""

    verified: Verification
    """Of one of its bundles, the newest."""
    publications: tuple[Verification, ...]
    """All of its bundles, each with its own provenance."""

    @property
    def experiment(self) -> ExperimentRecord:
        """What was published."""
        return self.verified.bundle.experiment

    @property
    def page(self) -> str:
        """The file of its page."""
        return f"{self.experiment.id}-{self.verified.signer[:SHORT]}.html"

    @property
    def signers(self) -> tuple[str, ...]:
        """Short, the newest publication's first."""
        return tuple(dict.fromkeys(each.signer[:SHORT] for each in self.publications))


@dataclass(frozen=True, kw_only=True)
class BoardEntry:
    """One candidate of one submission on a workload."""

    submission: BoardSubmission
    experiment: ExperimentRecord
    """That of the submission, or of a cell of it."""
    runs: Sequence[RunRecord]
    comparison: Comparison
    row: CandidateRow

    @property
    def spec(self) -> ComparisonSpec:
        """What was asked for."""
        found = self.experiment.spec
        assert isinstance(found, ComparisonSpec)
        return found

    @property
    def data_hash(self) -> str:
        """Of what its runs read: a data set of one name may be another one elsewhere. Empty where none has a result."""
        return next((run.result.data_hash for run in self.runs if run.result is not None), "")

    @property
    def verdict(self) -> str:
        """Of its own submission."""
        return formats.sentence(self.row.verdict)

    def loss(self) -> tuple[bool, float]:
        """To sort by: last without a finite loss, or where a run of it diverged or ran out of memory."""
        loss = self.row.val_loss
        return loss is None or self.row.lost_runs() > 0, loss.mean if loss else 0.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """A ranked candidate."""

    entry: BoardEntry
    place: int | None
    """Equal ones share it; None without a finite loss, or where a run at that rate diverged."""
    shown: str
    """What its place rests on, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class NotRanked:
    """A candidate, or a whole submission where `entry` is None, and the first rule that it does not keep."""

    submission: BoardSubmission
    entry: BoardEntry | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What was published on one workload, or by one set of rules."""

    rules: RuleSet | None
    experiment: ExperimentRecord | None
    """Any of the workload; None where several are ranked together."""
    places: tuple[Place, ...]
    records: tuple[Place, ...]
    """Who was first from when on, the newest first."""
    data_hash: str = ""
    """Of what all of them read."""
    not_ranked: tuple[NotRanked, ...] = ()


# One submission for each experiment


def submissions_of(
    verified: Mapping[Path, Verification],
) -> tuple[tuple[BoardSubmission, ...], dict[str, str]]:
    """Those that are on the board, the newest first, and why other bundles are not, by their path.

    Bundles of the same runs are one submission, whoever signed them. Where two bundles give one experiment or one
    training two histories, no reader can tell whose is true: neither is on the board.
    """
    by_content: dict[tuple[str, str], list[Path]] = {}
    for path, each in verified.items():
        by_content.setdefault((each.bundle.experiment.id, _content(each)), []).append(path)
    found, refused = [], dict[str, str]()
    for (experiment_id, content), paths in by_content.items():
        others = {key: rest for key, rest in by_content.items() if key != (experiment_id, content)}
        if (told := _dispute(experiment_id, verified[paths[0]], others, verified)) is not None:
            refused |= {str(path): told for path in paths}
            continue
        newest = sorted(paths, key=lambda path: -verified[path].bundle.document.provenance.written_at)
        publications = tuple(verified[path] for path in newest)
        found.append(BoardSubmission(verified=publications[0], publications=publications))
    return tuple(sorted(found, key=lambda each: each.experiment.created_at, reverse=True)), refused


def _dispute(
    experiment_id: str,
    mine: Verification,
    others: Mapping[tuple[str, str], Sequence[Path]],
    verified: Mapping[Path, Verification],
) -> str | None:
    trained = _trainings(mine)
    for (other_id, _), paths in others.items():
        other = verified[paths[0]]
        whose = f"{paths[0]}, signed by {other.signer[:SHORT]}"
        out = "; name the key that you trust with --signer"
        if other_id == experiment_id:
            return f"disputed: {whose}, has other runs of the experiment {experiment_id}{out}"
        if shared := trained.keys() & _trainings(other).keys():
            one = min(shared)
            return f"disputed: {trained[one]} is {_trainings(other)[one]} of {whose}, under another name{out}"
    return None


def _content(verified: Verification) -> str:
    """Equal for bundles of the same specification and runs; notes and labels may have been written since."""
    bundle, digest = verified.bundle, hashlib.sha256()
    digest.update(bundle.experiment.spec_hash.encode())
    for record in (*bundle.runs, *bundle.attempts):
        digest.update(record.model_dump_json(exclude={"labels", "notes"}).encode())
    for training in sorted(_trainings(verified)):
        digest.update(training.encode())
    return digest.hexdigest()


def _trainings(verified: Verification) -> dict[str, str]:
    """A digest of the times of each training's steps → the run's id: no two trainings take the same nanoseconds, step
    by step, though their losses may be equal to the bit."""
    found = {}
    for run_id, columns in verified.bundle.points.items():
        seconds = columns.values["step_seconds"][1:]
        if len(seconds) >= 2 and np.isfinite(seconds).all():  # others are alike by chance, or not measured
            found[hashlib.sha256(seconds.tobytes()).hexdigest()] = run_id
    return found


# Rankings


def entries_of(submission: BoardSubmission) -> list[BoardEntry]:
    """The candidates of a comparison, or of each cell of a scaling experiment; none of a sweep, whose trials have one
    seed."""
    bundle = submission.verified.bundle
    if bundle.experiment.spec.answer is AnswerKind.FINDINGS:
        return []
    cells = comparisons(bundle.experiment, bundle.runs)
    whole = bundle.document.comparison
    answers = [cell.comparison for cell in bundle.document.cells] or ([] if whole is None else [whole])
    return [
        BoardEntry(submission=submission, experiment=experiment, runs=runs, comparison=answer, row=row)
        for (experiment, runs), answer in zip(cells, answers, strict=True)
        for row in answer.rows
    ]


def rankings_by_workload(submissions: Iterable[BoardSubmission]) -> tuple[Ranking, ...]:
    """All that was published on each workload, by mean loss, whatever the rules."""
    groups: dict[tuple[str, str], list[BoardEntry]] = {}
    for entry in (entry for submission in submissions for entry in entries_of(submission)):
        key = trained_workload(entry.experiment.spec.workload), entry.data_hash
        groups.setdefault(key, []).append(entry)
    return tuple(
        Ranking(
            rules=None,
            experiment=entries[0].experiment,
            places=places_of(entries, 0.0),
            records=_records(places_of(entries, 0.0), 0.0),
            data_hash=data_hash,
        )
        for (_, data_hash), entries in groups.items()
    )


def rankings_by_rules(rules: RuleSet, submissions: Sequence[BoardSubmission]) -> tuple[Ranking, ...]:
    """Who is ranked by these rules, in a ranking for each data set that one name stood for; the first of them says why
    others are not."""
    kept: dict[str, list[BoardEntry]] = {}
    out: list[NotRanked] = []
    for submission in submissions:
        entries = entries_of(submission)
        if not entries:
            out.append(NotRanked(submission=submission, entry=None, reason="a sweep, whose trials have one seed each"))
        of_workload = [entry for entry in entries if rules.workload_mismatch(entry.experiment.spec.workload) is None]
        if entries and not of_workload:
            reason = rules.workload_mismatch(entries[0].experiment.spec.workload) or ""
            out.append(NotRanked(submission=submission, entry=None, reason=reason))
        for entry in of_workload:
            if (told := rules.reason_not_ranked(entry.spec, entry.comparison, entry.row)) is not None:
                out.append(NotRanked(submission=submission, entry=entry, reason=told))
                continue
            of_one = entry.data_hash if not isinstance(rules.record, ProfileRecord) else ""
            kept.setdefault(of_one, []).append(entry)
    found = [(_rank(rules, entries), entries, data) for data, entries in (kept or {"": []}).items()]
    out += [each for (_, _, unshown), _, _ in found for each in unshown]
    is_one = not isinstance(rules.record, ProfileRecord)
    return tuple(
        Ranking(
            rules=rules,
            experiment=entries[0].experiment if entries and is_one else None,
            places=places,
            records=records,
            data_hash=data_hash,
            not_ranked=() if number else tuple(out),
        )
        for number, ((places, records, _), entries, data_hash) in enumerate(found)
    )


def _rank(
    rules: RuleSet, entries: Sequence[BoardEntry]
) -> tuple[tuple[Place, ...], tuple[Place, ...], tuple[NotRanked, ...]]:
    """Places, records, and who is not shown after all."""
    match rules.record:
        case PairedRecord():
            places = places_of(entries, rules.noise_floor_nats)
            shown = [each for each in places if each.entry.row.conclusion in (Conclusion.BETTER, Conclusion.BASELINE)]
            return places, _records(shown, rules.noise_floor_nats), ()
        case TargetRecord() as record:
            places, out = _rank_by_target(entries, record)
            return places, _records(places, 0.0, lambda entry: entry.spec.workload.budget.steps), out
        case ProfileRecord() as record:
            places, out = _rank_by_profile(entries, record)
            return places, (), out


def places_of(entries: Sequence[BoardEntry], floor: float) -> tuple[Place, ...]:
    """By mean loss; a place counts those that are lower by more than the noise."""
    found = []
    for entry in sorted(entries, key=BoardEntry.loss):
        without, loss = entry.loss()
        lower = sum(not other.loss()[0] and other.loss()[1] < loss - floor for other in entries)
        place = None if without else 1 + lower
        found.append(Place(entry=entry, place=place, shown=entry.verdict))
    return tuple(found)


def _records(
    places: Iterable[Place], floor: float, measure: Callable[[BoardEntry], float] = lambda entry: entry.loss()[1]
) -> tuple[Place, ...]:
    """Who was lower than all before by more than the noise; the newest first."""
    found: list[Place] = []
    ranked = [each for each in places if each.place is not None]
    for place in sorted(ranked, key=lambda each: (each.entry.submission.experiment.ended_at or 0, measure(each.entry))):
        if not found or measure(place.entry) < measure(found[-1].entry) - floor:
            found.append(place)
    return tuple(reversed(found))


def _rank_by_target(
    entries: Sequence[BoardEntry], record: TargetRecord
) -> tuple[tuple[Place, ...], tuple[NotRanked, ...]]:
    """Those that are shown to be below the target, the fewest steps first."""
    shown: list[tuple[int, float, BoardEntry, str]] = []
    out = []
    for entry in entries:
        choice = TargetTestChoice(target=record.target, margin=record.margin)
        tested = target_test(entry.experiment, entry.runs, choice)
        row = next(each for each in tested.rows if each.candidate == entry.row.candidate)
        if row.is_shown and row.score is not None:
            shown.append((entry.spec.workload.budget.steps, -row.score, entry, row.verdict))
        else:
            out.append(NotRanked(submission=entry.submission, entry=entry, reason=row.verdict))
    ranked = sorted(shown, key=lambda each: each[:2])
    places = tuple(
        Place(
            entry=entry,
            place=1 + sum(other[0] < steps for other in ranked),
            shown=f"{formats.count(steps)} steps. {formats.sentence(verdict)}",
        )
        for steps, _, entry, verdict in ranked
    )
    return places, tuple(out)


def _rank_by_profile(
    entries: Sequence[BoardEntry], record: ProfileRecord
) -> tuple[tuple[Place, ...], tuple[NotRanked, ...]]:
    """By score over all workloads of the board; a name stands for one way to train, that of the first that had it."""
    alike: dict[str, BoardEntry] = {}
    out, measured = [], dict[int, MeasuredComparison]()
    for entry in entries:
        first = alike.setdefault(entry.row.candidate, entry)
        if _training(entry) != _training(first):
            reason = f"another candidate is called {entry.row.candidate}, in {first.submission.experiment.name}"
            out.append(NotRanked(submission=entry.submission, entry=entry, reason=reason))
            continue
        kept = measured.get(id(entry.comparison))
        if kept is None:
            ended = [run.id for run in entry.runs if run.result is not None]
            curves = BundleSource(entry.submission.verified.bundle).curves(ended)
            baseline = tuple(row for row in entry.comparison.rows if row.is_baseline)  # whose loss is the target
            kept = MeasuredComparison(
                workload=entry.experiment.spec.workload,
                comparison=entry.comparison.model_copy(update={"rows": baseline}),
                runs=entry.runs,
                curves=curves,
            )
        if not entry.row.is_baseline:
            rows = (*kept.comparison.rows, entry.row)
            kept = replace(kept, comparison=kept.comparison.model_copy(update={"rows": rows}))
        measured[id(entry.comparison)] = kept
    workloads = len({trained_workload(each.workload) for each in measured.values()})
    if workloads < record.least_workloads:
        have = f"the board has {pluralize(workloads, 'such workload')}"
        few = f"{have}, and {record.least_workloads} are asked for"
        out += [NotRanked(submission=each.submission, entry=each, reason=few) for each in alike.values()]
        return (), tuple(out)
    report = algoperf_profile([*measured.values()], everybody=True)
    scores = {row.candidate: row for row in report.rows if row.candidate in alike}
    places = []
    for name, row in scores.items():
        place = 1 + sum(other.score_tokens > row.score_tokens for other in scores.values())
        shown = (
            f"{row.score_tokens:.4f} by tokens, {row.score_device_hours:.4f} by device-hours, over {workloads} "
            f"workloads, {sum(time.tokens is not None for time in row.times)} of which it reached."
        )
        places.append(Place(entry=alike[name], place=place, shown=shown))
    return tuple(places), tuple(out)


def _training(entry: BoardEntry) -> str:
    """What a candidate does, apart from its rates, which are tuned."""
    return entry.spec.candidate(entry.row.candidate).model_dump_json(exclude={"learning_rates"})
