"""`FollowUps`: the runs that ended runs lead to: the next trials, the judged seeds, further looks.

    experiments with ends since the last look ─► all of their runs ─► tuners and looks ─► the next runs, queued

The dispatcher's loop calls it each round. A run ends in its own transaction, which knows nothing of this.
"""

from collections.abc import Sequence

import structlog

from orchestrator.analysis.candidates import run_fact
from orchestrator.analysis.comparison import added_seeds
from orchestrator.errors import DamagedError, NotFoundError, StoreError
from orchestrator.jobs import TERMINAL
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.store import reads
from orchestrator.store.database import Database
from orchestrator.store.queue import growth
from orchestrator.store.queue.growth import News
from worker.schema import trust_stored_names

log = structlog.get_logger(__name__)

MOST_HANDLED = 16
"""Experiments in one round; the others wait for the next one."""


def added_runs(experiment: ExperimentRecord, runs: Sequence[RunRecord]) -> tuple[PlannedRun, ...]:
    """Return the runs on the next seeds of a sequential comparison; none if nothing is open."""
    if (spec := experiment.spec.comparison()) is None:
        return ()
    return tuple(
        spec.planned_run(name, seed=seed, setting=setting) for name, seed, setting in added_seeds(experiment, runs)
    )


class FollowUps:
    """The follow-ups of one database. For one thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._failed: dict[str, int] = {}
        """Experiment → the ends that could not be handled; they are tried again with the next one."""

    def follow(self) -> int:
        """Handle the ends since the last look; return the number of experiments with some."""
        with self._database.reading() as connection:
            all_news = growth.read_news(connection)
        pending = [news for news in all_news if self._failed.get(news.experiment_id) != news.count]
        for news in pending[:MOST_HANDLED]:
            try:
                with trust_stored_names():
                    self._follow(news)
            except StoreError:
                raise
            except Exception:  # of one experiment: the others must go on
                self._failed[news.experiment_id] = news.count
                log.exception("what follows could not be found out", experiment=news.experiment_id)
        return len(pending)

    def _follow(self, news: News) -> None:
        with self._database.reading() as connection:
            try:
                experiment = reads.experiment(connection, news.experiment_id)
            except (DamagedError, NotFoundError):
                experiment = None
            runs = reads.run_page(connection, experiment_id=news.experiment_id) if experiment else ()
        if experiment is None:  # nobody knows any more what would follow
            with self._database.writing() as connection:
                growth.close(connection, news.experiment_id, self._database.read_clock(connection))
            return
        spec = experiment.spec
        planned = spec.follow_up_runs([run_fact(run) for run in runs])
        if spec.adds_seeds() and any(run.seed in spec.seeds for run in runs):
            planned += added_runs(experiment, runs)
        open_seeds = [run.seed for run in runs if run.status not in TERMINAL]
        open_seeds += [run.spec.seed for run in planned]
        goes_on = bool(open_seeds) if spec.adds_seeds() else any(seed not in spec.seeds for seed in open_seeds)
        with self._database.writing() as connection:
            now = self._database.read_clock(connection)
            growth.add_runs(connection, news, spec, planned, now, goes_on=goes_on)
