"""Signatures of messages as in standardwebhooks.com, so that its libraries verify them.

    webhook-id: msg_…    webhook-timestamp: 1700000000    webhook-signature: v1,<base64 of HMAC-SHA256>

What is signed is `<id>.<timestamp>.<body>`. A webhook's secret follows from its id and from a key in the data folder:
the database, and its backups, hold nothing that signs.
"""

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

from orchestrator.errors import OrchestratorError
from worker.files import create_once

PREFIX = "whsec_"
KEY_NAME = "webhooks.key"
KEY_BYTES = 32


class SigningKeyError(OrchestratorError):
    """The key that signs webhooks cannot be used."""


class SigningKey:
    """The key in a data folder, made when the first webhook is added."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / KEY_NAME

    def secret(self, webhook_id: str, *, make: bool = False) -> str:
        """Return the secret of a webhook. Raises `SigningKeyError` if there is no key, unless one may be made."""
        derived = hmac.digest(self._read(make=make), f"webhook {webhook_id}".encode(), "sha256")
        return PREFIX + base64.b64encode(derived).decode()

    def _read(self, *, make: bool) -> bytes:
        try:
            if make and not self._path.exists():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                create_once(self._path, secrets.token_hex(KEY_BYTES) + "\n", mode=0o600)
            return bytes.fromhex(self._path.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            raise SigningKeyError(
                f"{self._path} cannot be used: {error}; bring it back from a backup, or remove the webhooks and add "
                "them again"
            ) from error


def fingerprint(secret: str) -> str:
    """Return the fingerprint of a secret that the database keeps: it shows whether another key signs now, and nothing
    else."""
    return hashlib.sha256(secret.encode()).hexdigest()


def signed_headers(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a message; the time is that of the delivery attempt."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signature = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }
