"""Lines of spools come in any number of times, torn or not, and make the same runs, on both databases."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
import zstandard
from pydantic import ValidationError

from api.client import own_runs
from api.client.spool import RunSpool, batches
from orchestrator.annotations import LabelChange
from orchestrator.errors import ConflictError, DamagedError, NotFoundError
from orchestrator.external_runs import LONGEST_SUMMARY, ExternalState, LinesBatch, RunHeader, SpoolLine
from orchestrator.sessions import SourcePoint
from orchestrator.store.admin.maintenance import faults
from orchestrator.store.database import Database
from orchestrator.store.external_runs import FULL_CHARACTERS, ROWS_AT_ONCE, ExternalRuns
from orchestrator.store.tables import external_chunks, external_experiments, external_runs
from tests.factories.external_runs import BEGAN, batch, header
from tests.factories.statements import counted_work
from tests.twins.sessions import joined_values


@pytest.fixture
def external(database: Database) -> ExternalRuns:
    return ExternalRuns(database, most_runs=20)


def test_the_same_lines_again_change_nothing_and_a_gap_is_not_taken(external: ExternalRuns) -> None:
    first, second = batch({0: 5.0, 10: 4.0}), batch({20: 3.0, 30: 2.0}, first_line=2)
    assert external.append("one", second).lines == 0, "the lines before it are not there"
    assert external.append("one", first).lines == 2
    assert external.append("one", second).lines == 4
    original, series = external.run("one"), external.series("one")
    for repeat in (first, second, batch({10: 4.0, 20: 3.0}, first_line=1), batch({}, first_line=0)):
        assert external.append("one", repeat).lines == 4
    assert external.run("one") == original and external.series("one") == series
    assert series.steps == {"val_loss": (0, 10, 20, 30)} and series.values == {"val_loss": (5.0, 4.0, 3.0, 2.0)}
    assert (original.metrics["val_loss"].last, original.metrics["val_loss"].last_step, original.lines) == (2.0, 30, 4)
    assert original.origin == "external" and original.state is ExternalState.RUNNING


def test_a_damaged_row_fails_alone(external: ExternalRuns, database: Database) -> None:
    for name in ("bad", "good"):
        external.append(name, batch({0: 3.0}, run=header(experiment=name)))
    broken = {"config": "{", "tags": "null", "metrics": '{"a": 1}', "state": "nonsense"}
    with database.writing() as connection:
        connection.execute(sa.update(external_runs).where(external_runs.c.id == "bad").values(broken))
    (run,) = external.runs("bad")
    assert (run.config, run.tags, run.metrics, run.state) == ({}, (), {}, ExternalState.FAILED)
    assert all(f"the stored {name} of external run bad" in (run.damaged or "") for name in broken)
    with pytest.raises(DamagedError, match=r"the stored metrics of external run bad .* delete the run"):
        external.append("bad", batch({1: 2.0}, first_line=1, run=header(experiment="bad")))
    assert external.append("good", batch({1: 2.0}, first_line=1, run=header(experiment="good"))).lines == 2
    text = " ".join(faults(database))
    assert all(f"external_runs bad: the stored {name}" in text for name in broken)


def test_many_who_send_the_same_spool_at_once_make_one_run(external: ExternalRuns) -> None:
    pieces = [batch({step: 5.0 - step / 100 for step in range(first, 50)}, first_line=first) for first in (0, 10, 40)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda piece: external.append("one", piece), pieces * 4))
    external.append("one", pieces[0])
    (record,) = external.runs("a study")
    assert record.lines == 50 and len(external.series("one").steps["val_loss"]) == 50


def test_a_run_that_goes_on_from_a_checkpoint_leaves_out_what_was_beyond_it(external: ExternalRuns) -> None:
    """It logs again from there, and may come before the spool of the process that was killed."""
    later = batch({20: 2.9, 30: 2.5}, part="second", run=header(started_at=BEGAN + 100))
    later = later.model_copy(
        update={"lines": tuple(line and line.model_copy(update={"at": line.at + 100}) for line in later.lines)}
    )
    ending = LinesBatch(
        run=later.run, part="second", first_line=2, lines=(SpoolLine(at=BEGAN + 200, state=ExternalState.FINISHED),)
    )
    for piece in (later, ending, batch({10: 4.0, 20: 3.5, 25: 3.3})):
        external.append("one", piece)
    series = external.series("one")
    assert dict(zip(series.steps["val_loss"], series.values["val_loss"], strict=True)) == {
        10: 4.0, 20: 2.9, 30: 2.5,
    }  # fmt: skip
    record = external.run("one")
    assert record.state is ExternalState.FINISHED and record.metrics["val_loss"].left_out == 1


def sessions_of(random: Random) -> list[list[SpoolLine]]:
    """Sessions of one run: some go on, some go back, also within one process, some overlap in time with the one
    before."""
    sessions, now, step = [], BEGAN, 0
    for _ in range(random.choice([1, 1, 2, 3, 5])):
        began = now = now + random.choice([-3.0, 1.0, 50.0])
        step = max(step + random.randint(-12, 6), 0)
        lines = [SpoolLine(at=began, state=ExternalState.RUNNING)]
        for _ in range(random.randint(0, 12)):
            now, step = now + 1.0, max(step + random.choice([1, 1, 1, -2]), 0)
            lines.append(SpoolLine(at=now, step=step, metrics={random.choice("ab"): random.random()}))
        sessions.append(lines)
    return sessions


def slow_series(sessions: list[list[SpoolLine]]) -> dict[str, dict[int, float]]:
    """Return the values of the training by metric and step."""
    points = [
        [SourcePoint(at=line.at, step=line.step, metrics=line.metrics) for line in lines if line.step is not None]
        for lines in sessions
    ]
    values_by_metric: dict[str, dict[int, float]] = {}
    for (step, name), value in joined_values(points, is_one_training=True).items():
        values_by_metric.setdefault(name, {})[step] = value
    return values_by_metric


def test_an_evaluation_of_checkpoints_after_the_training_leaves_the_training_as_it_is(external: ExternalRuns) -> None:
    lines = tuple(SpoolLine(at=BEGAN + step, step=step, metrics={"train_loss": 2.0}) for step in (10, 20))
    external.append("one", LinesBatch(run=header(), part="training", lines=lines))
    external.append("one", batch({10: 3.0, 20: 2.5}, part="evaluation", run=header(started_at=BEGAN + 100)))
    later = tuple(SpoolLine(at=BEGAN + 200 + step, step=step, metrics={"val_loss": 2.0}) for step in (10, 20))
    external.append("one", LinesBatch(run=header(started_at=BEGAN + 200), part="evaluation-2", lines=later))
    assert external.series("one").steps == {"train_loss": (10, 20), "val_loss": (10, 20)}
    assert external.run("one").metrics["train_loss"].left_out == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_the_client_logs_in_any_sessions_and_sends_in_any_pieces_makes_the_same_run(
    external: ExternalRuns, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    sessions = sessions_of(random)
    pieces: list[list[LinesBatch]] = []
    for lines in sessions:
        clock = iter([line.at for line in lines[:1] * 2 + lines[1:]])  # a spool says first that its run runs
        monkeypatch.setattr(own_runs, "time", SimpleNamespace(time=partial(next, clock)))
        run = own_runs.start_run(experiment="a study", candidate="muon", lr=0.002, seed=1, id="one", folder=tmp_path)
        for previous_line, line in pairwise(lines):
            is_next = previous_line.step is not None and line.step == previous_line.step + 1
            run.log(line.metrics, step=None if is_next else line.step)
        assert run.path is not None
        spool = RunSpool(run.path)
        rows = list(spool.lines())
        assert len(rows) == len(lines)
        middle = random.randint(0, len(rows))
        pieces.append(
            [*batches(spool.run, spool.part, rows[:middle]), *batches(spool.run, spool.part, rows[middle:], middle)]
        )
    while any(pieces):
        waiting = random.choice([piece for piece in pieces if piece])
        external.append("one", waiting.pop(0))
    series, copy = external.series("one"), external.run("one")
    curves = {name: dict(zip(steps, series.values[name], strict=True)) for name, steps in series.steps.items()}
    assert curves == slow_series(sessions)
    summed_up = {name: (stat.first_step, stat.first, stat.last_step, stat.last) for name, stat in copy.metrics.items()}
    assert summed_up == {
        name: (min(values), values[min(values)], max(values), values[max(values)]) for name, values in curves.items()
    }


def test_what_is_imported_again_corrects_and_leaves_nothing_out(external: ExternalRuns) -> None:
    run = header(source="csv")
    external.append("one", batch({10: 4.0, 20: 3.0}, run=run))
    correction = SpoolLine(at=BEGAN + 99, step=10, metrics={"val_loss": 3.9})
    external.append("one", LinesBatch(run=run, part="second", lines=(correction,)))
    assert external.series("one").values == {"val_loss": (3.9, 3.0)}
    assert external.run("one").metrics["val_loss"].last_step == 20


def test_torn_lines_and_figures_that_are_not_finite_are_kept_as_such(external: ExternalRuns) -> None:
    lines = (None, *batch({0: math.inf, 5: 3.0, 10: math.nan}).lines)
    external.append("one", LinesBatch(run=header(), part="first", lines=lines))
    record, series = external.run("one"), external.series("one")
    assert (record.torn_lines, record.lines) == (1, 4)
    assert (record.metrics["val_loss"].first, record.metrics["val_loss"].last) == (None, None)
    assert series.values["val_loss"][:2] == (math.inf, 3.0) and math.isnan(series.values["val_loss"][2])


@pytest.mark.parametrize("field", [{"experiment": "another"}, {"candidate": "lion"}, {"lr": 1.0}, {"seed": 2}])
def test_a_run_stays_what_it_was_said_to_be(external: ExternalRuns, field: dict[str, object]) -> None:
    external.append("one", batch({0: 1.0}))
    fields = {"candidate": "muon"} | field
    with pytest.raises(ConflictError, match="external run one has another"):
        external.append("one", batch({1: 0.5}, part="second", run=header(**fields)))  # type: ignore[arg-type]
    assert [experiment.name for experiment in external.experiments()] == ["a study"], "what was refused left nothing"


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ('{"a": "\\ud800"}', "half of a surrogate pair"),
        ('{"\\udfff": 1}', "half of a surrogate pair"),
        ("{" + '"a": [{' * 20 + '"a": 1' + "}]" * 20 + "}", "nested at most 32 deep"),
        (json.dumps({"a": "x" * LONGEST_SUMMARY}), "at most 524,288 characters as JSON, not 524,297"),
    ],
)
def test_a_configuration_that_no_answer_could_hold_is_refused(config: str, fault: str) -> None:
    """Kept, it would make every list of its experiment's runs fail."""
    sent = {"experiment": "a study", "candidate": "muon", "config": json.loads(config)}
    with pytest.raises(ValidationError, match=fault):
        RunHeader.model_validate(sent)


@pytest.mark.parametrize("value", ["true", '"1.5"', '"x"', "null", "[1]", "1" + "0" * 400])
def test_a_metric_is_a_number_or_the_word_for_one_that_is_not_finite(value: str) -> None:
    line = '{"at": 1, "step": 0, "metrics": {"loss": %s}}'
    with pytest.raises(ValidationError, match="should be a valid number"):
        SpoolLine.model_validate_json(line % value)
    told = [SpoolLine.model_validate_json(line % word).metrics["loss"] for word in ("2", '"-inf"', '"Infinity"')]
    assert told == [2.0, -math.inf, math.inf]


def test_experiments_are_listed_and_found_by_id_and_name(external: ExternalRuns) -> None:
    assert external.experiments() == ()
    for number in range(2):
        external.append(f"run-{number}", batch({0: 1.0}, run=header(f"candidate {number}")), by="key")
    external.append("other", batch({0: 1.0}, run=header(experiment="newer")))
    newer, study = external.experiments()
    assert (newer.name, study.name, study.runs, study.key_id) == ("newer", "a study", 2, "key")
    assert study.by_state == {ExternalState.RUNNING: 2} and set(study.candidates) == {"candidate 0", "candidate 1"}
    assert external.experiment(study.id) == external.experiment("a study") == study
    for missing in ("none", "\x00"):
        with pytest.raises(NotFoundError, match="no experiment of external runs"):
            external.experiment(missing)
        with pytest.raises(NotFoundError, match="no external run"):
            external.series(missing)


def test_what_is_deleted_is_gone_and_comes_back_when_it_is_sent_again(
    external: ExternalRuns, database: Database
) -> None:
    for number in range(3):
        external.append(f"run-{number}", batch({0: 1.0, 10: 0.5}))
    assert external.delete_run("run-0").id == "run-0"
    with pytest.raises(NotFoundError):
        external.delete_run("run-0")
    assert [run.id for run in external.runs("a study")] == ["run-1", "run-2"]
    record = external.delete_experiment("a study")
    assert record.runs == 2 and external.experiments() == ()
    with pytest.raises(NotFoundError):
        external.delete_experiment(record.id)
    with database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(external_chunks)).scalar_one() == 0
    assert external.append("run-1", batch({10: 0.5}, first_line=1)).lines == 0, "the sender is told to begin anew"
    assert external.append("run-1", batch({0: 1.0, 10: 0.5})).lines == 2


def test_there_is_room_for_so_many_runs_and_for_more_of_those_that_are_there(external: ExternalRuns) -> None:
    for number in range(20):
        external.append(f"run-{number}", batch({0: 1.0}))
    with pytest.raises(ConflictError, match="no room for external run one-more: 20 of 20 are here"):
        external.append("one-more", batch({0: 1.0}, run=header(experiment="another")))
    assert external.append("run-3", batch({0: 1.0, 1: 0.5})).lines == 2 and len(external.experiments()) == 1
    external.delete_run("run-3")
    assert external.append("one-more", batch({0: 1.0})).lines == 1


@pytest.mark.parametrize("what", ["config", "tags", "metrics"])
def test_many_requests_make_a_row_no_longer_than_it_may_be(
    external: ExternalRuns, database: Database, what: str
) -> None:
    """Each is small; every further one would rewrite what all have brought."""

    def piece(number: int) -> LinesBatch:
        names = [f"{number}-{index}-{'x' * 110}" for index in range(100)]
        settings = {"config": {"config": dict.fromkeys(names, 1)}, "tags": {"tags": names}}.get(what, {})
        part = batch({0: 1.0}, part=f"part-{number}", run=header(**settings))  # type: ignore[arg-type]
        lines = (SpoolLine(at=BEGAN, step=0, metrics=dict.fromkeys(names if what == "metrics" else ["loss"], 1.0)),)
        return part.model_copy(update={"lines": lines})

    def send(count: int) -> None:
        for number in range(count):
            external.append("one", piece(number))

    send(5)
    with pytest.raises(ConflictError, match=f"external run one would have .*{what} .*, of at most 524,288"):
        send(100)
    with database.reading() as connection:
        (row,) = connection.execute(sa.select(external_runs))
    assert len(row.config) + len(row.tags) + len(row.metrics) <= LONGEST_SUMMARY and row.lines > 5
    assert external.append("one", piece(0)).lines == 1, "what came before may come again"


def test_a_batch_rewrites_no_more_than_one_chunk_of_the_lines_before(
    external: ExternalRuns, database: Database
) -> None:
    metrics = {f"{index}-{'x' * 100}": 1.0 for index in range(200)}
    lines = [SpoolLine(at=BEGAN + step, step=step, metrics=metrics) for step in range(60)]
    longest = len(lines[-1].model_dump_json())
    for number, line in enumerate(lines):
        external.append("one", LinesBatch(run=header(), part="first", first_line=number, lines=(line,)))
    with database.reading() as connection:
        chunks = connection.execute(sa.select(external_chunks.c.data)).scalars().all()
    assert all(len(zstandard.decompress(data)) < FULL_CHARACTERS + longest for data in chunks)
    assert all(steps == tuple(range(60)) for steps in external.series("one").steps.values())


def test_an_experiment_goes_with_its_last_run(external: ExternalRuns) -> None:
    """Else experiments would be made without end: only runs are counted."""
    external.append("one", batch({0: 1.0}))
    external.append("two", batch({0: 1.0}))
    external.append("other", batch({0: 1.0}, run=header(experiment="another")))
    external.delete_run("one")
    assert [experiment.runs for experiment in external.experiments()] == [1, 1]
    external.delete_run("two")
    assert [experiment.name for experiment in external.experiments()] == ["another"]
    assert external.append("two", batch({0: 1.0})).lines == 1


def test_a_deletion_holds_others_up_for_a_few_rows_at_a_time(external: ExternalRuns, database: Database) -> None:
    external.append("run-0", batch({0: 1.0}))
    external.append("other", batch({0: 1.0}, run=header(experiment="another")))
    with database.writing() as connection:
        (run,) = connection.execute(sa.select(external_runs).where(external_runs.c.id == "run-0")).mappings()
        (chunk,) = connection.execute(sa.select(external_chunks).where(external_chunks.c.run_id == "run-0")).mappings()
        ids = [f"run-{number}" for number in range(1, 700)]
        connection.execute(sa.insert(external_runs), [{**run, "id": id} for id in ids])
        connection.execute(sa.insert(external_chunks), [{**chunk, "run_id": id} for id in ids])
        parts = [f"part-{number}" for number in range(700)]
        connection.execute(sa.insert(external_chunks), [{**chunk, "part": part} for part in parts])
    with counted_work() as work:
        external.delete_run("run-0")
        assert len(external.runs("a study")) == 699
        external.delete_experiment("a study")
    assert sum(work.changed_rows) >= 2 * 700 + 701
    assert max(work.changed_rows) < ROWS_AT_ONCE + 5, "with the experiment and the count of changes"
    assert [experiment.name for experiment in external.experiments()] == ["another"]
    assert external.series("other").values == {"val_loss": (1.0,)}


def test_experiments_and_runs_come_in_pages(external: ExternalRuns, database: Database) -> None:
    with database.writing() as connection:
        rows = [{"id": f"id-{number:04}", "name": f"{number}", "created_at": BEGAN} for number in range(1_200)]
        connection.execute(sa.insert(external_experiments), rows)
    for number in range(5):
        external.append(f"run-{number}", batch({0: 1.0}, run=header(experiment="7")))
    external.change_labels("7", LabelChange(add=("paper",)))
    external.change_labels("9", LabelChange(add=("paper",)))
    with counted_work() as work:
        first = external.experiments(limit=100)
        second = external.experiments(limit=100, before=first[-1].id)
    assert [experiment.name for experiment in (*first, *second)] == [str(number) for number in range(1_199, 999, -1)]
    assert max(work.parameters) <= 101
    assert [experiment.name for experiment in external.experiments(limit=1, labels=("paper",))] == ["9"]
    assert [experiment.name for experiment in external.experiments(limit=9, labels=("paper",), before="id-0009")] == [
        "7"
    ]
    with pytest.raises(NotFoundError, match="begin with the first page"):
        external.experiments(before="gone")
    page, everything = external.runs("7", limit=2), external.runs("7")
    assert page + external.runs("7", limit=9, after=page[-1].id) == everything and len(everything) == 5


def test_series_are_those_that_are_asked_for_and_no_more_than_an_answer_may_have(external: ExternalRuns) -> None:
    metrics = {"val_loss": 1.0, "lr": 0.1, "tokens": 7.0}
    lines = tuple(SpoolLine(at=BEGAN + step, step=step, metrics=metrics) for step in range(10))
    external.append("one", LinesBatch(run=header(), part="first", lines=lines))
    with pytest.raises(
        ConflictError, match=r"has 30 values of these 3 metrics, and one answer at most 20; ask for few"
    ):
        external.series("one", most_values=20)
    series = external.series("one", ("lr", "val_loss", "none"), most_values=20)
    assert series.steps == {"lr": tuple(range(10)), "val_loss": tuple(range(10))}
    assert set(external.series("one", most_values=30).values) == set(metrics)


def test_a_damaged_chunk_is_found_and_named(external: ExternalRuns, database: Database) -> None:
    external.append("one", batch({0: 1.0}))
    assert faults(database) == ()
    with database.writing() as connection:
        connection.execute(sa.update(external_chunks).values(data=b"nonsense"))
    assert faults(database) == (
        "external_chunks one first 0: the stored lines is not what was written (its checksum is another)",
    )
    with pytest.raises(DamagedError):
        external.series("one")
    assert external.run("one").metrics["val_loss"].last == 1.0
    assert external.append("one", batch({1: 0.5}, first_line=1)).lines == 2, "what comes later is kept all the same"


def test_values_of_processes_that_log_as_one_run_at_once_and_differ_are_counted(external: ExternalRuns) -> None:
    for part, gain in (("first", 0.0), ("second", 0.0), ("third", 0.5)):
        external.append("one", batch({10: 4.0, 20: 3.0 - gain, 30: 2.0 - gain}, part=part))
    left_out = external.run("one").metrics["val_loss"].left_out
    assert left_out == 2, "at two steps the third process differs from the others"
