"""The errors of the orchestrator: one root; the docstring of each class is its default message."""


class OrchestratorError(Exception):
    """The orchestrator could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class NotFoundError(OrchestratorError):
    """The store has no such thing."""

    def __init__(
        self,
        message: str | None = None,
        *,
        asked: str | None = None,
        near: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.asked = asked
        """The id that there is none of."""
        self.near = near
        """Ids that may have been meant; one alone is what it abbreviates."""


class DeletedError(NotFoundError):
    """It was deleted, and can be restored for a while."""

    def __init__(self, message: str, experiment_id: str) -> None:
        super().__init__(message)
        self.experiment_id = experiment_id
        """The deleted experiment, whatever of it was asked for."""


class LeaseLostError(OrchestratorError):
    """The attempt's lease has ended or belongs to another attempt; the worker must stop and write nothing more."""


class ConflictError(OrchestratorError):
    """The request contradicts the state of the thing that it names."""


class ChangedMeanwhileError(ConflictError):
    """Somebody else has changed it since it was read."""


class IdempotencyError(ConflictError):
    """The idempotency key was used before with a different specification."""


class StoreError(OrchestratorError):
    """The database cannot be used."""


class DiskFullError(StoreError):
    """The database has no room."""


class DamagedError(OrchestratorError):
    """The stored data differs from the written data, or cannot be read."""


class MissingDataError(OrchestratorError):
    """The service has not the data or the weights that a specification names."""


class SettingsError(OrchestratorError):
    """The settings cannot be read."""


class DataFolderError(OrchestratorError):
    """The data folder cannot be used."""


class ClusterError(OrchestratorError):
    """Ray cannot be started or reached."""
