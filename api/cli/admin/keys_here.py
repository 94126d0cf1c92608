"""Keys on the database itself, as the verbs of `keys.py` want them: what is done here is in the audit log, too."""

from orchestrator.keys import AuditRecord, KeyRecord, KeyRequest, NewKey
from orchestrator.store.admin.audit import AuditLine, AuditLog
from orchestrator.store.admin.keyring import Keyring
from orchestrator.store.database import Database


class LocalKeys:
    """The keyring and the audit log of a database, for who can write it."""

    def __init__(self, database: Database, address: str) -> None:
        self._keyring = Keyring(database)
        self._audit = AuditLog(database)
        self._address = address

    def create_key(self, wanted: KeyRequest) -> NewKey:
        """Make a key."""
        made = self._keyring.create(wanted)
        self._tell("keys create", made.key.id)
        return made

    def api_keys(self) -> tuple[KeyRecord, ...]:
        """All keys."""
        return self._keyring.all()

    def revoke_key(self, key_id: str) -> KeyRecord:
        """Let a key open nothing any more."""
        revoked = self._keyring.revoke(key_id)
        self._tell("keys revoke", key_id)
        return revoked

    def audit(self, *, limit: int, key_id: str | None = None) -> tuple[AuditRecord, ...]:
        """The audit log, the newest first."""
        return self._audit.page(limit=limit, key_id=key_id)

    def _tell(self, action: str, key_id: str) -> None:
        line = AuditLine(key_id=None, address=self._address, action=action, target=f"/v1/keys/{key_id}", outcome=200)
        self._audit.add(line)
