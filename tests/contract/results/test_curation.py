"""Labels, notes, deletion and clones, on SQLite and PostgreSQL: what is written, what is hidden, what comes back."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from pydantic import ValidationError
from structlog.testing import capture_logs

from orchestrator.annotations import AnnotationChange, LabelChange
from orchestrator.errors import ConflictError, DeletedError, IdempotencyError, NotFoundError
from orchestrator.jobs import RunAction, RunStatus
from orchestrator.keys import KeyRequest, Scope
from orchestrator.kinds.comparison import ComparisonSpec, Sequential
from orchestrator.kinds.tuning import Tuning
from orchestrator.retention import removal
from orchestrator.retention.checkpoints import prune
from orchestrator.retention.removal import remove_deleted
from orchestrator.store.admin import deletion
from orchestrator.store.admin.maintenance import faults
from orchestrator.store.outgoing.exports import ExportOutbox
from orchestrator.store.tables import experiments, metadata, removed, runs
from tests.contract.conftest import Store
from tests.contract.queue.test_races import together
from tests.factories.external_runs import batch as told_lines
from tests.factories.statements import counted_work
from tests.factories.stores import batch, comparison_spec, result
from worker.records.protocol import CheckpointNotice

DAY = 86_400.0


def submit(store: Store, key: str | None = None, name: str = "a comparison") -> str:
    return store.experiments.submit(comparison_spec(name=name, seeds=(1,)), key).experiment.id


def ended(store: Store, name: str = "a comparison", by: str | None = None) -> str:
    """An experiment of one run that has succeeded, with something in every table."""
    experiment = store.experiments.submit(comparison_spec(name=name, seeds=(1,)), by=by).experiment
    lease = store.start()
    store.attempts.append_points(lease.run_id, 1, lease.token, batch(0, range(5)))
    notice = CheckpointNotice(step=3, path="c", size_bytes=9, sha256="s")
    store.attempts.checkpoint(lease.run_id, 1, lease.token, notice)
    store.attempts.finish(lease.run_id, 1, lease.token, result())
    return experiment.id


def later(store: Store, seconds: float) -> None:
    """Days at once: nothing of it is at work, so that nobody reaps."""
    store.database.clock_offset_seconds += seconds


def names(store: Store, **how: object) -> list[str]:
    return [experiment.name for experiment in store.experiments.page(**how)]  # type: ignore[arg-type]


def rows(store: Store) -> dict[str, int]:
    """Return the number of rows of each table that has any."""
    with store.database.reading() as connection:
        counts = {
            table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }
    return {name: count for name, count in counts.items() if count and name != "change_counters"}


def test_labels_and_note_are_kept_beside_the_specification(store: Store) -> None:
    experiment_id = submit(store)
    before = store.experiments.get(experiment_id)
    change = AnnotationChange(labels=("zebra", " Ähre", "paper", "paper"), note="two\r\nlines\t.  ")
    after = store.experiments.annotate(experiment_id, change)
    assert after.labels == ("paper", "zebra", "Ähre")
    assert after.note is not None
    assert (after.note.text, after.note.edited_by, after.note.editor) == ("two\nlines\t.", None, None)
    assert (after.spec_hash, after.spec, after.revision) == (before.spec_hash, before.spec, 1)
    assert store.experiments.page() == (after,)
    unlabelled = store.experiments.annotate(experiment_id, AnnotationChange(labels=()))
    assert (unlabelled.labels, unlabelled.note) == ((), after.note)
    assert store.experiments.annotate(experiment_id, AnnotationChange(note="")).note is None


def test_what_is_wanted_already_changes_nothing(store: Store) -> None:
    experiment_id = submit(store)
    change = AnnotationChange(labels=("paper",), note="words")
    first, version = store.experiments.annotate(experiment_id, change), store.monitor.version()
    later(store, 10)
    assert store.experiments.annotate(experiment_id, change) == first
    assert store.experiments.annotate(experiment_id, AnnotationChange()) == first
    assert store.monitor.version() == version


def test_who_edited_a_note_last_is_known_by_their_keys_label(store: Store) -> None:
    experiment_id = submit(store)
    key = store.keyring.create(KeyRequest(label="Ada", scope=Scope.SUBMITTER)).key
    note = store.experiments.annotate(experiment_id, AnnotationChange(note="words"), by=key.id).note
    assert note is not None
    assert (note.edited_by, note.editor) == (key.id, "Ada")


def test_every_change_is_seen_by_watchers(store: Store) -> None:
    experiment_id = ended(store)
    for act in (
        lambda: store.experiments.annotate(experiment_id, AnnotationChange(labels=("a",))),
        lambda: store.experiments.annotate(experiment_id, AnnotationChange(note="b")),
    ):
        all_before, one_before = store.monitor.version(), store.experiments.version(experiment_id)
        act()
        assert store.monitor.version() > all_before
        assert store.experiments.version(experiment_id) > one_before
    version = store.monitor.version()
    store.experiments.delete(experiment_id)
    assert store.monitor.version() > version


def test_experiments_of_any_source_are_found(store: Store) -> None:
    """Labelled by several at once, in one transaction each, a logged one may be named; a deleted one is none of
    another."""
    measured = submit(store)
    store.external_runs.append("one", told_lines({0: 1.0}))
    logged_id = store.external_runs.experiment("a study").id
    assert store.experiments.find(measured).id == measured
    for alias in (logged_id, "a study"):
        store.external_runs.change_labels(alias, LabelChange(remove=("a", "b", "c", "d")))
        with ThreadPoolExecutor(4) as pool:
            changes = (LabelChange(add=(label,)) for label in "abcd")
            list(pool.map(lambda change, alias=alias: store.external_runs.change_labels(alias, change), changes))
        record = store.experiments.find(alias)
        assert (record.id, record.labels) == (logged_id, ("a", "b", "c", "d"))
        with pytest.raises(ConflictError, match="24 labels, of at most 20"):
            store.external_runs.change_labels(alias, LabelChange(add=tuple(map(str, range(20)))))
        assert store.experiments.find(alias).labels == ("a", "b", "c", "d")
    for missing in ("none", "another study"):
        with pytest.raises(NotFoundError, match="there is no experiment"):
            store.experiments.find(missing)
    store.runs.apply(store.runs.page(experiment_id=measured)[0].id, RunAction.CANCEL)
    store.experiments.delete(measured)
    with pytest.raises(DeletedError):
        store.experiments.find(measured)


def test_experiments_are_listed_by_their_labels_page_by_page(store: Store) -> None:
    ids = [submit(store, name=f"number {number}") for number in range(5)]
    for number, experiment_id in enumerate(ids):
        label_set = ("all", "even") if number % 2 == 0 else ("all",)
        store.experiments.annotate(experiment_id, AnnotationChange(labels=label_set))
    assert names(store, labels=("even",)) == ["number 4", "number 2", "number 0"]
    assert names(store, labels=("even", "all"), limit=2) == ["number 4", "number 2"]
    assert names(store, labels=("even", "all"), before=ids[2]) == ["number 0"]
    assert names(store, labels=("Even",)) == names(store, labels=("even", "nothing\x00")) == []


def test_a_deleted_experiment_is_nowhere_and_comes_back_as_it_was(store: Store) -> None:
    other_id, experiment_id = ended(store, "other"), ended(store)
    run_id = f"{experiment_id}-0000"
    original, runs_before = store.experiments.get(experiment_id), store.runs.page()
    deleted = store.experiments.delete(experiment_id)
    assert deleted.deleted_at is not None
    assert deleted.undo_until == pytest.approx(deleted.deleted_at + 7 * DAY)
    assert store.experiments.delete(experiment_id) == deleted
    assert names(store) == ["other"]
    assert store.experiments.page(deleted=True) == (deleted,)
    assert [run.experiment_id for run in store.runs.page()] == [other_id]
    lookups: tuple[Callable[[], object], ...] = (
        lambda: store.experiments.get(experiment_id),
        lambda: store.experiments.version(experiment_id),
        lambda: store.analysis.compare(experiment_id),
        lambda: store.runs.page(experiment_id=experiment_id),
        lambda: store.runs.get(run_id),
        lambda: store.runs.points(run_id),
        lambda: store.runs.events(run_id),
        lambda: store.experiments.annotate(experiment_id, AnnotationChange(note="?")),
        lambda: store.experiments.clone(experiment_id),
        lambda: store.experiments.apply(experiment_id, RunAction.RETRY),
        lambda: store.runs.apply(run_id, RunAction.RETRY),
    )
    for look in lookups:
        with pytest.raises(DeletedError, match="--undo"):
            look()
    assert store.monitor.activity().device_seconds_today < sum(run.device_seconds for run in runs_before)
    restored = store.experiments.restore(experiment_id)
    assert restored == original.model_copy(update={"revision": 2})
    assert store.experiments.restore(experiment_id) == restored
    assert store.runs.page() == runs_before


def test_what_may_still_run_is_not_deleted(store: Store) -> None:
    experiment_id = submit(store)
    for act in (lambda: None, lambda: store.experiments.apply(experiment_id, RunAction.PAUSE)):
        act()
        with pytest.raises(ConflictError, match=f"1 run of experiment {experiment_id} has not ended; cancel it first"):
            store.experiments.delete(experiment_id)
    store.experiments.apply(experiment_id, RunAction.CANCEL)
    store.experiments.delete(experiment_id)
    with pytest.raises(NotFoundError):
        store.experiments.delete("nothing")
    with pytest.raises(NotFoundError):
        store.experiments.restore("nothing")


def unless_refused(call: Callable[[], object]) -> None:
    with suppress(ConflictError, DeletedError):
        call()


def test_a_run_that_is_retried_while_its_experiment_is_deleted_is_lost_to_neither(store: Store) -> None:
    """Either the retry comes first and the deletion is refused, or the other way round."""
    for _ in range(5):
        experiment_id = submit(store)
        store.experiments.apply(experiment_id, RunAction.CANCEL)
        run_id = f"{experiment_id}-0000"
        acts = (partial(store.runs.apply, run_id, RunAction.RETRY), partial(store.experiments.delete, experiment_id))
        together(*[partial(unless_refused, act) for act in acts])
        with store.database.reading() as connection:
            query = sa.select(runs.c.status, experiments.c.deleted_at).join(experiments)
            status, deleted_at = connection.execute(query.where(runs.c.id == run_id)).one()
        assert (status is RunStatus.QUEUED) == (deleted_at is None)


def test_an_idempotency_key_stays_taken_until_its_experiment_is_removed(store: Store, tmp_path: Path) -> None:
    experiment_id = submit(store, key="once")
    store.experiments.apply(experiment_id, RunAction.CANCEL)
    store.experiments.delete(experiment_id)
    assert store.experiments.find_by_key("once") is None
    with pytest.raises(IdempotencyError, match=f"experiment {experiment_id}, which was deleted"):
        submit(store, key="once")
    later(store, 8 * DAY)
    assert remove_deleted(store.database, tmp_path / "runs") == (experiment_id,)
    assert submit(store, key="once") != experiment_id


def test_mlflow_is_told_nothing_of_a_deleted_experiment_until_it_is_restored(store: Store) -> None:
    experiment_id = ended(store)
    outbox = ExportOutbox(store.database)
    entries = outbox.due()
    assert len(entries) == store.monitor.metrics().export_backlog == 2
    store.experiments.delete(experiment_id)
    assert (outbox.due(), store.monitor.metrics().export_backlog) == ((), 0)
    store.experiments.restore(experiment_id)
    assert outbox.due() == entries


def test_after_its_time_a_deleted_experiment_is_removed_with_its_files(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    kept_id, experiment_id = ended(store, "kept"), ended(store)
    before = rows(store)
    store.experiments.annotate(experiment_id, AnnotationChange(labels=("paper",), note="words"))
    for id in (kept_id, experiment_id):
        (folder / f"{id}-0000" / "checkpoints").mkdir(parents=True)
        (folder / f"{id}-0000" / "checkpoints" / "step-3.pt").write_bytes(b"state")
    counted = store.monitor.metrics()
    store.experiments.delete(experiment_id)
    later(store, 7 * DAY - 60)
    assert remove_deleted(store.database, folder) == ()
    later(store, 120)
    with pytest.raises(ConflictError, match="has passed"):
        store.experiments.restore(experiment_id)
    assert remove_deleted(store.database, folder) == (experiment_id,)
    assert remove_deleted(store.database, folder) == ()
    assert [path.name for path in folder.iterdir()] == [f"{kept_id}-0000"]
    with pytest.raises(NotFoundError, match="there is no experiment"):
        store.experiments.get_any(experiment_id, deleted_too=True)
    after = rows(store)
    assert after.pop("audit") == 1 and after.pop("removed") > 0
    assert after == {name: count - count // 2 for name, count in before.items()}
    assert faults(store.database) == ()
    line = store.audit.page(limit=1)[0]
    assert (line.address, line.target) == ("housekeeping", f"/v1/experiments/{experiment_id}")
    now = store.monitor.metrics()
    assert (now.attempts, now.device_seconds) == (counted.attempts, counted.device_seconds)
    assert now.claim.count == counted.claim.count
    assert now.dispatch.seconds == pytest.approx(counted.dispatch.seconds)
    submit(store)  # the next experiment may get the same number in the order of submissions
    assert names(store) == ["a comparison", "kept"]


@pytest.mark.parametrize("dies_in", ["remove_runs", "remove_experiment", "_remove_folder"])
def test_a_killed_removal_is_finished_later_and_cannot_be_undone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    experiment_id = ended(store)
    (tmp_path / "runs" / f"{experiment_id}-0000").mkdir(parents=True)
    store.experiments.delete(experiment_id)
    later(store, 8 * DAY)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(removal, dies_in, killed)
        with pytest.raises(KeyboardInterrupt):
            remove_deleted(store.database, tmp_path / "runs")
    store.database.clock_offset_seconds -= 5 * DAY  # even where the clock was set back
    with pytest.raises(ConflictError, match="has passed"):
        store.experiments.restore(experiment_id)
    assert remove_deleted(store.database, tmp_path / "runs") == (experiment_id,)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_cannot_be_removed_keeps_its_rows(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    first, second = ended(store), ended(store)
    for id in (first, second):
        store.experiments.delete(id)
    later(store, 8 * DAY)
    remove_folder = removal._remove_folder

    def refuse(folder: Path) -> None:
        if folder.name.startswith(first):
            raise PermissionError(13, "Permission denied", str(folder))
        remove_folder(folder)

    monkeypatch.setattr(removal, "_remove_folder", refuse)
    assert remove_deleted(store.database, tmp_path / "runs") == (second,)
    assert [experiment.id for experiment in store.experiments.page(deleted=True)] == [first]
    monkeypatch.undo()
    assert remove_deleted(store.database, tmp_path / "runs") == (first,)


def test_a_disk_that_is_away_keeps_the_rows(store: Store, tmp_path: Path) -> None:
    """A folder that is missing is not a folder that was removed, as long as the one around it is missing, too."""
    begun, folder = ended(store), tmp_path / "disk" / "runs"
    never_begun = submit(store)
    store.experiments.apply(never_begun, RunAction.CANCEL)
    for id in (begun, never_begun):
        store.experiments.delete(id)
    later(store, 8 * DAY)
    with capture_logs() as lines:
        assert remove_deleted(store.database, folder) == ()
    assert [line["experiment"] for line in lines] == [begun, never_begun]
    assert f"{folder}, is not there; mount its disk" in lines[0]["error"]
    folder.parent.mkdir()
    assert remove_deleted(store.database, folder) == (never_begun,)  # which can have left nothing
    assert store.experiments.get_any(begun, deleted_too=True).counts.total == 1
    folder.mkdir()
    assert remove_deleted(store.database, folder) == (begun,)


def test_a_removal_stops_where_its_process_ends(store: Store, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    experiment_id = ended(store)
    store.experiments.delete(experiment_id)
    later(store, 8 * DAY)
    assert remove_deleted(store.database, tmp_path / "runs", stopping=lambda: True) == ()
    assert remove_deleted(store.database, tmp_path / "runs") == (experiment_id,)


def test_deleting_gives_no_quota_back(store: Store, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    key = store.keyring.create(KeyRequest(label="x", scope=Scope.SUBMITTER, device_hours_a_day=1.0)).key
    experiment_id = ended(store, by=key.id)
    store.experiments.undo_days = 0.0
    store.experiments.delete(experiment_id)
    used = store.keyring.list_keys()[0].device_hours_used
    assert used > 0
    later(store, 60)
    assert remove_deleted(store.database, tmp_path / "runs") == ()
    assert store.keyring.list_keys()[0].device_hours_used == used
    later(store, DAY)
    assert remove_deleted(store.database, tmp_path / "runs") == (experiment_id,)


def test_a_clone_has_the_same_specification_and_says_of_what(store: Store) -> None:
    source = store.experiments.get(submit(store))
    store.experiments.annotate(source.id, AnnotationChange(labels=("paper",), note="words"))
    clone = store.experiments.clone(source.id, key="once").experiment
    assert (clone.spec, clone.spec_hash, clone.cloned_from) == (source.spec, source.spec_hash, source.id)
    assert (clone.labels, clone.note, clone.revision) == ((), None, 0)
    assert store.experiments.get(clone.id) == clone
    repeat = store.experiments.clone(source.id, key="once")
    assert (repeat.created, repeat.experiment.id) == (False, clone.id)
    named = store.experiments.clone(clone.id, "another name").experiment
    assert (named.name, named.spec.name, named.cloned_from) == ("another name", "another name", clone.id)
    assert named.spec.model_copy(update={"name": source.name}) == source.spec
    with pytest.raises(ConflictError, match="would be refused today"):
        store.experiments.clone(source.id, "two\nlines")


def test_no_two_clones_have_the_same_fresh_seeds(store: Store) -> None:
    """Nor has a clone of a clone those of another one; who asks again with the same key gets the same answer."""
    spec = comparison_spec(seeds=range(3)).model_copy(update={"tuning": Tuning(seeds=(7, 8))})
    source = store.experiments.submit(spec).experiment
    first = store.experiments.clone(source.id, fresh_seeds=2, key="one").experiment
    second = store.experiments.clone(source.id, fresh_seeds=2, key="two").experiment
    store.experiments.apply(second.id, RunAction.CANCEL)
    store.experiments.delete(second.id)
    third = store.experiments.clone(first.id, fresh_seeds=1).experiment
    assert [clone.spec.seeds for clone in (first, second, third)] == [(9, 10), (11, 12), (13,)]
    repeat = store.experiments.clone(source.id, fresh_seeds=2, key="one")
    assert (repeat.created, repeat.experiment.id) == (False, first.id)


def test_no_statement_names_all_of_many_experiments(store: Store, tmp_path: Path) -> None:
    """A database takes some ten thousand parameters, and no more."""
    source = store.experiments.submit(comparison_spec(seeds=range(3))).experiment
    with store.database.writing() as connection:
        (row,) = connection.execute(sa.select(experiments).where(experiments.c.id == source.id)).mappings()
        clones = [dict(row) | {"id": f"clone-{n}", "cloned_from": source.id} for n in range(1_200)]
        for clone in clones:
            del clone["number"]
        connection.execute(sa.insert(experiments), clones)
        ids = [clone["id"] for clone in clones]
    for clone_id in ids:
        (tmp_path / clone_id / "checkpoints").mkdir(parents=True)
    with counted_work() as work:
        assert store.experiments.clone("clone-7", fresh_seeds=1).experiment.spec.seeds == (3,)
        assert prune(store.database, tmp_path, "none") == ()
        with store.database.writing() as connection:
            now = store.database.read_clock(connection)
            timestamps = {"deleted_at": now - DAY, "undo_until": now - 1}
            connection.execute(sa.update(experiments).where(experiments.c.cloned_from == source.id).values(timestamps))
        assert sorted(deletion.claim_removals(store.database)) == sorted(ids)
    assert max(work.parameters) < 600


def test_too_few_fresh_seeds_for_a_sequential_comparison_are_refused_with_the_number_that_it_takes(
    store: Store,
) -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm"), seeds=range(5))
    source = store.experiments.submit(spec.model_copy(update={"sequential": Sequential()})).experiment
    with pytest.raises(
        ConflictError, match=r"on 2 fresh seeds would be refused today: .*first_seeds \(3\).*at most 64"
    ) as refusal:
        store.experiments.clone(source.id, fresh_seeds=2)
    assert "ask for another number" in str(refusal.value)
    assert len(store.experiments.clone(source.id, fresh_seeds=4).experiment.spec.seeds) == 4
    fields = spec.model_dump(mode="json") | {"seeds": [1, 2, 3], "sequential": {}}
    with pytest.raises(
        ValidationError, match=r"more seeds than sequential.first_seeds \(3, its default\), which all run"
    ):
        ComparisonSpec.model_validate(fields)


def test_the_tables_of_this_file_are_all_emptied_by_a_removal() -> None:
    """A table that refers to runs is one of those that a removal empties, in an order that no foreign key forbids."""
    referring = {
        table
        for table in metadata.sorted_tables
        for key in table.foreign_keys
        if key.column.table in (runs, metadata.tables["attempts"]) and table is not runs
    }
    assert referring == set(deletion.RUN_TABLES)
    assert not removed.foreign_keys
