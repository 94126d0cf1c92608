"""The composition root of the services: what the api, the pages and the dispatcher are made of, once a process."""

from dataclasses import dataclass

from orchestrator.jobs import LeasePolicy
from orchestrator.services.analysis import Analysis, StoredExperiments
from orchestrator.services.experiments import Experiments
from orchestrator.services.monitor import Monitor
from orchestrator.services.runs import Runs
from orchestrator.services.specifications import Specifications
from orchestrator.settings import Settings
from orchestrator.specs.footprints import Footprints
from orchestrator.storage import Storage
from orchestrator.store.admin.audit import AuditLog
from orchestrator.store.admin.keyring import Keyring
from orchestrator.store.database import Database
from orchestrator.store.external_runs import ExternalRuns
from orchestrator.store.outgoing.webhooks import Webhooks
from orchestrator.store.queue.attempts import Attempts
from orchestrator.store.run_table import RunTable


@dataclass(frozen=True, kw_only=True)
class Services:
    """All services over one database and one data folder. Whoever needs one takes that one."""

    database: Database
    experiments: Experiments
    runs: Runs
    analysis: Analysis
    specifications: Specifications
    attempts: Attempts
    monitor: Monitor
    keyring: Keyring
    audit: AuditLog
    webhooks: Webhooks
    external_runs: ExternalRuns
    run_table: RunTable
    footprints: Footprints
    storage: Storage


def compose_services(database: Database, settings: Settings, policy: LeasePolicy | None = None) -> Services:
    """Return the services on a migrated database."""
    policy, storage = policy or LeasePolicy(), settings.storage()
    runs, footprints = Runs(database, policy, storage), Footprints(storage.footprints_folder())
    source = StoredExperiments(database)
    monitor = Monitor(database, storage, free_bytes=settings.free_bytes)
    specifications = Specifications(storage, runs, footprints, source, monitor)
    analysis = Analysis(source.read, source.curves)
    external_runs = ExternalRuns(database, most_runs=settings.external_runs)
    return Services(
        database=database,
        experiments=Experiments(
            database,
            policy,
            specifications,
            analysis.comparison_at_judged_settings,
            external_runs,
            undo_days=settings.undo_days,
            most_waiting=settings.waiting_runs,
        ),
        runs=runs,
        analysis=analysis,
        specifications=specifications,
        attempts=Attempts(database, policy, storage),
        monitor=monitor,
        keyring=Keyring(database),
        audit=AuditLog(database, keep_days=settings.audit_days),
        webhooks=Webhooks(database, storage.data_folder, settings.webhook_policy()),
        external_runs=external_runs,
        run_table=RunTable(database),
        footprints=footprints,
        storage=storage,
    )
